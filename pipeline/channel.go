package pipeline

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/weirnet/weir/buffer"
)

// Channel is what a pipeline needs of the channel it belongs to; package channel implements it on sockets and
// pipelinetest without. All methods run on the loop.
type Channel interface {
	// Write queues msg at the head of the pipeline: *buffer.Buf (retains), []byte or string (copied), FileRegion (by
	// pointer). Other types are ErrMessageType. After close it is ErrClosed.
	Write(msg any) error
	// Tail returns the open block at the end of the write queue, with room for n bytes or more (n up to 64 KiB): what
	// is appended to it is queued. It is valid until the next call of any method. Nil when the channel cannot be
	// written to.
	Tail(n int) *buffer.Buf
	// WriteErr returns nil, or why nothing may be written: ErrClosed with the cause of it.
	WriteErr() error
	// Flush sends what is queued now instead of at the end of the turn. The channel calls FlushHandlers only for its
	// own flush at the end of the turn.
	Flush()
	// Flushed calls fn exactly once, from the loop: with nil when the kernel has taken everything queued until now, or
	// with the error that prevented it.
	Flushed(fn func(error))
	// CloseWrite sends what is queued, then FIN.
	CloseWrite() error
	// Close sends what is queued, then FIN, discards input until the peer's FIN, a byte limit or a deadline, and
	// closes. A nil cause is an orderly close.
	Close(cause error)
	// Abort closes at once.
	Abort(cause error)

	// StopReading and StartReading follow the pipeline's set of reasons: it became non-empty, it became empty. Stopping
	// works at once. StartReading posts a loop task that calls Driver.FireResume and then arms the receive.
	StopReading()
	StartReading()
	// GrantChanged makes a grant of zero be asked for again.
	GrantChanged()

	// Hold adds n bytes (negative: subtracts) to Pending.
	Hold(n int)
	// Pending is the memory in bytes that is held for data on its way out.
	Pending() int
	// Outgoing is how far what is on its way out goes: it grows by each byte that is written, posted or held. It may
	// count from anew where nothing is queued.
	Outgoing() uint64
	// Writable reports whether Pending is below the watermarks (with hysteresis) and the channel is open for writing.
	Writable() bool
	// WritabilityMayHaveChanged makes the channel compare Pipeline.Writable with what it last told the handlers, at the
	// end of the turn, and fire when it differs.
	WritabilityMayHaveChanged()
	// WantFlush makes the end of this turn a flush, also when nothing is queued: it calls Driver.FireFlush.
	WantFlush()

	// Acked returns a mark that changes whenever the peer has acknowledged more of what was sent, and how many bytes it
	// has not acknowledged yet.
	Acked() (mark uint64, left int)

	// Cause is why the channel closes or closed; nil for an orderly close.
	Cause() error
	ID() uint64
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	RemoteAddrPort() netip.AddrPort
	Control(fn func(fd uintptr) error) error
	Pool() *buffer.Pool
	Logger() *slog.Logger
	Now() time.Duration
	// NewTimer returns a stopped timer whose fn runs on the loop; it is stopped when the channel is closed.
	NewTimer(fn func()) Timer
	// NewSignal returns a signal whose fn runs on the loop; not any more when the channel is closed.
	NewSignal(fn func()) Signal
	// Dial connects a new channel on the same loop; failed runs on the loop when it cannot.
	Dial(network, address string, init func(*Pipeline) error, failed func(error)) error
	// Ref returns what other goroutines may hold of ctx.
	Ref(ctx *Context) Ref
}

// Timer is a timer of the loop. It belongs to the loop.
type Timer interface {
	// Reset makes it fire once, after d.
	Reset(d time.Duration)
	// Stop reports whether it was going to fire.
	Stop() bool
}

// Signal is how another goroutine, or another loop, makes a loop look at something: that a level fell, that a result is
// there.
type Signal interface {
	// Raise has the signal's function run on the loop, after what the caller has done before. Signals that were raised
	// several times before that are one. It never fails for lack of room, never waits and never allocates; when the
	// channel is closed it does nothing. Any goroutine, at any time.
	Raise()
}

// Ref is what goroutines other than the loop may hold of a Context. Its methods may be called by any goroutine at any
// time, also long after the channel is closed (ErrClosed). What they ask for is posted to the loop and done in the
// caller's order, hence, when called on the loop itself, after what a Context does now.
type Ref interface {
	// TryWrite copies p and writes it as a []byte message from the Ref's Context. ErrFull when the channel's pending
	// bytes would exceed its limit: nothing was written.
	TryWrite(p []byte) error
	// Write is TryWrite that waits for room until ctx is done. On a loop's thread, where waiting would stop the loop,
	// it returns ErrWouldDeadlock when there is no room.
	Write(ctx context.Context, p []byte) error
	// Execute runs fn on the loop with the Context. ErrFull when too many tasks of this channel wait.
	Execute(fn func(ctx *Context)) error
	// Close closes the channel in an orderly way, after what was posted before. It never fails for lack of room.
	Close() error
	// Pending and Writable are those of the Context, as of now, posted bytes included.
	Pending() int
	Writable() bool
	// Closed is closed when the channel is.
	Closed() <-chan struct{}
	ID() uint64
}

// FileRegion is a message for Write: a run of bytes of an open file, sent by the kernel without passing through memory.
// The file must stay open until Flushed or close. It is written by pointer.
type FileRegion struct {
	File   *os.File
	Offset int64
	Length int64
	// Done, when set, runs on the loop exactly once when the region has been sent or given up. A Write that failed has
	// not taken the region, and does not call it.
	Done func(error)
}
