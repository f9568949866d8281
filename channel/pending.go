package channel

import (
	"fmt"

	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
)

// pending is the memory in bytes that is held for data on its way out: queued blocks, the rest of file regions, what
// handlers Hold, and what other goroutines have posted.
func (c *Channel) pending() int {
	p := c.queuedPending()
	if c.post != nil {
		p += int(c.post.bytes.Load() - c.post.written)
	}
	return p
}

// Outgoing is how far what is on its way out goes.
func (c head) Outgoing() uint64 {
	o := &c.out
	n := o.queued + uint64(o.holding)
	if o.tail != nil {
		n += uint64(o.tail.Len())
	}
	if c.post != nil {
		n += uint64(c.post.bytes.Load() - c.post.written)
	}
	return n
}

// queuedPending is Pending without what was posted.
func (c *Channel) queuedPending() int {
	o := &c.out
	p := o.pending
	if o.tail != nil {
		p += o.tail.Cap() - o.items[len(o.items)-1].charge // it may have grown
	}
	return p
}

// Hold adds n bytes that a handler keeps on their way out, or takes them back.
func (c head) Hold(n int) {
	o := &c.out
	if invariants.Enabled {
		invariants.Check(o.holding+n >= 0, "Hold(%d) with %d bytes held", n, o.holding)
	}
	n = max(n, -o.holding)
	o.holding += n
	o.pending += n
	c.measure()
	c.dirty()
}

// Writable reports whether pending is below the watermarks and the channel takes writes.
func (c head) Writable() bool {
	c.measure() // encoders append to the tail block without telling
	return !c.out.high && c.Open() && c.out.side != sideEnded && c.out.side != sideFinSent
}

// measure brings the level in line with what is pending.
func (c *Channel) measure() {
	o := &c.out
	switch p := c.pending(); {
	case !o.high && p > c.cfg.WriteHighBytes:
		o.high, o.dipped = true, true
		c.dirty()
	case o.high && p < c.cfg.WriteLowBytes:
		o.high = false
		c.dirty()
	}
}

// WritabilityMayHaveChanged makes the end of this turn compare Writable with what the handlers know.
func (c head) WritabilityMayHaveChanged() {
	c.out.dipped = c.out.dipped || !c.pipe.Pipeline().Writable()
	c.dirty()
}

// tellWritability fires when Writable differs from what was last told. It compares states instead of counting events,
// so none can get lost. Writable may have been false for a part of a turn only: a handler that looked then waits to be
// told, so it is. A handler that writes here makes the channel dirty again.
func (c *Channel) tellWritability() {
	o := &c.out
	c.measure()
	now := c.pipe.Pipeline().Writable()
	if c.active() && (now != o.told || now && o.dipped) {
		o.told, o.dipped = now, false
		c.pipe.FireWritabilityChanged()
	}
}

// tellPending calls those who watch for what is pending now.
func (c *Channel) tellPending() {
	if n := c.pending(); c.active() && c.pipe.WatchesPending(n) {
		c.pipe.FirePending(n)
	}
}

// Flushed calls fn from the loop when the kernel has taken all that is queued now, or with the error that prevents it.
func (c head) Flushed(fn func(error)) {
	o := &c.out
	c.takeQueue()
	at := o.queued
	if o.tail != nil {
		at += uint64(o.tail.Len())
	}
	o.waits = append(o.waits, flushed{at: at, fn: fn})
	c.dirty()
}

// runFlushed calls what has waited for bytes that are sent now. What the callbacks ask for comes in the next round: one
// that asks again each time must not keep the loop.
func (c *Channel) runFlushed() {
	o := &c.out
	for n := len(o.waits); n > 0 && o.waits[0].at <= o.sent; n-- {
		fn := o.waits[0].fn
		o.waits[0] = flushed{}
		o.waits = o.waits[1:]
		fn(nil)
	}
	if len(o.waits) == 0 && cap(o.waits) > 0 {
		o.waits = nil
	}
}

// failFlushed calls what waited for bytes that will not be sent.
func (c *Channel) failFlushed() {
	o := &c.out
	for n := len(o.waits); n > 0; n-- {
		w := o.waits[0]
		o.waits[0] = flushed{}
		o.waits = o.waits[1:]
		if w.at <= o.sent {
			w.fn(nil)
			continue
		}
		w.fn(c.closedError())
	}
}

// closedError is pipeline.ErrClosed with the cause, when there is one.
func (c *Channel) closedError() error {
	switch {
	case c.cause != nil:
		return fmt.Errorf("%w: %w", pipeline.ErrClosed, c.cause)
	case c.out.side == sideFailed:
		return fmt.Errorf("%w: %w", pipeline.ErrClosed, c.rare.failed)
	}
	return pipeline.ErrClosed
}
