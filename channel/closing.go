package channel

import (
	"errors"
	"slices"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// CloseWrite sends what is queued, then FIN. Reading goes on; when the peer has finished too, the channel closes.
func (c head) CloseWrite() error {
	if err := c.writeErr(); err != nil {
		return err
	}
	if c.out.side == sideEnding { // from a flush handler: the call under way does it
		return nil
	}
	c.out.side = sideEnding
	// What encoders and flush handlers still keep was written before.
	c.pipe.FireFlush()
	if err := c.writeErr(); err != nil { // one of them closed
		return err
	}
	c.out.side = sideEnded
	c.out.flush = true
	c.dirty()
	return nil
}

// Close sends what is queued, then FIN, throws away input until the peer's FIN, CloseDiscardBytes or CloseTimeout, and
// closes. Closing a socket with unread input would make the kernel send RST, and the peer's kernel throw away what it
// had already received (RFC 1122, 4.2.2.13).
func (c *Channel) Close(cause error) {
	if !c.Open() || c.closeEntered {
		return
	}
	c.closeEntered = true
	// What encoders and flush handlers still keep was written before the close.
	c.pipe.FireFlush()
	if !c.Open() { // one of them aborted
		return
	}
	if c.cause == nil {
		c.cause = cause
	}
	if c.cause == nil && c.out.side == sideFailed {
		c.cause = c.rare.failed
	}
	if c.life() == pipeline.LifeStarting && len(c.out.items) == 0 {
		c.closeSocket(false)
		return
	}
	c.pipe.SetLife(pipeline.LifeClosing)
	c.dirty()
}

// Abort closes at once, with RST. What is queued is lost; Flushed callbacks get the cause.
func (c *Channel) Abort(cause error) {
	c.abort(cause, true)
}

// abort is Abort; what the peer has reset needs no RST, and no system call for it.
func (c *Channel) abort(cause error, reset bool) {
	if c.life() >= pipeline.LifeEnding {
		return
	}
	if c.cause == nil {
		c.cause = cause
	}
	c.closeSocket(reset)
}

// closeOrderly closes because nobody objects: through the CloseHandlers, which may have something left to write.
func (c *Channel) closeOrderly() {
	if err := c.pipe.Pipeline().Close(); err != nil {
		if c.out.side >= sideEnded && errors.Is(err, pipeline.ErrClosed) {
			err = nil // what it wanted to write comes too late
		}
		c.Close(err)
	}
}

// progressClose takes the next step of a close, or of a close of the write side. The end of each turn that changed
// something comes here.
func (c *Channel) progressClose() {
	if c.life() >= pipeline.LifeEnding || c.life() == pipeline.LifeStarting {
		return
	}
	if c.active() {
		if c.out.side == sideEnded && c.drained() {
			c.sendFin()
			c.closeWhenBothClosed()
		}
		return
	}
	c.startDeadline()
	if !c.drained() {
		if c.startSend(true); c.life() >= pipeline.LifeEnding {
			return
		}
		if !c.drained() {
			c.receiveToDiscard() // a peer that reads only while somebody reads what it sends must go on reading
			return
		}
	}
	in := &c.in
	if in.side == sideRead || in.end != nil || in.discarded > c.cfg.CloseDiscardBytes {
		c.closeSocket(false)
		return
	}
	c.sendFin()
	c.receiveToDiscard()
}

// receiveToDiscard receives what is thrown away, unless nothing can come any more.
func (c *Channel) receiveToDiscard() {
	in := &c.in
	if in.recv != opNone || in.side == sideRead || in.end != nil {
		return
	}
	in.recv = opArmed
	c.loop.Submit(transport.Op{
		Kind: transport.Recv, Token: c.token(transport.Recv), Handle: c.hnd,
		Limit: min(c.cfg.CloseDiscardBytes-in.discarded, maxGrantBytes) + 1,
	})
}

// closeLooks is how often per CloseTimeout a close looks whether the peer has made progress.
const closeLooks = 8

// startDeadline starts the clock of a close, once, unless the close ends here and now.
func (c *Channel) startDeadline() {
	if c.rare != nil && c.rare.closing != nil || c.drained() && (c.in.side == sideRead || c.in.end != nil) {
		return
	}
	m := c.rarely()
	m.closing = c.loop.NewTimer(completer{c}, c.lookAtDeadline)
	m.closeBegun = c.loop.Now()
	m.progress = m.closeBegun
	m.closing.Reset(max(c.cfg.CloseTimeout/closeLooks, 1))
}

// lookAtDeadline aborts a close whose peer has acknowledged nothing for CloseTimeout, or which takes too long in all.
// What the kernel takes is no progress: it takes as long as it has room, and a slow peer's may be full for longer than
// that.
func (c *Channel) lookAtDeadline() {
	m, now := c.rare, c.loop.Now()
	acked, _ := c.acked()
	if m.looked && acked != m.acked {
		m.progress = now
	}
	m.acked, m.looked = acked, true // the first look is no system call of every close
	end := m.progress + c.cfg.CloseTimeout
	if total := c.cfg.CloseTotalTimeout; total > 0 {
		end = min(end, m.closeBegun+total)
	}
	switch {
	case now < end:
		m.closing.Reset(min(end-now, max(c.cfg.CloseTimeout/closeLooks, 1)))
	case c.out.side == sideFailed:
		c.Abort(m.failed)
	default:
		c.Abort(ErrCloseTimeout)
	}
}

// acked returns a mark that changes whenever the peer has acknowledged more of what was sent, and what is left.
func (c *Channel) acked() (mark uint64, left int) {
	if c.life() >= pipeline.LifeEnding {
		return 0, 0
	}
	mark, left, _ = c.loop.Transport().Acked(c.hnd) // an error is a socket about which nothing can be said
	return mark, left
}

func (c *Channel) drained() bool {
	o := &c.out
	if o.inAir > 0 {
		return false
	}
	c.seal()
	return len(o.items) == 0
}

func (c *Channel) sendFin() {
	if c.out.side >= sideFinSent {
		return
	}
	c.out.side = sideFinSent
	c.loop.Submit(transport.Op{Kind: transport.CloseWrite, Token: c.token(transport.CloseWrite), Handle: c.hnd})
}

// completeFin needs to do nothing for an error: the connection is gone, and the receive will say so.
func (c *Channel) completeFin(*transport.Completion) { c.dirty() }

// closeWhenBothClosed closes a half-closed channel whose other half is closed now. It is called when either half
// closes.
func (c *Channel) closeWhenBothClosed() {
	if c.active() && c.in.side == sideRead && c.out.side == sideFinSent {
		c.closeOrderly()
	}
}

// closeSocket makes the transport close the socket; its completion, after those of everything in flight, finishes.
func (c *Channel) closeSocket(reset bool) {
	c.local = c.LocalAddr()
	c.pipe.SetLife(pipeline.LifeEnding)
	if c.post != nil {
		c.post.refuse()
	}
	c.loop.Submit(transport.Op{Kind: transport.Close, Token: c.token(transport.Close), Handle: c.hnd, Reset: reset})
}

// The steps of finish.
const (
	finishTimers = iota
	finishInput
	finishOutput
	finishFlushed
	finishPosted
	finishInactive
	finishHandlers
	finishRef
	finishClosed
	finishDone
)

// finish ends the channel's life: every callback that waits gets its answer, the handlers learn of it and are removed.
// A panic in one step does not keep the others from being taken: Panicked comes here again.
func (c *Channel) finish() {
	c.pipe.SetLife(pipeline.LifeClosed)
	for c.finishStep < finishDone {
		step := c.finishStep
		// Steps that call several callbacks take each off its list first, so after a panic they go on with the rest.
		repeat := step == finishOutput || step == finishFlushed || step == finishPosted
		if !repeat {
			c.finishStep++
		}
		all := c.finishOne(step)
		if !all && c.loop.Post(&c.node) { // which comes here again
			return
		}
		if repeat && all { // a loop that is gone takes no more posts: the rest is done here and now
			c.finishStep++
		}
	}
}

// finishOne takes a step, or a part of it. It reports whether it was all.
func (c *Channel) finishOne(step uint8) bool {
	switch step {
	case finishTimers:
		c.stopTimers()
	case finishInput:
		c.dropInput()
	case finishOutput:
		c.dropOutput()
	case finishFlushed:
		c.failFlushed()
	case finishPosted:
		return c.post == nil || c.post.finish()
	case finishInactive:
		c.pipe.FireInactive() // where Active has been
	case finishHandlers:
		c.pipe.RemoveAll()
	case finishRef:
		c.loop.Unregister(c.reg)
		if c.post != nil {
			c.publish()
			close(c.post.done)
		}
	case finishClosed:
		if c.cfg.Closed != nil {
			c.cfg.Closed(c)
		}
	}
	return true
}

// finishGuarded is finish for when handlers panic in it.
func (c *Channel) finishGuarded() {
	for !c.finishRecovering() {
	}
}

// finishRecovering reports whether finish returned.
func (c *Channel) finishRecovering() (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			c.logError("weir: handler panicked while its channel was finishing", "panic", v, "channel", c.ID())
		}
	}()
	c.finish()
	return true
}

