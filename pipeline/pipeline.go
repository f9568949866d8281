package pipeline

import (
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/invariants"
)

const (
	// MaxHandlers is how many handlers a pipeline holds: one bit each in its sets.
	MaxHandlers = 62
	// DefaultGrant is how many bytes may be read at a time where no GrantHandler says otherwise.
	DefaultGrant = 256 << 10
)

// Pipeline is the chain of a channel's handlers. A channel embeds it by value; it belongs to the channel's loop.
type Pipeline struct {
	ch Channel

	paused     uint64          // Contexts that pause reading, by index
	unwritable uint64          // Contexts that make the channel unwritable, by index
	used       uint64          // indexes taken
	outs       []out           // open output of Contexts with a WriteHandler before them, oldest first
	lastAge    uint32          // of outs
	flight     uint32          // age of the one that is being written through; what is younger waits. noFlight: none is
	watch      *pendingWatches // nil until somebody watches
	unhandled  uint64
	kinds      kinds // of all handlers together
	state      pipelineState

	// end stands before all handlers and behind them: the chain is a ring. What comes to it from the handlers has come
	// through, inbound or outbound.
	end Context
}

// out is what a Context has appended and not yet written through the WriteHandlers before it.
type out struct {
	ctx *Context
	buf *buffer.Buf // owned
	age uint32      // when it was opened; what is opened while one is written through gets that one's
}

type pipelineState uint16

const (
	firedActive pipelineState = 1 << iota
	firedInactive
	closing     // Close or Abort
	writeClosed // CloseWrite went to the channel
	emptied     // RemoveAll: nothing can be added any more
	firingReadClosed
	reachedReadClosed
	firingShutdown
	reachedShutdown
)

// Init makes p the empty pipeline of ch. It is called once, before anything else.
func (p *Pipeline) Init(ch Channel) {
	p.ch = ch
	p.flight = noFlight
	e := &p.end
	*e = Context{p: p, name: "tail", handler: end{}, read: end{}, kinds: endKinds, index: MaxHandlers}
	e.next, e.prev, e.nextRead, e.prevWrite = e, e, e, e
}

// Tail is the end of the pipeline as a Context: what is written there passes every handler. It is for the channel's
// own Ref, and never nil.
func (p *Pipeline) Tail() *Context { return &p.end }

// Open is false from the channel's Close or Abort on.
func (p *Pipeline) Open() bool { return p.state&closing == 0 }

// Closing makes Open false. It is for the channel.
func (p *Pipeline) Closing() { p.state |= closing }

// Active is true from ChannelActive on until ChannelInactive.
func (p *Pipeline) Active() bool { return p.state&(firedActive|firedInactive) == firedActive }

// Unhandled is the number of messages that reached the tail and were dropped.
func (p *Pipeline) Unhandled() uint64 { return p.unhandled }

// Write writes msg from the tail, through all WriteHandlers. It borrows msg until return.
func (p *Pipeline) Write(msg any) error { return p.end.Write(msg) }

// WriteBytes is Context.WriteBytes from the tail.
func (p *Pipeline) WriteBytes(b ...[]byte) error { return p.end.WriteBytes(b...) }

// Flush flushes from the tail, through all FlushHandlers.
func (p *Pipeline) Flush() error { return p.end.Flush() }

// Close closes from the tail, through all CloseHandlers.
func (p *Pipeline) Close() error { return p.end.Close() }

// FireActive tells the handlers, once, that the channel is connected. It is for the channel.
func (p *Pipeline) FireActive() {
	if p.state&(firedActive|firedInactive) != 0 {
		invariants.Check(false, "pipeline: Active fired in state %b", p.state)
		return
	}
	p.state |= firedActive
	p.end.FireActive()
}

// FireRead gives msg to the first ReadHandler, which borrows it until return.
func (p *Pipeline) FireRead(msg any) { p.end.FireRead(msg) }

// FireReadComplete tells the handlers that a batch of reads is over.
func (p *Pipeline) FireReadComplete() { p.end.FireReadComplete() }

