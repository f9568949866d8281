package pipeline

import (
	"errors"

	"github.com/weirnet/weir/buffer"
)

const (
	tailBytes  = 64 << 10 // most that Channel.Tail is asked for
	outRoom    = 256      // room that Out asks for
	outBlock   = 1 << 10  // first block of a Context's open output
	noFlight   = ^uint32(0)
	outsAtOnce = 64 // open outputs written through in a row before the loop gets its turn again
)

// Write writes msg through the WriteHandlers before this Context into the channel's queue. It borrows msg until return:
// a
// *buffer.Buf is retained by whoever keeps it, the caller keeps its own reference, also on error. A []byte or string is
// copied (use WriteBytes: a []byte in an any costs an allocation), a *FileRegion is sent by the kernel. ErrClosed when
// the channel is closing.
func (c *Context) Write(msg any) error {
	p := c.p
	if len(p.outs) != 0 {
		if err := p.settle(c); err != nil {
			return err
		}
	}
	if c.prevWrite == &p.end {
		return p.ch.Write(msg)
	}
	return c.writeThrough(msg)
}

func (c *Context) writeThrough(msg any) error {
	if !c.p.Open() {
		return c.p.ch.WriteErr()
	}
	w := c.prevWrite
	if w == nil { // removed
		w = c.prevWith(kindWrite)
	}
	if c.p.kinds&kindFlush != 0 {
		c.p.ch.WantFlush() // w may keep msg until a flush: there will be one although nothing reached the queue
	}
	return w.handler.(WriteHandler).Write(w, msg)
}

// WriteBytes copies the pieces, in order, into the channel's queue or, where a WriteHandler stands before this Context,
// into a buffer that goes through the WriteHandlers now, as one message; no pieces, or empty ones, are none. It borrows
// b until return. ErrClosed when the channel is closing; of pieces above 64 KiB in all, some may be queued then.
func (c *Context) WriteBytes(b ...[]byte) error {
	n := 0
	for _, piece := range b {
		n += len(piece)
	}
	p := c.p
	if c.prevWrite != &p.end || len(p.outs) != 0 || n > tailBytes || n == 0 {
		return c.writeBytesSlow(n, b)
	}
	t := p.ch.Tail(n)
	if t == nil {
		return p.ch.WriteErr()
	}
	for _, piece := range b {
		t.Append(piece)
	}
	return nil
}

func (c *Context) writeBytesSlow(n int, b [][]byte) error {
	p := c.p
	if err := p.ch.WriteErr(); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	if err := p.settle(c); err != nil {
		return err
	}
	if c.prevWrite == &p.end {
		return p.queue(b)
	}
	m := p.ch.Pool().Get(n)
	defer m.Release() // also when a handler panics
	for _, piece := range b {
		m.Append(piece)
	}
	return c.writeThrough(m)
}

// queue copies the pieces into the channel's tail block, 64 KiB at a time.
func (p *Pipeline) queue(b [][]byte) error {
	for _, piece := range b {
		for len(piece) > 0 {
			t := p.ch.Tail(min(len(piece), tailBytes))
			if t == nil {
				return p.ch.WriteErr()
			}
			n := min(len(piece), t.Room())
			t.Append(piece[:n])
			piece = piece[n:]
		}
	}
	return nil
}

// Out is a buffer for an encoder to append to: where no WriteHandler stands before this Context, the open block at the
// end of the queue. It may already hold bytes; they are to be left alone. It is valid until the next call of any method
// of this package or the channel. When the channel is closing, what is appended is thrown away.
//
// WriteHandlers get what was appended as one message, which EndMessage ends. What this Context does next with its
// output (Write, WriteBytes, Flush, Flushed, CloseWrite, Close) ends it, too, and so do the end of the turn and
// whatever is written past it on the way out: bytes leave in the order of the calls. So end a message where you began
// it.
func (c *Context) Out() *buffer.Buf {
	p := c.p
	if c.prevWrite == &p.end && len(p.outs) == 0 {
		if t := p.ch.Tail(outRoom); t != nil {
			return t
		}
		return buffer.New(outRoom)
	}
	return c.outSlow()
}

