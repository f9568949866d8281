package pipelinetest

import (
	"fmt"
	"io"
	"math"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

const tailBytes = 4 << 10 // the first block that encoders append to

// piece is an entry of the write queue.
type piece struct {
	buf    *buffer.Buf // owned
	region *pipeline.FileRegion
	offset int64 // of the region, sent
}

func (p *piece) len() int {
	if p.region != nil {
		return int(p.region.Length - p.offset)
	}
	return p.buf.Len()
}

// output is the write side: what is queued, and what the kernel has taken.
type output struct {
	queue []piece
	tail  *buffer.Buf // the last piece, while it is open
	taken []byte      // since the last Outbound
	sent  uint64      // position in the stream
	waits []flushed

	holding int // Hold
	extra   int // SetPending

	stalled   bool
	room      int  // what a stalled kernel still takes
	flush     bool // the end of the turn is to flush
	finWanted bool
	finSent   bool
	below     bool
	told      bool
	dipped    bool // Writable was false since then: who looked at it waits to be told
}

// flushed is a callback that waits for a position in the stream.
type flushed struct {
	at uint64
	fn func(error)
}

// Outbound answers the bytes that the kernel took since the last call.
func (c *Channel) Outbound() []byte {
	b := c.out.taken
	c.out.taken = nil
	return b
}

// OutboundString is Outbound as a string.
func (c *Channel) OutboundString() string { return string(c.Outbound()) }

// Queued is the number of bytes that the kernel has not taken.
func (c *Channel) Queued() int {
	n := 0
	for i := range c.out.queue {
		n += c.out.queue[i].len()
	}
	return n
}

// FinSent tells whether the channel has finished sending.
func (c *Channel) FinSent() bool { return c.out.finSent }

// Stall makes the kernel take nothing from now on.
func (c *Channel) Stall() { c.out.stalled, c.out.room = true, 0 }

// Drain makes a stalled kernel take up to n bytes, of what is flushed now or later. It answers how many it took now.
func (c *Channel) Drain(n int) int {
	before := c.out.sent
	c.l.act(func() {
		c.out.room += n
		c.send()
		c.dirty = true
	})
	return int(c.out.sent - before)
}

// Unstall makes the kernel take everything again.
func (c *Channel) Unstall() {
	c.l.act(func() {
		c.out.stalled = false
		c.send()
		c.dirty = true
	})
}

// Pending is Context.Pending.
func (c *Channel) Pending() int {
	return c.Queued() + c.out.holding + c.out.extra + int(c.post.bytes.Load())
}

// Held is the sum of what handlers Hold.
func (c *Channel) Held() int { return c.out.holding }

// Writable is Context.Writable.
func (c *Channel) Writable() bool { return c.pipe.Pipeline().Writable() }

// SetPending makes Pending n as it is now, by bytes that no handler wrote: it plays a stalled peer without data.
// SetPending(0) takes them away when nothing else is pending.
func (c *Channel) SetPending(n int) {
	c.l.act(func() {
		c.out.extra += n - c.Pending()
		c.judgePending()
		c.dirty = true
	})
}

func (c *Channel) write(msg any) error {
	n, bytes := size(msg)
	region, file := msg.(*pipeline.FileRegion)
	if !bytes && !file {
		return fmt.Errorf("%w: %T reached the head", pipeline.ErrMessageType, msg)
	}
	if err := c.admit(); err != nil {
		return err
	}
	if file {
		if region.File == nil || region.Offset < 0 || region.Length < 0 {
			return fmt.Errorf("pipelinetest: write file region: offset %d, length %d", region.Offset, region.Length)
		}
		own := *region
		c.out.queue = append(c.out.queue, piece{region: &own})
		c.out.tail = nil
		c.op(fmt.Sprintf("write %d", region.Length))
		c.wrote()
		return nil
	}
	c.op(fmt.Sprintf("write %d", n))
	if n == 0 {
		return nil
	}
	c.out.tail = nil
	var b *buffer.Buf
	if buf, ok := msg.(*buffer.Buf); ok {
		b = buf.Slice(0, n).Detach() // a view of its own: the caller may go on consuming
	} else {
		b = c.l.pool.Get(n)
		if s, ok := msg.(string); ok {
			b.AppendString(s)
		} else {
			b.Append(msg.([]byte))
		}
	}
	c.out.queue = append(c.out.queue, piece{buf: b})
	c.wrote()
	return nil
}

func (c *Channel) tailBlock(n int) *buffer.Buf {
	if n > 64<<10 {
		c.l.t.Errorf("pipelinetest: Tail(%d): the contract ends at 64 KiB", n)
	}
	if c.admit() != nil {
		return nil
	}
	o := &c.out
	if o.tail == nil || o.tail.Room() < n {
		o.tail = c.l.pool.Get(max(n, tailBytes))
		o.queue = append(o.queue, piece{buf: o.tail})
	}
	c.wrote()
	return o.tail
}

func (c *Channel) wrote() {
	c.judgePending()
	socket{c}.WantFlush()
}

// admit answers why nothing may be queued, or nil.
func (c *Channel) admit() error {
	if !c.Open() || c.out.finWanted {
		return c.closedError()
	}
	if n := c.Pending(); n > c.cfg.MaxPendingBytes {
		err := fmt.Errorf("pipelinetest: write with %d bytes pending, limit %d: %w", n, c.cfg.MaxPendingBytes, pipeline.ErrPendingLimit)
		socket{c}.Abort(err)
		return err
	}
	return nil
}

// closedError is pipeline.ErrClosed with the cause, when there is one.
func (c *Channel) closedError() error {
	if c.cause != nil {
		return fmt.Errorf("%w: %w", pipeline.ErrClosed, c.cause)
	}
	return pipeline.ErrClosed
}

func (c *Channel) endTurnFlush() {
	if !c.out.flush {
		return
	}
	through, again := c.pipe.FireFlush()
	c.out.flush = again // what a FlushHandler writes goes with this flush, it does not ask for another
	if through {
		c.send()
	}
}

// send gives the kernel what it takes.
func (c *Channel) send() {
	o := &c.out
	if c.state == stateOpen || c.state == stateClosed || c.finishDue {
		return
	}
	if err := c.in.peer; err != nil && err != io.EOF {
		if c.Queued() > 0 {
			socket{c}.Abort(fmt.Errorf("pipelinetest: send: %w", err))
		}
		return
	}
	room := math.MaxInt
	if o.stalled {
		room = o.room
	}
	for len(o.queue) > 0 {
		p := &o.queue[0]
		n := min(p.len(), room)
		if err := c.take(p, n); err != nil {
			socket{c}.Abort(fmt.Errorf("pipelinetest: send: %w", err))
			return
		}
		room -= n
		if o.stalled {
			o.room -= n
		}
		if p.len() > 0 {
			break
		}
		c.pop(nil)
	}
	c.judgePending()
	if len(o.waits) > 0 {
		c.dirty = true
	}
}

// take moves n bytes of a piece to the kernel.
func (c *Channel) take(p *piece, n int) error {
	if p.region != nil {
		b := make([]byte, n)
		if _, err := p.region.File.ReadAt(b, p.region.Offset+p.offset); err != nil && n > 0 {
			return fmt.Errorf("file region: %w", err)
		}
		c.out.taken = append(c.out.taken, b...)
		p.offset += int64(n)
	} else {
		c.out.taken = append(c.out.taken, p.buf.Bytes()[:n]...)
		p.buf.Advance(n)
	}
	c.out.sent += uint64(n)
	if n > 0 && c.pausedEnd.armed {
		c.pausedEnd.Reset(c.cfg.PausedCloseTimeout) // it has not gone
	}
	return nil
}

// pop gives up the first piece: sent (nil) or not.
func (c *Channel) pop(err error) {
	o := &c.out
	p := o.queue[0]
	o.queue = o.queue[1:]
	if p.region != nil {
		if p.region.Done != nil {
			p.region.Done(err)
		}
		return
	}
	if p.buf == o.tail {
		o.tail = nil
	}
	p.buf.Release()
}

// drained tells whether the kernel has everything.
func (c *Channel) drained() bool { return c.Queued() == 0 }

func (c *Channel) dropOutput() {
	for len(c.out.queue) > 0 {
		c.pop(c.closedError())
	}
	c.out.tail = nil
}

func (c *Channel) judgePending() {
	o := &c.out
	switch n := c.Pending(); {
	case o.below && n > c.cfg.WriteHighBytes, !o.below && n < c.cfg.WriteLowBytes:
		o.below = !o.below
		o.dipped = o.dipped || !o.below
		c.dirty = true
	}
}

func (c *Channel) tellWritability() {
	c.judgePending()
	o := &c.out
	if now := c.pipe.Pipeline().Writable(); c.state == stateActive && (now != o.told || now && o.dipped) {
		o.told, o.dipped = now, false
		c.pipe.FireWritabilityChanged()
	}
}

func (c *Channel) tellPending() {
	if n := c.Pending(); c.state == stateActive && c.pipe.WatchesPending(n) {
		c.pipe.FirePending(n)
	}
}

func (c *Channel) runFlushed() {
	o := &c.out
	for len(o.waits) > 0 && o.waits[0].at <= o.sent {
		fn := o.waits[0].fn
		o.waits = o.waits[1:]
		fn(nil)
	}
	if c.state == stateClosed {
		c.failFlushed()
	}
}

func (c *Channel) failFlushed() {
	o := &c.out
	for len(o.waits) > 0 {
		w := o.waits[0]
		o.waits = o.waits[1:]
		if w.at <= o.sent {
			w.fn(nil)
			continue
		}
		w.fn(c.closedError())
	}
}

func (c *Channel) op(s string) { c.ops = append(c.ops, s) }
