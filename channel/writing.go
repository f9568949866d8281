package channel

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

const (
	// copyLimitBytes is up to which size a write is copied into the tail block: queueing it as a piece of its own costs
	// more.
	copyLimitBytes = 1 << 10
	// tailBytes are the sizes of the first, second, … open block of a queue: one small write costs little memory, many
	// small writes few pieces.
	tailBytes, nextTailBytes, maxTailBytes = 4 << 10, 16 << 10, 64 << 10
	// copyPieceBytes splits large copied writes, so that their memory comes back as they are sent.
	copyPieceBytes = 64 << 10
	// maxSendPieces and maxSendBytes bound one Send. IOV_MAX is 1024; memory of a Send comes back when all of it is
	// sent.
	maxSendPieces = 1024
	maxSendBytes  = 1 << 20
	maxStallBytes = 256 << 10 // once the peer is slow
)

// flushed is a callback that waits until everything up to a position of the stream has been taken by the kernel.
type flushed struct {
	at uint64
	fn func(error)
}

// writing is the write side of a channel. It belongs to the channel's loop.
type writing struct {
	*queue // settings.empty while there is nothing in it

	pending int // sum of the charges, and Hold
	holding int // of it, Hold

	side     writeSide
	accepted bool // what is being written was measured against the limit when it was posted
	high     bool // Pending is above the watermarks, with hysteresis
	stalled  bool // the peer was slow since the queue was last empty
	flush    bool // the end of this turn is to flush
	told     bool // what the handlers know of Writable
	dipped   bool // Writable has been false since
}

// writeSide is where the output stands, onward only.
type writeSide uint8

const (
	sideWriting writeSide = iota
	sideEnding            // CloseWrite is at work: the flush handlers give what they keep
	sideEnded             // FIN follows what is queued
	sideFinSent
	sideFailed // nothing can be sent any more; rare.failed says why
)

// Write queues msg at the head of the pipeline. A *buffer.Buf is retained: takes its own reference, the caller keeps
// its own.
func (c head) Write(msg any) error {
	switch m := msg.(type) {
	case *buffer.Buf:
		return c.writeBuf(m)
	case []byte:
		return c.writeBytes(m)
	case string:
		return c.writeString(m)
	case *pipeline.FileRegion:
		return c.writeRegion(m)
	default:
		return fmt.Errorf("%w: %T reached the head", pipeline.ErrMessageType, msg)
	}
}

func (c *Channel) writeBuf(b *buffer.Buf) error {
	n := b.Len()
	if n <= copyLimitBytes {
		if n == 0 {
			return c.writeErr()
		}
		t := c.tailBlock(n)
		if t == nil {
			return c.writeErr()
		}
		t.Append(b.Bytes())
		return nil
	}
	if err := c.admit(); err != nil {
		return err
	}
	c.sealBefore()
	c.push(item{buf: b.Slice(0, n)}) // a view: what its other holders do with their indexes is theirs
	c.out.queued += uint64(n)
	return nil
}

func (c *Channel) writeBytes(p []byte) error {
	if len(p) > copyLimitBytes {
		if err := c.admit(); err != nil { // once: the newest message may exceed the limit
			return err
		}
		for len(p) > 0 {
			n := min(len(p), copyPieceBytes)
			b := c.loop.Pool().Get(n)
			b.Append(p[:n])
			c.sealBefore()
			c.push(item{buf: b})
			c.out.queued += uint64(n)
			p = p[n:]
		}
		return nil
	}
	if len(p) == 0 {
		return c.writeErr()
	}
	t := c.tailBlock(len(p))
	if t == nil {
		return c.writeErr()
	}
	t.Append(p)
	return nil
}

func (c *Channel) writeString(s string) error {
	if len(s) == 0 || len(s) > copyLimitBytes {
		return c.writeBytes([]byte(s))
	}
	t := c.tailBlock(len(s))
	if t == nil {
		return c.writeErr()
	}
	t.AppendString(s)
	return nil
}

func (c *Channel) writeRegion(m *pipeline.FileRegion) error {
	if m.File == nil || m.Offset < 0 || m.Length < 0 || m.Offset > math.MaxInt64-m.Length {
		return fmt.Errorf("channel: write file region: file %v, offset %d, length %d", m.File, m.Offset, m.Length)
	}
	if err := c.admit(); err != nil {
		return err
	}
	if n := c.out.regions; n >= c.cfg.MaxPendingRegions {
		err := fmt.Errorf("channel: write with %d file regions pending, limit %d: %w",
			n, c.cfg.MaxPendingRegions, pipeline.ErrPendingLimit)
		c.Abort(err)
		return err
	}
	c.sealBefore()
	r := &region{file: transport.FileRange{File: m.File, Offset: m.Offset, Length: m.Length}, done: m.Done}
	c.push(item{region: r})
	c.out.queued += uint64(m.Length)
	return nil
}