func (c *Context) outSlow() *buffer.Buf {
	p := c.p
	if p.state&emptied != 0 || p.ch.WriteErr() != nil {
		return buffer.New(outRoom)
	}
	if c.prevWrite != &p.end {
		p.settleBehind(c)
		return p.openOut(c)
	}
	if err := p.settle(c); err != nil {
		p.outFailed(c, err)
	}
	if t := p.ch.Tail(outRoom); t != nil {
		return t
	}
	return buffer.New(outRoom)
}

// EndMessage ends the message that was appended to Out: the WriteHandlers before this Context get it now, and their
// error is returned. Without WriteHandlers there, or with nothing appended, it does nothing.
func (c *Context) EndMessage() error {
	if len(c.p.outs) == 0 || c.p.outOf(c) < 0 {
		return nil
	}
	return c.p.settle(c)
}

// PassesWriteHandlers reports whether what this Context writes goes through a WriteHandler, and not straight into the
// channel's queue, where bytes are bytes: a handler may then write a message in several pieces.
func (c *Context) PassesWriteHandlers() bool { return c.prevWrite != &c.p.end }

// Flush sends what was written until now through the FlushHandlers before this Context and then to the kernel, instead
// of at the end of the turn.
func (c *Context) Flush() error {
	if err := c.p.settleAll(c); err != nil {
		return err
	}
	f := c.prevWith(kindFlush)
	return f.handler.(FlushHandler).Flush(f)
}

// Flushed calls fn exactly once, from the loop: with nil when the kernel has taken everything that was queued until
// now, or with the error that prevented it.
func (c *Context) Flushed(fn func(error)) {
	p := c.p
	failed := p.settleAll(c)
	if failed == nil {
		p.ch.Flushed(fn)
		return
	}
	p.ch.Flushed(func(err error) {
		if err == nil {
			err = failed
		}
		fn(err)
	})
}

// CloseWrite sends what is queued, then FIN; the peer may go on sending.
func (c *Context) CloseWrite() error {
	p := c.p
	if err := p.settleAll(c); err != nil {
		return err
	}
	return p.ch.CloseWrite()
}

// Close closes the channel in an orderly way, through the CloseHandlers before this Context: what is queued is sent. It
// returns their error. Closing what is closing already does nothing and returns nil.
func (c *Context) Close() error {
	p := c.p
	if !p.Open() {
		return nil
	}
	if err := p.settleAll(c); err != nil {
		p.outFailed(c, err)
	}
	n := c.prevWith(kindClose)
	for n != &p.end && n.state&stateInClose != 0 {
		n = n.prevWith(kindClose)
	}
	n.state |= stateInClose
	err := n.handler.(CloseHandler).Close(n)
	n.state &^= stateInClose
	return err
}

// Abort closes the channel at once; what is queued is lost.
func (c *Context) Abort(cause error) {
	c.p.ch.Abort(cause)
}

// flushOuts writes what Contexts have appended through the WriteHandlers before them. An error is treated like one that
// the handler which appended had returned. It returns false, and asks the channel for another flush, when so much is
// appended meanwhile that the loop should get its turn in between.
func (p *Pipeline) flushOuts() bool {
	_ = p.settleAll(nil) // errors of a Context's own output are only returned to that Context
	if len(p.outs) == 0 || p.flight != noFlight {
		return true
	}
	p.ch.WantFlush()
	return false
}

