package weir

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// errPanicked is the error of a call whose function panicked; the loop has logged the panic.
var errPanicked = errors.New("panicked")

// worker does on one loop what other goroutines ask the engine for, and keeps its listeners and channels. Its requests
// are control messages: a full task queue does not keep a server from being shut down.
type worker struct {
	// Set before the loop starts, then immutable.
	engine  *engine
	limit   *limit        // the server's
	pending *pendingLevel // the server's
	index   int
	loop    *loop.Loop
	node    loop.Node

	// Set on the loop before begin has returned, then immutable.
	kind Kind
	pool *buffer.Pool // the loop's: by it a channel's loop is recognised

	receiver atomic.Pointer[channel.Receiver] // of what the front accepts; nil: there is no front

	// Any goroutine.
	accepted, acceptErrors, dialed atomic.Uint64
	limited                        atomic.Uint64 // how often full became true
	refused                        atomic.Uint64 // by Server.Admit
	openAccepted, openDialed       atomic.Int64
	full                           atomic.Bool // its listeners stand still because limit is reached

	mu    sync.Mutex
	queue []func() // guarded by mu
	ends  []func() // guarded by mu: what end calls
	ended bool     // guarded by mu
	asked *reply   // guarded by mu: nil when the loop has replied

	// Loop goroutine only.
	reg       loop.Registration
	gone      bool // the loop is going away
	listeners []*channel.Listener
	turn      int                                         // of the listeners
	route     func(peer netip.AddrPort) *channel.Receiver // of the front's listeners
	suspended bool                                        // by Server.Pause
	mutexOf   map[*channel.Listener]*acceptMutex
	tickets   map[*channel.Channel]*admission.Ticket
	retry     *loop.Timer
	closedLog closedLog
	readers   readers
	drain     drain

	listing  sync.Mutex      // held by the loop while it changes channels, and by others who look
	channels [2]channel.List // by origin
}

var _ loop.Completer = (*worker)(nil)

func (w *worker) init(l *loop.Loop) {
	w.loop = l
	w.node.Init(w)
}

// begin is the worker's first call.
func (w *worker) begin() error {
	reg, err := w.loop.Register(w)
	if err != nil {
		return err
	}
	w.reg = reg
	w.pool = w.loop.Pool()
	return nil
}

// do makes the loop run fn, after what the caller has asked for before. False: the loop is gone and fn will not run.
func (w *worker) do(fn func()) bool {
	w.mu.Lock()
	w.queue = append(w.queue, fn)
	w.mu.Unlock()
	return w.loop.Post(&w.node)
}

// atEnd makes end call fn, at once when it has been called.
func (w *worker) atEnd(fn func()) {
	w.mu.Lock()
	ended := w.ended
	if !ended {
		w.ends = append(w.ends, fn)
	}
	w.mu.Unlock()
	if ended {
		fn()
	}
}

// end is called once, when the loop is gone or nobody waits for it any more.
func (w *worker) end() {
	w.mu.Lock()
	ends := w.ends
	w.ends, w.ended = nil, true
	w.mu.Unlock()
	for _, fn := range ends {
		fn()
	}
}

// call runs fn on the loop and returns its error, that of ctx, or loop.ErrStopped. When ctx ends the waiting, fn may
// still run. It must not be called on a loop's thread.
func (w *worker) call(ctx context.Context, fn func() error) error {
	result := make(chan error, 1)
	w.do(func() {
		err := errPanicked
		defer func() { result <- err }() // also after a panic or a Goexit
		err = fn()
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.loop.Done():
	case <-w.engine.done: // the loop is stuck and left
	}
	select {
	case err := <-result: // it was the last thing that the loop did
		return err
	default:
		return fmt.Errorf("loop %d: %w", w.index, loop.ErrStopped)
	}
}

// RunNode runs what was asked for until now; what that asks for comes in a later turn. It takes one at a time: after
// a panic, Panicked comes back for the rest.
func (w *worker) RunNode(*loop.Node) {
	w.mu.Lock()
	n := len(w.queue)
	w.mu.Unlock()
	for range n {
		w.mu.Lock()
		fn := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		w.mu.Unlock()
		fn()
	}
	w.mu.Lock()
	more := len(w.queue) > 0
	if !more {
		w.queue = nil
	}
	w.mu.Unlock()
	if more {
		w.loop.Post(&w.node)
	}
}

// Panicked logs the panic of a hook and goes on with the requests behind it.
func (w *worker) Panicked(v any, stack []byte) {
	w.loop.Logger().Error("weir: callback panicked", "panic", v, "stack", string(stack))
	w.loop.Post(&w.node)
}

// Abort is called when the loop goes away; when that was not asked for, the others go with it.
func (w *worker) Abort(error) {
	w.gone = true
	w.drain.stop()
	w.loop.Unregister(w.reg)
	w.engine.stop()
	if b := w.engine.backend; b != nil && b.front.Load() == w.engine {
		b.stop()
	}
}

// Complete and EndTurn are not used: the worker submits nothing.
func (w *worker) Complete(*transport.Completion) {}

// EndTurn is not used.
func (w *worker) EndTurn() {}

// origin says how a channel came to be.
type origin int

const (
	fromAccept origin = iota
	fromDial
)

// added keeps account of a new channel.
func (w *worker) added(c *channel.Channel, from origin) {
	w.listing.Lock()
	w.channels[from].Add(c)
	w.listing.Unlock()
	w.watchPending(c, from)
	if from == fromAccept {
		w.accepted.Add(1)
		w.openAccepted.Add(1)
	} else {
		w.dialed.Add(1)
		w.openDialed.Add(1)
	}
}

// removed is the end of what added began.
func (w *worker) removed(c *channel.Channel, from origin) {
	w.listing.Lock()
	w.channels[from].Remove(c)
	w.listing.Unlock()
	if from == fromAccept {
		w.openAccepted.Add(-1)
		w.releaseTicket(c)
		w.giveBack()
	} else {
		w.openDialed.Add(-1)
	}
	w.drain.channelLeft(w)
}