// tailBlock returns the open block at the end of the queue with room for n bytes or more; nil when nothing may be
// written.
func (c *Channel) tailBlock(n int) *buffer.Buf {
	o := &c.out
	if t := o.tail; t != nil && t.Room() >= n && c.writeErr() == nil {
		return t
	}
	if c.admit() != nil {
		return nil
	}
	c.seal()
	size := tailBytes
	switch k := len(o.items) - o.inAir; {
	case k >= 4:
		size = maxTailBytes
	case k >= 1:
		size = nextTailBytes
	}
	b := c.loop.Pool().Get(max(n, size))
	c.push(item{buf: b})
	o.tail = b
	return b
}

// writeErr returns nil or why nothing may be written.
func (c *Channel) writeErr() error {
	if !c.Open() || c.out.side >= sideEnded {
		return c.closedError()
	}
	return nil
}

// admit returns an error when nothing may be queued; it aborts the channel when what is pending, the newest message
// aside, exceeds the limit.
func (c *Channel) admit() error {
	if err := c.writeErr(); err != nil {
		return err
	}
	if p := c.pending() - c.out.files; p > c.cfg.MaxPendingBytes && !c.out.accepted {
		err := fmt.Errorf("channel: write with %d bytes pending, limit %d: %w",
			p, c.cfg.MaxPendingBytes, pipeline.ErrPendingLimit)
		c.Abort(err)
		return err
	}
	return nil
}

// push appends an entry and charges it. Neighbours in the same block are charged once.
func (c *Channel) push(it item) {
	o := &c.out
	c.takeQueue()
	if it.region != nil {
		o.countFile(&it, it.region.file.Length)
		o.regions++
	}
	o.items = append(o.items, it)
	o.recharge(len(o.items) - 1)
	o.flush = true
	c.measure()
	c.dirty()
}

// writePosted writes what a Ref has posted: it was measured against the limit then. When the channel has closed
// meanwhile, the bytes are lost, as with any socket.
func (c *Channel) writePosted(ctx *pipeline.Context, b []byte) {
	c.out.accepted = true
	_ = ctx.WriteBytes(b)
	c.out.accepted = false
}

// sealBefore is seal for when something that does not go into the tail block comes behind it: a block that is nearly
// empty is not kept for a few bytes.
func (c *Channel) sealBefore() {
	if t := c.out.tail; t != nil && t.Cap() > tailBytes && 4*t.Len() < t.Cap() && t.Len() > 0 {
		t.Shrink()
	}
	c.seal()
}

// seal ends appending to the tail block.
func (c *Channel) seal() {
	o := &c.out
	if o.tail == nil {
		return
	}
	last := len(o.items) - 1
	if n := o.tail.Len(); n > 0 {
		o.queued += uint64(n)
		o.recharge(last)
	} else {
		o.pending -= o.items[last].charge
		o.items[last] = item{}
		o.items = o.items[:last]
		o.fresh = min(o.fresh, last)
		o.tail.Release()
	}
	o.tail = nil
}

// Flush sends what is queued now.
func (c head) Flush() {
	if c.active() {
		c.startSend(true)
		c.dirty() // for those who wait until less is pending: there may be no completion
	}
}

// endTurnFlush is the flush that nobody needs to ask for. A flush handler that holds it back holds back what is queued
// while nothing is in flight; the end of a send sends all that is queued.
func (c *Channel) endTurnFlush() {
	o := &c.out
	if !o.flush {
		return
	}
	through, again := c.pipe.FireFlush()
	// What was written on the way is part of this flush: a handler that writes at each flush must not cause another.
	o.flush = again
	if through {
		c.startSend(true)
	}
}

// WantFlush makes the end of this turn a flush.
func (c head) WantFlush() {
	c.out.flush = true
	c.dirty()
}