// FireReadClosed tells the handlers that the peer has finished sending. It returns false when it came through to the
// tail: the channel then sends what is queued and closes. A handler that keeps the event and passes it on later closes
// the channel by that, where no other handler stands in the way. It is for the channel.
func (p *Pipeline) FireReadClosed() bool {
	return p.ask((*Context).FireReadClosed, firingReadClosed, reachedReadClosed)
}

// FireShutdown tells the handlers that the server wants to stop. It returns false when it came through to the tail: the
// channel is then closed in an orderly way. It is for the channel.
func (p *Pipeline) FireShutdown() bool {
	return p.ask((*Context).FireShutdown, firingShutdown, reachedShutdown)
}

func (p *Pipeline) ask(fire func(*Context), firing, reached pipelineState) bool {
	p.state = p.state&^reached | firing
	fire(&p.end)
	handled := p.state&reached == 0
	p.state &^= firing | reached
	return handled
}

// FireInactive tells the handlers, once and only after FireActive, that the channel is closed. It is for the channel.
func (p *Pipeline) FireInactive() {
	if p.state&firedInactive != 0 {
		invariants.Check(false, "pipeline: Inactive fired in state %b", p.state)
		return
	}
	active := p.state&firedActive != 0
	p.state |= firedInactive
	if active {
		p.end.FireInactive()
	}
}

// FireError gives err to the first ErrorHandler; where there is none, it closes the channel.
func (p *Pipeline) FireError(err error) { p.end.FireError(err) }

// FireEvent gives event to the first EventHandler.
func (p *Pipeline) FireEvent(event any) { p.end.FireEvent(event) }

// FireWritabilityChanged tells the handlers that Writable has changed. It is for the channel.
func (p *Pipeline) FireWritabilityChanged() { p.end.FireWritabilityChanged() }

// FireFlush sends the flush at the end of a turn through the FlushHandlers; it ends in Channel.Flush unless one of them
// holds it back. An error goes to the error handlers: nobody called. It is for the channel.
func (p *Pipeline) FireFlush() {
	if err := p.end.Flush(); err != nil && p.Open() {
		p.end.FireError(err)
	}
}

// HasFlushHandlers reports whether FireFlush does anything but call Channel.Flush.
func (p *Pipeline) HasFlushHandlers() bool { return p.kinds&kindFlush != 0 }

// Reading is false while any Context pauses reading.
func (p *Pipeline) Reading() bool { return p.paused == 0 }

// Writable reports whether the channel is writable and no Context says otherwise.
func (p *Pipeline) Writable() bool { return p.unwritable == 0 && p.ch.Writable() }

// FireResume lets the ResumeHandlers go on, tail to head. It returns false when one of them paused reading again or
// closed the channel; the rest then wait for the next resume. It is for the channel, from a loop task.
func (p *Pipeline) FireResume() bool {
	for c := p.end.prev; ; c = c.prev {
		if p.paused != 0 || !p.Open() {
			return false
		}
		if c == &p.end {
			return true
		}
		if c.kinds&kindResume == 0 {
			continue
		}
		if err := c.handler.(ResumeHandler).ChannelResume(c); err != nil {
			c.fail(err)
		}
	}
}

// ReadGrant asks the GrantHandlers, head to tail, how many bytes may be read. The smallest one wins, DefaultGrant where
// nobody is asked; negative ones count as zero. With a grant of zero, retry is the shortest positive wait that one of
// those who returned zero gave, or zero when none did: then only GrantChanged makes it worth asking again. It is for
// the channel.
func (p *Pipeline) ReadGrant() (n int, retry time.Duration) {
	if p.kinds&kindGrant == 0 {
		return DefaultGrant, 0
	}
	n = -1
	for c := p.end.next; c != &p.end; c = c.next {
		if c.kinds&kindGrant == 0 {
			continue
		}
		k, after := c.handler.(GrantHandler).ReadGrant(c)
		k = max(k, 0)
		if n < 0 || k < n {
			n = k
		}
		if k == 0 && after > 0 && (retry == 0 || after < retry) {
			retry = after
		}
	}
	return max(n, 0), retry
}
