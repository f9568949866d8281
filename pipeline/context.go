package pipeline

import (
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/buffer"
)

// Context is one handler's place in its pipeline: through it the handler passes events on, writes, pauses reading and
// asks about its channel. It belongs to the channel's loop; other goroutines get a Ref.
//
// A Context that was removed stays usable. What it fires and writes goes to the neighbours it had when it was removed,
// or where those are gone too, to the ones they had. It can no longer pause reading or make the channel unwritable, and
// after the channel is closed its writes return ErrClosed and its events end at the tail.
type Context struct {
	// Hot: read at every event. nextRead and prevWrite lead to the next that cares. In a removed Context nextRead leads
	// to the Context itself, whose read is then a relay, and prevWrite is nil: no branch for it where it is not
	// removed.
	p         *Pipeline
	nextRead  *Context
	prevWrite *Context
	read      ReadHandler

	// Kept by the pipeline; next and prev survive the removal.
	next, prev *Context
	handler    any
	name       string
	kinds      kinds // zero once removed: it gets no more events
	index      uint8 // of its bit in the pipeline's sets
	state      contextState
}

type contextState uint8

const (
	stateRemoved contextState = 1 << iota
	stateInError              // its ErrorCaught is running
	stateInClose              // its Close is running
)

// Name is the name it was added under.
func (c *Context) Name() string { return c.name }

// Handler is the handler.
func (c *Context) Handler() any { return c.handler }

// Pipeline is the pipeline it stands or stood in.
func (c *Context) Pipeline() *Pipeline { return c.p }

// FireActive tells the next ActiveHandler that the channel is connected.
func (c *Context) FireActive() {
	n := c.nextWith(kindActive)
	if err := n.handler.(ActiveHandler).ChannelActive(n); err != nil {
		n.fail(err)
	}
}

// FireRead gives msg to the next ReadHandler, which borrows it until return. msg should be a pointer: a struct in an
// any costs an allocation.
func (c *Context) FireRead(msg any) {
	n := c.nextRead
	if err := n.read.ChannelRead(n, msg); err != nil {
		n.fail(err)
	}
}

// FireReadComplete tells the next ReadCompleteHandler that a batch of reads is over.
func (c *Context) FireReadComplete() {
	n := c.nextWith(kindReadComplete)
	if err := n.handler.(ReadCompleteHandler).ChannelReadComplete(n); err != nil {
		n.fail(err)
	}
}

// FireReadClosed tells the next ReadClosedHandler that the peer has finished sending. Where it reaches the tail, the
// channel sends what is queued and closes.
func (c *Context) FireReadClosed() {
	n := c.nextWith(kindReadClosed)
	if err := n.handler.(ReadClosedHandler).ChannelReadClosed(n); err != nil {
		n.fail(err)
	}
}

// FireInactive tells the next InactiveHandler that the channel is closed.
func (c *Context) FireInactive() {
	n := c.nextWith(kindInactive)
	if err := n.handler.(InactiveHandler).ChannelInactive(n); err != nil {
		n.fail(err)
	}
}

// FireError gives err to the next ErrorHandler; at the tail it closes the channel.
func (c *Context) FireError(err error) {
	c.next.fail(err)
}

// FireEvent gives event to the next EventHandler; at the tail it is dropped.
func (c *Context) FireEvent(event any) {
	n := c.nextWith(kindEvent)
	if err := n.handler.(EventHandler).ChannelEvent(n, event); err != nil {
		n.fail(err)
	}
}

// FireWritabilityChanged tells the next WritabilityHandler that Writable has changed.
func (c *Context) FireWritabilityChanged() {
	n := c.nextWith(kindWritability)
	if err := n.handler.(WritabilityHandler).ChannelWritabilityChanged(n); err != nil {
		n.fail(err)
	}
}

// FireShutdown tells the next ShutdownHandler that the server wants to stop; at the tail it closes the channel in an
// orderly way.
func (c *Context) FireShutdown() {
	n := c.nextWith(kindShutdown)
	if err := n.handler.(ShutdownHandler).ChannelShutdown(n); err != nil {
		n.fail(err)
	}
}

// Open is false from the channel's Close or Abort on.
func (c *Context) Open() bool { return c.p.Open() }

