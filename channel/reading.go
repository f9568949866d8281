package channel

import (
	"errors"
	"io"
	"syscall"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// reading is the read side of a channel. It belongs to the channel's loop.
type reading struct {
	*held // settings.none while nothing is held back

	armedLimit int32 // of the receive in flight
	armedGot   int32 // bytes it delivered
	debt       int32 // bytes received above a grant; the next grants pay them

	side     readSide
	recv     operation // the Recv
	watch    operation // the WatchClose
	noGrant  bool      // the last grant was nothing
	counting bool      // the deadline for a peer that has gone runs
}

// readSide is where the input stands. What ended it and is not yet told waits in held.end.
type readSide uint8

const (
	sideReading readSide = iota // the peer may send
	sideGone                    // it has finished or gone, as the watch saw: nobody reads
	sideRead                    // its FIN was told to the handlers
)

// operation is where one of the operations stands that can be cancelled.
type operation uint8

const (
	opNone operation = iota
	opArmed
	opCanceling
)

// held is input that the handlers did not get, or not yet. Few channels have any.
type held struct {
	stash     []*buffer.Buf // received while reading was paused; bounded by the grant
	end       error         // what ended the input, not yet told: io.EOF or an error
	discarded int           // input thrown away while closing, bytes
}

// maxGrantBytes bounds a receive, which the kernel takes as a 32-bit number.
const maxGrantBytes = 1 << 30

// keepInput makes the channel's held one that can be written to.
func (c *Channel) keepInput() *held {
	if c.in.held == &c.cfg.none {
		c.in.held = &held{}
	}
	return c.in.held
}

// StopReading makes pausing work at once: what completes from now on is stashed, and the receive is cancelled at the
// end of this turn unless reading is resumed before.
func (c head) StopReading() { c.dirty() }

// resumeLater posts the task that resumes.
func (c *Channel) resumeLater() {
	c.resumeDue = true
	c.loop.Post(&c.node)
}

// askGrant makes a grant of nothing be asked for again.
func (c *Channel) askGrant() {
	if c.in.noGrant {
		c.in.noGrant = false
		c.dirty()
	}
}

// mustWait reports whether input must wait: paused, or something older waits.
func (c *Channel) mustWait() bool {
	return c.resumeDue || len(c.in.stash) > 0 || !c.pipe.Pipeline().Reading()
}

func (c *Channel) completeRecv(cp *transport.Completion) {
	in := &c.in
	if !cp.More {
		in.recv = opNone
	}
	if !c.active() {
		c.discard(cp)
		return
	}
	if cp.N > 0 {
		in.armedGot += int32(cp.N)
		if c.mustWait() {
			h := c.keepInput()
			h.stash = append(h.stash, cp.Buf.Retain())
		} else {
			c.pipe.Pipeline().FireRead(cp.Buf)
			c.pipe.Pipeline().FireReadComplete()
		}
	}
	if cp.More {
		return
	}
	if over := in.armedGot - in.armedLimit; over > 0 {
		in.debt += over
	}
	switch {
	case cp.Err == nil, errors.Is(cp.Err, transport.ErrCanceled):
	case c.mustWait():
		c.keepInput().end = cp.Err
	default:
		c.endInput(cp.Err)
	}
	c.settleReading()
}

// settleReading brings what is in flight in line with what is wanted, and the clock of a peer that has gone with that.
// Called whenever one of the two may have changed.
func (c *Channel) settleReading() {
	if c.active() {
		c.settleInterest()
	}
	if c.active() {
		c.settleDeadline()
	}
}

// settleInterest has a receive while reading is on, a watch for the peer's end while it is off.
func (c *Channel) settleInterest() {
	in := &c.in
	if in.side != sideRead && in.end == nil && !c.mustWait() && !in.noGrant {
		if in.recv != opNone {
			return // also while it is being cancelled: its last completion comes here again
		}
		c.armRecv()
		if in.recv != opNone || !c.active() {
			return
		}
	}
	if in.recv != opNone {
		if in.recv != opCanceling {
			in.recv = opCanceling
			c.loop.Submit(transport.Op{
				Kind: transport.Cancel, Token: c.token(transport.Cancel),
				Handle: c.hnd, Target: transport.Recv,
			})
		}
		return
	}
	if in.watch == opNone && in.side != sideGone && in.end == nil {
		in.watch = opArmed
		c.loop.Submit(transport.Op{Kind: transport.WatchClose, Token: c.token(transport.WatchClose), Handle: c.hnd})
	}
}

// armRecv asks for a grant and submits a receive for it.
func (c *Channel) armRecv() {
	in := &c.in
	n, retry := c.pipe.ReadGrant()
	n = min(n, maxGrantBytes)
	pay := min(n, int(in.debt))
	in.debt -= int32(pay)
	n -= pay
	if n <= 0 {
		if retry <= 0 && pay > 0 {
			c.resumeLater() // asks again; each asking pays, so this ends
			return
		}
		in.noGrant = true
		if retry > 0 {
			c.deadline(func(m *rare) **loop.Timer { return &m.grant }, c.askGrant).Reset(retry)
		}
		return
	}
	if in.watch == opArmed {
		in.watch = opCanceling
		c.loop.Submit(transport.Op{
			Kind: transport.Cancel, Token: c.token(transport.Cancel),
			Handle: c.hnd, Target: transport.WatchClose,
		})
	}
	in.recv = opArmed
	in.armedLimit, in.armedGot = int32(n), 0
	c.loop.Submit(transport.Op{Kind: transport.Recv, Token: c.token(transport.Recv), Handle: c.hnd, Limit: n})
}

// resume hands out what was held back, oldest first, and arms the receive; it stops when a handler pauses again.
func (c *Channel) resume() {
	in := &c.in
	if !c.active() || !c.pipe.Pipeline().Reading() {
		return
	}
	if !c.pipe.FireResume() {
		c.pipe.Pipeline().FireReadComplete() // decoders may have gone on before somebody paused again
		return
	}
	for len(in.stash) > 0 && c.pipe.Pipeline().Reading() && c.active() {
		// It stays in the stash until the handlers have returned: a panic on the way finds it there.
		b := in.stash[0]
		c.pipe.Pipeline().FireRead(b)
		in.stash = in.stash[1:]
		b.Release()
	}
	if len(in.stash) == 0 && in.end == nil {
		in.held = &c.cfg.none // from open to active nothing is discarded
	}
	c.pipe.Pipeline().FireReadComplete()
	if in.end != nil && !c.mustWait() && c.active() {
		end := in.end
		in.held = &c.cfg.none
		c.endInput(end)
	}
	c.settleReading()
}

// endInput tells the handlers that the peer has finished sending, or closes after an error.
func (c *Channel) endInput(err error) {
	if c.out.side == sideFailed {
		c.Abort(c.rare.failed)
		return
	}
	if !errors.Is(err, io.EOF) {
		c.abort(&opError{"receive", err}, !errors.Is(err, syscall.ECONNRESET))
		return
	}
	c.in.side = sideRead // from now on only a break counts
	if !c.pipe.FireReadClosed() {
		c.closeOrderly()
		return
	}
	c.closeWhenBothClosed()
}

func (c *Channel) completeWatch(cp *transport.Completion) {
	in := &c.in
	in.watch = opNone
	if !c.active() {
		return
	}
	if cp.Err != nil {
		if !errors.Is(cp.Err, transport.ErrCanceled) {
			c.Abort(&opError{"watch", cp.Err})
			return
		}
		c.settleReading()
		return
	}
	switch {
	// both directions are closed: the handlers have been asked to close
	case in.side == sideRead && c.out.side == sideFinSent:
	case in.side == sideRead:
		c.Abort(ErrPeerGone)
	case in.recv != opNone: // the receive will find it out itself
	default:
		in.side = sideGone
		c.settleDeadline()
	}
}

// settleDeadline runs the clock while data, or the end, of a peer that has gone waits for reading to be resumed, or
// granted.
func (c *Channel) settleDeadline() {
	in := &c.in
	waits := in.side != sideRead && (in.side == sideGone || in.end != nil) && (c.mustWait() || in.noGrant)
	if waits == in.counting {
		return
	}
	in.counting = waits
	t := c.deadline(func(m *rare) **loop.Timer { return &m.paused }, func() {
		if c.active() { // a close has its own
			c.Abort(ErrPausedClose)
		}
	})
	if waits {
		t.Reset(c.cfg.PausedCloseTimeout)
	} else {
		t.Stop()
	}
}

// sentSome starts that clock anew: a peer that takes what is sent has not gone, and what it takes may end the pause.
// Where the kernel never had to wait for it, that says nothing of the peer.
func (c *Channel) sentSome() {
	if c.in.counting && c.out.stalled {
		c.rare.paused.Reset(c.cfg.PausedCloseTimeout)
	}
}

// discard throws away input while closing.
func (c *Channel) discard(cp *transport.Completion) {
	h := c.keepInput()
	if c.out.side == sideFinSent {
		h.discarded += cp.N // until then the peer may have reasons to send, and the deadline bounds that
	}
	if !cp.More && cp.Err != nil && !errors.Is(cp.Err, transport.ErrCanceled) {
		h.end = cp.Err
	}
	c.dirty()
}

// dropInput releases what was held back.
func (c *Channel) dropInput() {
	for _, b := range c.in.stash {
		b.Release()
	}
	c.in.held = &c.cfg.none
}
