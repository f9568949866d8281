package pipeline

import (
	"net"

	"github.com/weirnet/weir/buffer"
)

const (
	// MaxHandlers is how many handlers a pipeline holds: one bit each in its sets.
	MaxHandlers = 62
	// DefaultGrant is how many bytes may be read at a time where no GrantHandler says otherwise.
	DefaultGrant = 256 << 10
)

// Pipeline is the chain of a channel's handlers, as handlers and Init functions see it. It belongs to the channel's
// loop. What only the channel may do with it is in Driver.
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
	life       Life

	// end stands before all handlers and behind them: the chain is a ring. What comes to it from the handlers has come
	// through, inbound or outbound.
	end Context
}

// Life is where a channel stands in its life. The pipeline keeps it, because handlers ask at every message whether the
// channel is open; the channel moves it, onward only.
type Life uint8

const (
	LifeStarting Life = iota // connected; Init and Active not yet run
	LifeActive               // open: each direction may end on its own
	LifeClosing              // sends what is queued, then waits for the peer
	LifeEnding               // the transport closes the socket
	LifeClosed               // gone: everything returns ErrClosed
)

// out is what a Context has appended and not yet written through the WriteHandlers before it.
type out struct {
	ctx  *Context
	buf  *buffer.Buf // owned
	held int         // of it, counted as pending
	age  uint32      // when it was opened; what is opened while one is written through gets that one's
}

type pipelineState uint8

const (
	firedActive pipelineState = 1 << iota
	firedInactive
	emptied // RemoveAll: nothing can be added any more
	asking  // the handlers are being asked whether they mind an end
	unkept  // such a question came through to the tail meanwhile
	flushed // a flush came through to the head
)

// Open is false from the channel's Close or Abort on.
func (p *Pipeline) Open() bool { return p.life <= LifeActive }

// Active is true from ChannelActive on until ChannelInactive.
func (p *Pipeline) Active() bool { return p.state&(firedActive|firedInactive) == firedActive }

// LocalAddr is the channel's own address. It is for Init functions; handlers have that of their Context.
func (p *Pipeline) LocalAddr() net.Addr { return p.ch.LocalAddr() }

// RemoteAddr is the peer's address.
func (p *Pipeline) RemoteAddr() net.Addr { return p.ch.RemoteAddr() }

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

// FireRead gives msg to the first ReadHandler, which borrows it until return.
func (p *Pipeline) FireRead(msg any) { p.end.FireRead(msg) }

// FireReadComplete tells the handlers that a batch of reads is over.
func (p *Pipeline) FireReadComplete() { p.end.FireReadComplete() }

// FireError gives err to the first ErrorHandler; where there is none, it closes the channel.
func (p *Pipeline) FireError(err error) { p.end.FireError(err) }

// FireEvent gives event to the first EventHandler.
func (p *Pipeline) FireEvent(event any) { p.end.FireEvent(event) }

// Reading is false while any Context pauses reading.
func (p *Pipeline) Reading() bool { return p.paused == 0 }

// Writable reports whether the channel is writable and no Context says otherwise.
func (p *Pipeline) Writable() bool { return p.unwritable == 0 && p.ch.Writable() }