// startSend sends what is queued. With now, a transport that can do it at once may, without a completion.
func (c *Channel) startSend(now bool) {
	o := &c.out
	if l := c.life(); l == pipeline.LifeStarting || l >= pipeline.LifeEnding || o.inAir > 0 || o.side == sideFailed {
		return
	}
	c.seal()
	if len(o.items) == 0 {
		return
	}
	if o.stalled {
		o.detachUnsent() // this Send may wait long
	}
	now = now && !o.stalled
	if r := o.items[0].region; r != nil {
		o.inAir = 1
		c.loop.Submit(transport.Op{
			Kind: transport.SendFile, Token: c.token(transport.SendFile), Handle: c.hnd, File: &r.file,
		})
		return
	}
	limit := maxSendBytes
	if o.stalled {
		limit = maxStallBytes
	}
	o.flight = o.flight[:0]
	for n, i := 0, 0; i < len(o.items) && i < maxSendPieces && n < limit && o.items[i].region == nil; i++ {
		o.flight = append(o.flight, o.items[i].buf)
		n += o.items[i].buf.Len()
	}
	o.inAir = len(o.flight)
	if now {
		if n, err := c.loop.SendNow(c.hnd, o.flight); err != transport.ErrNotNow {
			o.sent += uint64(n)
			if n > 0 {
				c.sentSome()
			}
			c.endSend(err)
			return
		}
	}
	c.loop.Submit(transport.Op{
		Kind: transport.Send, Token: c.token(transport.Send), Handle: c.hnd, Bufs: o.flight, NoWait: !o.stalled,
	})
}

// hurrySend has the outcome of the send under way told as soon as it is known, when anybody waits for it. Otherwise it
// comes with whatever happens next, which saves a system call.
func (c *Channel) hurrySend() {
	o := &c.out
	if o.inAir == 0 || o.stalled || o.items[0].region != nil {
		return // nothing is under way, or it completes by itself
	}
	left := c.pending()
	waits := len(o.items) > o.inAir || len(o.waits) > 0 || !c.active() || o.side != sideWriting ||
		left >= c.cfg.WriteLowBytes || o.dipped || o.told != c.pipe.Pipeline().Writable() ||
		c.post != nil && c.post.waited()
	for i := range o.items[:o.inAir] {
		left -= o.items[i].charge
	}
	if waits || c.pipe.WatchesPending(left) {
		c.loop.StayAwake()
	}
}

func (c *Channel) completeSend(cp *transport.Completion) {
	o := &c.out
	o.sent += uint64(cp.N)
	if cp.N > 0 {
		c.sentSome()
	}
	if !cp.More {
		c.endSend(cp.Err)
	} else if it := &o.items[0]; it.region != nil {
		o.countFile(it, it.region.file.Length-int64(o.sent-o.head))
		c.measure()
	}
	if len(o.waits) > 0 {
		c.runFlushed()
	}
	if len(o.items) > 0 || !c.active() || o.side != sideWriting || c.post != nil || o.dipped ||
		c.pipe.Pipeline().Writable() != o.told || c.pipe.WatchesPending(c.pending()) {
		c.dirty()
	}
}

// endSend settles a send after its last completion.
func (c *Channel) endSend(err error) {
	o := &c.out
	c.popSent()
	switch {
	case err == nil:
		if len(o.items) == 0 {
			o.stalled = false
		}
	case errors.Is(err, transport.ErrWouldBlock):
		o.stalled = true
		o.fresh = 0
		o.detachUnsent()
	case c.life() >= pipeline.LifeEnding:
		return
	default:
		c.failSend(&opError{"send", err})
		return
	}
	c.measure()
	if l := c.life(); l == pipeline.LifeActive || l == pipeline.LifeClosing {
		c.startSend(false) // by an operation: what others have to send comes in between
	}
	c.returnQueue()
}

// failSend deals with a send that failed. When the connection broke, only the write side ends: what the peer sent
// before is still delivered, and the receive, or the watch while reading is paused, finds the end soon.
func (c *Channel) failSend(err error) {
	in := &c.in
	broke := errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
	if !broke || !c.active() || in.side == sideRead || in.end != nil {
		c.Abort(err)
		return
	}
	c.out.side = sideFailed
	c.rarely().failed = err
	c.dropOutput()
	c.failFlushed()
	c.startDeadline()
	c.dirty()
}

// popSent removes what the kernel has taken from the queue.
func (c *Channel) popSent() {
	o := &c.out
	gone := int64(o.sent - o.head)
	var done func(error)
	i := 0
	for ; i < o.inAir; i++ {
		it := &o.items[i]
		n := it.len()
		if gone < n {
			o.advance(it, gone)
			break
		}
		gone -= n
		o.head += uint64(n)
		o.pending -= it.charge
		if it.region != nil {
			o.files -= it.charge
			o.regions--
			done = it.region.done // a region is a flight of its own, so there is only one
		} else {
			it.buf.Release()
		}
		*it = item{}
	}
	o.shift(i)
	o.inAir = 0
	clear(o.flight)
	if cap(o.flight) > keepItems {
		o.flight = nil
	}
	if done != nil { // last: it may write, flush, close or panic
		done(nil)
	}
}
