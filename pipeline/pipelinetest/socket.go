package pipelinetest

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// socket is how the pipeline sees a Channel.
type socket struct{ c *Channel }

var (
	_ pipeline.Channel           = socket{}
	_ pipeline.UnhandledObserver = socket{}
)

// Write queues msg. A *buffer.Buf is retained: takes its own reference, the caller keeps its own.
func (s socket) Write(msg any) error { return s.c.write(msg) }

// Tail answers the open block at the end of the queue.
func (s socket) Tail(n int) *buffer.Buf { return s.c.tailBlock(n) }

// Flush sends what is queued now.
func (s socket) Flush() {
	s.c.op("flush")
	if s.c.state == stateActive {
		s.c.send()
	}
}

// Flushed calls fn from the loop when the kernel has everything queued until now, or never will.
func (s socket) Flushed(fn func(error)) {
	o := &s.c.out
	o.waits = append(o.waits, flushed{at: o.sent + uint64(s.c.Queued()), fn: fn})
	s.c.dirty = true
}

// CloseWrite sends what is queued, then FIN.
func (s socket) CloseWrite() error {
	c := s.c
	if !c.Open() || c.out.finWanted {
		return c.closedError()
	}
	c.op("close-write")
	c.pipe.FireFlush()
	c.out.finWanted = true
	s.WantFlush()
	return nil
}

// Close sends what is queued, then FIN, and closes.
func (s socket) Close(cause error) {
	c := s.c
	if cause != nil && c.uncaught == nil && (c.Open() || !errors.Is(cause, pipeline.ErrClosed)) {
		c.uncaught = cause
	}
	if c.state >= stateClosing || c.closeEntered {
		return
	}
	c.closeEntered = true
	c.op("close")
	if c.state == stateOpen {
		c.cause = cause
		c.leave(stateClosing)
		c.finishDue = true
		return
	}
	c.pipe.FireFlush()
	if c.state != stateActive {
		return // aborted by one of them
	}
	if c.cause == nil {
		c.cause = cause
	}
	c.leave(stateClosing)
	c.in.drop()
	c.closing.Reset(c.cfg.CloseTimeout)
	c.dirty = true
}

// Abort closes at once.
func (s socket) Abort(cause error) {
	c := s.c
	if c.state == stateClosed || c.finishDue {
		return
	}
	c.op("abort")
	if c.cause == nil {
		c.cause = cause
	}
	c.leave(stateClosing)
	c.finishDue = true
}

// StopReading works at once.
func (s socket) StopReading() {
	s.c.op("stop-reading")
	s.c.in.armed = false
}

// StartReading posts the resume.
func (s socket) StartReading() {
	s.c.op("start-reading")
	s.c.resumeDue = true
}

// GrantChanged makes a grant of nothing be asked for again.
func (s socket) GrantChanged() {
	if s.c.in.noGrant {
		s.c.in.noGrant = false
		s.c.dirty = true
	}
}

// Hold adds n bytes to Pending.
func (s socket) Hold(n int) {
	s.c.out.holding += n
	if s.c.out.holding < 0 {
		s.c.l.t.Errorf("pipelinetest: Hold(%d) gave back %d bytes more than were held", n, -s.c.out.holding)
		s.c.out.holding = 0
	}
	s.c.judgePending()
	s.c.dirty = true
}

// Pending is what is queued, held, posted and pretended, in payload bytes.
func (s socket) Pending() int { return s.c.Pending() }

// Outgoing is how far what is on its way out goes.
func (s socket) Outgoing() uint64 {
	o := &s.c.out
	return o.sent + uint64(s.c.Queued()+o.holding+o.extra) + uint64(s.c.post.bytes.Load())
}

// Writable tells whether Pending is below the watermarks and the channel takes writes.
func (s socket) Writable() bool {
	s.c.judgePending()
	return s.c.out.below && s.c.Open() && !s.c.out.finWanted
}

// WritabilityMayHaveChanged makes the end of the turn look.
func (s socket) WritabilityMayHaveChanged() {
	s.c.out.dipped = s.c.out.dipped || !s.c.pipe.Pipeline().Writable()
	s.c.dirty = true
}

// WantFlush makes the end of the turn flush.
func (s socket) WantFlush() {
	s.c.out.flush = true
	s.c.dirty = true
}

// Cause is why the channel closes or closed.
func (s socket) Cause() error { return s.c.cause }

// ID counts the channels of a loop from 1.
func (s socket) ID() uint64 { return s.c.id }

// LocalAddr is Config.LocalAddr.
func (s socket) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(s.c.cfg.LocalAddr) }

// RemoteAddr is Config.RemoteAddr.
func (s socket) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.c.cfg.RemoteAddr) }

// RemoteAddrPort is Config.RemoteAddr.
func (s socket) RemoteAddrPort() netip.AddrPort { return s.c.cfg.RemoteAddr }

// Control answers errors.ErrUnsupported: there is no descriptor.
func (s socket) Control(func(uintptr) error) error { return errors.ErrUnsupported }

// Pool is the loop's pool.
func (s socket) Pool() *buffer.Pool { return s.c.l.pool }

// Logger is Config.Logger.
func (s socket) Logger() *slog.Logger { return s.c.cfg.Logger }

// Now is the fake clock.
func (s socket) Now() time.Duration { return s.c.l.now }

// NewTimer answers a stopped timer on the fake clock.
func (s socket) NewTimer(fn func()) pipeline.Timer {
	c := s.c
	t := c.l.newTimer(func() {
		if c.state != stateClosed {
			fn()
		}
	})
	c.timers = append(c.timers, t)
	return t
}

// NewSignal answers a signal that is not raised.
func (s socket) NewSignal(fn func()) pipeline.Signal { return &signal{c: s.c, fn: fn} }

// Dial records the wish to connect.
func (s socket) Dial(network, address string, init func(*pipeline.Pipeline) error, failed func(error)) error {
	s.c.dials = append(s.c.dials, &Dial{l: s.c.l, Network: network, Address: address, init: init, failed: failed})
	return nil
}

// Ref answers what other goroutines may hold of ctx.
func (s socket) Ref(ctx *pipeline.Context) pipeline.Ref { return ref{p: s.c.post, ctx: ctx} }

// Unhandled records a message that reached the tail. It borrows msg until return.
func (s socket) Unhandled(msg any) {
	switch m := msg.(type) {
	case *buffer.Buf:
		msg = append([]byte{}, m.Bytes()...)
	case []byte:
		msg = append([]byte{}, m...)
	}
	s.c.inbound = append(s.c.inbound, msg)
}

// UnhandledEvent records an event that reached the tail.
func (s socket) UnhandledEvent(event any) { s.c.events = append(s.c.events, event) }