// settleAll writes everything through that may be, oldest first, and at least what is c's. An error of c's own output
// is returned.
func (p *Pipeline) settleAll(c *Context) (failed error) {
	for i := 0; i < outsAtOnce && len(p.outs) > 0 && p.outs[0].age <= p.flight; i++ {
		o := p.outs[0].ctx
		if err := p.writeOut(0); err != nil {
			if o != c {
				p.outFailed(o, err)
			} else if failed == nil {
				failed = err
			}
		}
	}
	if len(p.outs) > 0 && c != nil && failed == nil {
		failed = p.settle(c)
	}
	return failed
}

// settle writes through what must come before something that c writes now: c's own open output and that of Contexts
// behind c, oldest first. An error of c's own is returned.
func (p *Pipeline) settle(c *Context) error {
	p.settleBehind(c)
	if i := p.outOf(c); i >= 0 {
		return p.writeOut(i)
	}
	return nil
}

// settleBehind is settle without c's own.
func (p *Pipeline) settleBehind(c *Context) {
	for range outsAtOnce {
		i := p.outBehind(c)
		if i < 0 {
			return
		}
		o := p.outs[i].ctx
		if err := p.writeOut(i); err != nil {
			p.outFailed(o, err)
		}
	}
}

// outBehind finds the oldest open output of another Context whose bytes were written before what c writes now.
func (p *Pipeline) outBehind(c *Context) int {
	for i := range p.outs {
		o := p.outs[i].ctx
		if p.outs[i].age > p.flight {
			return -1
		}
		if o == c {
			continue
		}
		if o.state&stateRemoved != 0 {
			return i
		}
		for n := c; n != &p.end; {
			if n = n.next; n == o {
				return i
			}
		}
	}
	return -1
}

func (p *Pipeline) outOf(c *Context) int {
	for i := range p.outs {
		if p.outs[i].ctx == c {
			return i
		}
	}
	return -1
}

// openOut returns c's open output with some room. It stays p's. What was appended to it counts as pending.
func (p *Pipeline) openOut(c *Context) *buffer.Buf {
	if i := p.outOf(c); i >= 0 {
		o := &p.outs[i]
		p.ch.Hold(o.buf.Len() - o.held)
		o.held = o.buf.Len()
		o.buf.Reserve(outRoom)
		return o.buf
	}
	b := p.ch.Pool().Get(outBlock)
	o := out{ctx: c, buf: b, age: p.flight}
	if p.flight == noFlight {
		if len(p.outs) == 0 {
			p.lastAge = 0
		}
		p.lastAge++
		o.age = p.lastAge
	}
	p.outs = append(p.outs, o)
	for i := len(p.outs) - 1; i > 0 && p.outs[i-1].age > o.age; i-- {
		p.outs[i], p.outs[i-1] = p.outs[i-1], p.outs[i]
	}
	p.ch.WantFlush()
	return b
}

// writeOut takes the open output i off the list and writes it through the WriteHandlers before its Context.
func (p *Pipeline) writeOut(i int) error {
	o := p.outs[i]
	last := len(p.outs) - 1
	copy(p.outs[i:], p.outs[i+1:])
	p.outs[last] = out{}
	p.outs = p.outs[:last]
	p.ch.Hold(-o.held)
	before := p.flight
	p.flight = o.age
	defer func() { // also when a handler panics
		p.flight = before
		o.buf.Release()
	}()
	if o.buf.Len() == 0 {
		return nil
	}
	if o.ctx.prevWrite == &p.end {
		return p.ch.Write(o.buf)
	}
	return o.ctx.writeThrough(o.buf)
}

// outFailed is what becomes of an error of output that nobody waits for.
func (p *Pipeline) outFailed(c *Context, err error) {
	if errors.Is(err, ErrClosed) && !p.Open() {
		return // closing says it all
	}
	c.fail(err)
}

// dropOuts releases what was never written.
func (p *Pipeline) dropOuts() {
	for i := range p.outs {
		p.outs[i].buf.Release()
		p.ch.Hold(-p.outs[i].held)
		p.outs[i] = out{}
	}
	p.outs = p.outs[:0]
}