// Active is true from the channel's ChannelActive on until its ChannelInactive. A handler that is added later than
// ChannelActive asks it in HandlerAdded.
func (c *Context) Active() bool { return c.p.Active() }

// Cause is why the channel closes or closed; nil for an orderly close.
func (c *Context) Cause() error { return c.p.ch.Cause() }

// ID is the channel's number, unique within its process.
func (c *Context) ID() uint64 { return c.p.ch.ID() }

// LocalAddr is the channel's own address.
func (c *Context) LocalAddr() net.Addr { return c.p.ch.LocalAddr() }

// RemoteAddr is the peer's address: *net.TCPAddr, *net.UnixAddr, or neither when it is not known who the peer is. Trust
// no such peer.
func (c *Context) RemoteAddr() net.Addr { return c.p.ch.RemoteAddr() }

// RemoteAddrPort is the peer's address without an allocation; zero for Unix sockets, and when it is not known.
func (c *Context) RemoteAddrPort() netip.AddrPort { return c.p.ch.RemoteAddrPort() }

// Control runs fn with the socket's descriptor, where there is one.
func (c *Context) Control(fn func(fd uintptr) error) error { return c.p.ch.Control(fn) }

// Pool is the loop's pool.
func (c *Context) Pool() *buffer.Pool { return c.p.ch.Pool() }

// Logger is the channel's logger.
func (c *Context) Logger() *slog.Logger { return c.p.ch.Logger() }

// Now is the loop's clock: monotonic, the same throughout a turn.
func (c *Context) Now() time.Duration { return c.p.ch.Now() }

// NewTimer returns a stopped timer that runs fn on the loop. An error of fn is treated like one of an inbound method.
// It is stopped when the channel is closed, and does not run fn once the Context is removed.
func (c *Context) NewTimer(fn func(ctx *Context) error) Timer {
	return c.p.ch.NewTimer(func() { c.call(fn) })
}

// NewSignal returns a signal that any goroutine may raise and that then runs fn on the loop, once however often it was
// raised meanwhile. An error of fn is treated like one of an inbound method. fn does not run any more once the Context
// is removed or the channel closed.
func (c *Context) NewSignal(fn func(ctx *Context) error) Signal {
	return c.p.ch.NewSignal(func() { c.call(fn) })
}

// call runs a callback of the loop, unless the Context is removed.
func (c *Context) call(fn func(ctx *Context) error) {
	if c.state&stateRemoved != 0 {
		return
	}
	if err := fn(c); err != nil {
		c.fail(err)
	}
}

// Dial connects a new channel on the same loop to an IP literal and port, or a path (weir.Dialer resolves names): init
// fills its pipeline, failed runs on the loop, later, when it cannot connect. A channel that has closed gives up its
// attempts that are under way; ChannelInactive and what runs later may dial, to connect again.
func (c *Context) Dial(network, address string, init func(*Pipeline) error, failed func(error)) error {
	return c.p.ch.Dial(network, address, init, failed)
}

// Ref is what other goroutines may hold of this Context.
func (c *Context) Ref() Ref { return c.p.ch.Ref(c) }

// nextWith is the next towards the tail that has one of the interfaces. The tail has all inbound ones.
func (c *Context) nextWith(k kinds) *Context {
	n := c.next
	for n.kinds&k == 0 {
		n = n.next
	}
	return n
}

// prevWith is the next towards the head that has one of the interfaces. The head has all outbound ones.
func (c *Context) prevWith(k kinds) *Context {
	n := c.prev
	for n.kinds&k == 0 {
		n = n.prev
	}
	return n
}

// fail gives err to c's own ErrorCaught and then to the ErrorHandlers behind it, until one returns nil. A handler whose
// ErrorCaught is running is passed by: an error that it causes while it handles an error goes onward, never in circles.
func (c *Context) fail(err error) {
	end := &c.p.end
	for ; c != end; c = c.next {
		if c.kinds&kindError == 0 || c.state&stateInError != 0 {
			continue
		}
		c.state |= stateInError
		err = c.handler.(ErrorHandler).ErrorCaught(c, err)
		c.state &^= stateInError
		if err == nil {
			return
		}
	}
	c.p.uncaught(err)
}