// dropOutput gives up what was not sent.
func (c *Channel) dropOutput() {
	o := &c.out
	if o.queue == &c.cfg.empty {
		return
	}
	o.tail = nil
	var err error // made only for somebody: most channels close with nothing queued
	if len(o.items) > 0 {
		err = c.closedError()
	}
	for len(o.items) > 0 {
		it := o.items[0]
		o.items = o.items[1:]
		o.pending -= it.charge
		it.release(err)
	}
	o.items, o.flight, o.inAir, o.fresh, o.files, o.regions = nil, nil, 0, 0, 0, 0
}

func (c *Channel) stopTimers() {
	m := c.rare
	if m == nil {
		return
	}
	for _, d := range m.dials {
		d.cancel()
	}
	for len(m.timers) > 0 {
		m.timers[0].Stop()
	}
	m.timers = nil
	for _, t := range []*loop.Timer{m.closing, m.paused, m.grant} {
		if t != nil {
			t.Stop()
		}
	}
}

// dialing is an attempt of Channel.Dial that is under way.
type dialing struct{ cancel func() }

// Dial connects a new channel on the same loop, with this channel's settings: address is an IP literal and port, or a
// path. failed, when not nil, runs on the loop, later, when it cannot connect. A channel that has closed gives up the
// attempts that are under way; those that have succeeded live on. It can be called in ChannelInactive and later, too,
// to connect again.
func (c head) Dial(network, address string, init func(*pipeline.Pipeline) error, failed func(error)) error {
	cfg := c.cfg.Config
	var closed func(*Channel)
	cfg.Init, cfg.Closed = init, func(ch *Channel) {
		if closed != nil {
			closed(ch)
		}
	}
	m := c.rarely()
	dc := &transport.DialConfig{Network: network, Address: address}
	var d *dialing
	done := func(ch *Channel, err error) {
		m.dials = slices.DeleteFunc(m.dials, func(o *dialing) bool { return o == d })
		switch {
		case err == nil && cfg.Dialed != nil:
			closed = cfg.Dialed(ch)
		case err != nil && failed != nil:
			failed(err)
		}
	}
	d = &dialing{cancel: Dial(c.loop, dc, &cfg, done)}
	m.dials = append(m.dials, d)
	return nil
}
