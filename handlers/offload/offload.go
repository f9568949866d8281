package offload

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// What done gets for messages whose work did not end on its own; pipeline.ErrClosed says that the channel was closed
// before.
var (
	// ErrRemoved says that the handler was removed before the work had ended.
	ErrRemoved = errors.New("offload: handler removed")
	// ErrGoexit says that the work called runtime.Goexit.
	ErrGoexit = errors.New("offload: work called runtime.Goexit")
)

// DefaultMaxInFlight is how many messages of a channel may be between ChannelRead and done.
const DefaultMaxInFlight = 64

// keptTasks is for how many messages a channel keeps memory when they are done.
const keptTasks = 16

// PanicError is what done gets for a work that panicked.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine, as runtime/debug.Stack formats it
}

// Error tells the value. The stack is for whoever logs it.
func (e *PanicError) Error() string { return fmt.Sprintf("offload: work panicked: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Config configures a handler for messages of type In, of which Detach makes an M, of which Work makes an R. The
// functions have to be set.
type Config[In, M, R any] struct {
	// Detach returns what Work gets of a message, and how many bytes it holds, for the pool's bound. It borrows in
	// until return, on the loop: in a decoder's message, or the bytes it points into, is used again afterwards, so what
	// it returns shares no memory with it that changes.
	Detach func(in In) (m M, bytes int)
	// Work runs on a goroutine of the pool, at the same time as others of the same channel. Its context is done when
	// the channel is closed; cause is then pipeline.ErrClosed or ErrRemoved.
	Work func(ctx context.Context, m M) (R, error)
	// Done runs on the loop, once for each message, in the order of the messages unless Unordered is set. err is that of
	// Work, a *PanicError, ErrGoexit, ErrPoolClosed, ErrRemoved or pipeline.ErrClosed; with the last there is no use in
	// writing. An error that it returns goes to the error handlers behind this one.
	Done func(ctx *pipeline.Context, r R, err error) error
	// Unordered makes Done run as soon as a work has ended, so that a slow one holds no fast one up. It is for protocols
	// whose replies say what they belong to.
	Unordered bool
	// MaxInFlight is how many messages may be between ChannelRead and Done. At it reading is paused, at half of it it
	// goes on. Zero means 64.
	MaxInFlight int
}

// Detacher is a message that can make a copy of itself that lives on its own.
type Detacher[M any] interface {
	// Detach returns a copy that shares no memory with the message, and how many bytes it holds.
	Detach() (m M, bytes int)
}

// Handler offloads the messages of one channel. It belongs to its channel's loop and stands in one pipeline, once.
// Messages that are not of type In are passed on at once.
type Handler[In, M, R any] struct {
	cfg    Config[In, M, R] // set in New, then immutable
	link   link
	ctx    context.Context // of the works; made with the first
	cancel context.CancelCauseFunc

	flight    flight[M, R]
	held      int           // how many of them, the last ones, the pool does not have
	firstHeld *task[M, R]   // the first of those
	waits     bool          // it stands in the pool's queue for room
	done      stack[M, R]   // where tasks go that have ended, when Unordered
	spare     []*task[M, R] // at most keptTasks

	paused     bool
	home       *pipeline.Context // its place, also when it has left
	ended      error             // why nothing is worked any more
	readClosed bool              // ChannelReadClosed waits for the last result
	shutdown   bool              // ChannelShutdown does
}

var (
	_ pipeline.AddedHandler      = (*Handler[any, any, any])(nil)
	_ pipeline.ReadHandler       = (*Handler[any, any, any])(nil)
	_ pipeline.ReadClosedHandler = (*Handler[any, any, any])(nil)
	_ pipeline.ShutdownHandler   = (*Handler[any, any, any])(nil)
	_ pipeline.InactiveHandler   = (*Handler[any, any, any])(nil)
	_ pipeline.RemovedHandler    = (*Handler[any, any, any])(nil)
)

// New returns a handler for one channel, whose works run in pool.
func New[In, M, R any](pool *Pool, cfg Config[In, M, R]) (*Handler[In, M, R], error) {
	if pool == nil || cfg.Detach == nil || cfg.Work == nil || cfg.Done == nil {
		return nil, fmt.Errorf("%w: pool, Detach, Work and Done have to be set", ErrConfig)
	}
	if cfg.MaxInFlight < 0 {
		return nil, fmt.Errorf("%w: %d messages in flight", ErrConfig, cfg.MaxInFlight)
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	h := &Handler[In, M, R]{cfg: cfg}
	h.link.pool = pool
	return h, nil
}

// Bytes is New for frames: work gets a copy of each Buf's bytes.
func Bytes[R any](pool *Pool, work func(context.Context, []byte) (R, error),
	done func(*pipeline.Context, R, error) error,
) (*Handler[*buffer.Buf, []byte, R], error) {
	return New(pool, Config[*buffer.Buf, []byte, R]{Detach: copyBytes, Work: work, Done: done})
}

// Func is New for messages that know how to detach themselves.
func Func[M Detacher[M], R any](pool *Pool, work func(context.Context, M) (R, error),
	done func(*pipeline.Context, R, error) error,
) (*Handler[M, M, R], error) {
	return New(pool, Config[M, M, R]{Detach: func(in M) (M, int) { return in.Detach() }, Work: work, Done: done})
}

// copyBytes borrows b until return.
func copyBytes(b *buffer.Buf) ([]byte, int) {
	p := append(make([]byte, 0, b.Len()), b.Bytes()...)
	return p, len(p)
}

// HandlerAdded makes the signal that results are told by.
func (h *Handler[In, M, R]) HandlerAdded(ctx *pipeline.Context) error {
	if h.home != nil {
		return fmt.Errorf("%w: a handler stands in one pipeline, once", ErrConfig)
	}
	h.home = ctx
	h.link.signal = ctx.NewSignal(h.turn)
	return nil
}

// ChannelRead borrows msg until return.
func (h *Handler[In, M, R]) ChannelRead(ctx *pipeline.Context, msg any) error {
	in, ok := msg.(In)
	if !ok {
		ctx.FireRead(msg)
		return nil
	}
	if h.ended != nil {
		return nil // a decoder that goes on after the close
	}
	if h.ctx == nil {
		h.ctx, h.cancel = context.WithCancelCause(h.link.pool.ctx)
	}
	t := h.newTask()
	t.ctx = h.ctx
	t.in, t.bytes = h.cfg.Detach(in)
	h.flight.push(t)
	if h.held++; h.held == 1 {
		h.firstHeld = t
	}
	h.offer()
	h.pauseOrResume(ctx)
	return nil
}

// ChannelReadClosed goes on when everything that came before is done.
func (h *Handler[In, M, R]) ChannelReadClosed(ctx *pipeline.Context) error {
	if h.flight.n == 0 {
		ctx.FireReadClosed()
		return nil
	}
	h.readClosed = true
	return nil
}

// ChannelShutdown stops reading and goes on when everything that was read is done.
func (h *Handler[In, M, R]) ChannelShutdown(ctx *pipeline.Context) error {
	if h.flight.n == 0 {
		ctx.FireShutdown()
		return nil
	}
	h.shutdown = true
	h.pauseOrResume(ctx)
	return nil
}

// ChannelInactive gives up what is under way.
func (h *Handler[In, M, R]) ChannelInactive(ctx *pipeline.Context) error {
	h.end(ctx, pipeline.ErrClosed)
	ctx.FireInactive()
	return nil
}

// HandlerRemoved gives up what is under way. An event that waited for it goes on.
func (h *Handler[In, M, R]) HandlerRemoved(ctx *pipeline.Context) error {
	if ctx != h.home {
		return nil // it was refused a second place
	}
	if !ctx.Open() {
		h.end(ctx, pipeline.ErrClosed)
		return nil
	}
	h.end(ctx, ErrRemoved)
	h.passOn(ctx)
	return nil
}

// turn does what goroutines of the pool have raised the signal for.
func (h *Handler[In, M, R]) turn(ctx *pipeline.Context) error {
	if h.ended != nil {
		return nil
	}
	// What is ready meanwhile has its turn later, like other channels.
	if h.cfg.Unordered {
		h.finishEnded(ctx)
	} else {
		h.finishInOrder(ctx)
	}
	if h.ended != nil {
		return nil
	}
	h.settle()
	h.offer()
	h.pauseOrResume(ctx)
	if h.flight.n == 0 {
		h.passOn(ctx)
	}
	return nil
}

// finishInOrder gives done the results that are ready, as far as those of the messages before are.
func (h *Handler[In, M, R]) finishInOrder(ctx *pipeline.Context) {
	for n := h.flight.n; n > 0 && h.ended == nil; n-- {
		t := h.flight.first
		ready := t.state.Load() == taskDone // before settle: a message in the pool is not to be taken for one held back
		h.settle()
		if !ready {
			return
		}
		h.finish(ctx, t)
	}
}

// finishEnded gives done the results that are ready.
func (h *Handler[In, M, R]) finishEnded(ctx *pipeline.Context) {
	t := h.done.take()
	h.settle() // behind take, for the same reason
	for t != nil && h.ended == nil {
		next := t.under // finish may use t again
		h.finish(ctx, t)
		t = next
	}
}

// settle notices that the message that waited for room has it.
func (h *Handler[In, M, R]) settle() {
	if h.waits && h.link.granted.Load() {
		h.link.granted.Store(false)
		h.waits = false
		h.sent()
	}
}

// sent notes that the pool has the first message that was held back.
func (h *Handler[In, M, R]) sent() {
	h.held--
	h.firstHeld = h.firstHeld.next
}

// offer gives the pool what is held back, as far as there is room.
func (h *Handler[In, M, R]) offer() {
	for h.held > 0 && !h.waits && h.flight.n-h.held < h.cfg.MaxInFlight {
		if !h.link.pool.offer(&h.link, h.firstHeld, h.firstHeld.bytes) {
			h.waits = true
			return
		}
		h.sent()
	}
}

// pauseOrResume brings reading in line with the levels.
func (h *Handler[In, M, R]) pauseOrResume(ctx *pipeline.Context) {
	switch {
	case h.held > 0 || h.shutdown || h.flight.n >= h.cfg.MaxInFlight:
		if !h.paused {
			h.paused = true
			ctx.Pause()
		}
	case h.paused && h.flight.n <= h.cfg.MaxInFlight/2:
		h.paused = false
		ctx.Resume()
	}
}

// passOn passes on the event that has waited for the last result.
func (h *Handler[In, M, R]) passOn(ctx *pipeline.Context) {
	if h.readClosed {
		h.readClosed = false
		ctx.FireReadClosed()
	}
	if h.shutdown {
		h.shutdown = false
		ctx.FireShutdown()
		if h.ended == nil {
			h.pauseOrResume(ctx) // for a handler that keeps the event and reads on
		}
	}
}

// end gives up what is under way: done gets what is ready, and cause for the rest. After a panic of done it goes on
// with the next when it is called again.
func (h *Handler[In, M, R]) end(ctx *pipeline.Context, cause error) {
	if h.ended == nil {
		h.ended = cause
		h.spare = nil
		if h.waits {
			h.link.pool.withdraw(&h.link)
		}
		if h.cancel != nil {
			defer h.cancel(cause) // after done was told: a work that ends by it has no result of its own
		}
	}
	for h.flight.n > 0 {
		t := h.flight.first
		t.abandon(h.ended)
		if t.state.Load() == taskDone {
			h.finish(ctx, t)
			continue
		}
		h.flight.remove(t)
		var none R
		h.tell(ctx, none, h.ended) // its work runs: it belongs to that
	}
}

// finish gives done the result of t, which is in flight and has ended, and keeps its memory for another message.
func (h *Handler[In, M, R]) finish(ctx *pipeline.Context, t *task[M, R]) {
	h.flight.remove(t)
	r, err := t.out, t.err
	if h.ended == nil && len(h.spare) < keptTasks { // else the pool may still hold it
		t.clear()
		h.spare = append(h.spare, t)
	}
	h.tell(ctx, r, err)
}

func (h *Handler[In, M, R]) tell(ctx *pipeline.Context, r R, err error) {
	if err := h.cfg.Done(ctx, r, err); err != nil {
		ctx.FireError(err)
	}
}

func (h *Handler[In, M, R]) newTask() *task[M, R] {
	if n := len(h.spare); n > 0 {
		t := h.spare[n-1]
		h.spare = h.spare[:n-1]
		return t
	}
	t := &task[M, R]{work: h.cfg.Work, link: &h.link}
	if h.cfg.Unordered {
		t.ended = &h.done
	}
	return t
}
