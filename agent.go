package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// errPanicked answers a call whose function panicked; the loop has logged the panic.
var errPanicked = errors.New("panicked")

// agent does on one loop what other goroutines ask the engine for, and keeps its listeners and channels. Its requests
// are control messages: a full task queue does not keep a server from being shut down.
type agent struct {
	// Set before the loop starts, then immutable.
	engine *engine
	index  int
	loop   *loop.Loop
	node   loop.Node

	// Set on the loop before begin has returned, then immutable.
	kind Kind
	pool *buffer.Pool // the loop's: by it a channel's loop is recognised

	// Any goroutine.
	accepted, acceptErrors, dialed atomic.Uint64
	openAccepted, openDialed       atomic.Int64

	mu    sync.Mutex
	queue []func() // guarded by mu

	// Loop goroutine only.
	reg       loop.Registration
	gone      bool // the loop is going away
	listeners []*channel.Listener
	channels  [2]roster // by origin
	drain     drain
}

var _ loop.Completer = (*agent)(nil)

func (a *agent) init(l *loop.Loop) {
	a.loop = l
	a.node.Init(a)
}

// begin is the agent's first call.
func (a *agent) begin() error {
	reg, err := a.loop.Register(a)
	if err != nil {
		return err
	}
	a.reg = reg
	a.pool = a.loop.Pool()
	return nil
}

// do makes the loop run fn, after what the caller has asked for before. False: the loop is gone and fn will not run.
func (a *agent) do(fn func()) bool {
	a.mu.Lock()
	a.queue = append(a.queue, fn)
	a.mu.Unlock()
	return a.loop.Post(&a.node)
}

// call runs fn on the loop and answers its error, that of ctx, or loop.ErrStopped. When ctx ends the waiting, fn may still
// run. It must not be called on a loop's thread.
func (a *agent) call(ctx context.Context, fn func() error) error {
	result := make(chan error, 1)
	a.do(func() {
		err := errPanicked
		defer func() { result <- err }() // also after a panic or a Goexit
		err = fn()
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-a.loop.Done():
	}
	select {
	case err := <-result: // it was the last thing that the loop did
		return err
	default:
		return fmt.Errorf("loop %d: %w", a.index, loop.ErrStopped)
	}
}

// RunNode runs what was asked for until now; what that asks for comes in a later turn. It takes one at a time: after
// a panic, Panicked comes back for the rest.
func (a *agent) RunNode(*loop.Node) {
	a.mu.Lock()
	n := len(a.queue)
	a.mu.Unlock()
	for range n {
		a.mu.Lock()
		fn := a.queue[0]
		a.queue[0] = nil
		a.queue = a.queue[1:]
		a.mu.Unlock()
		fn()
	}
	a.mu.Lock()
	more := len(a.queue) > 0
	if !more {
		a.queue = nil
	}
	a.mu.Unlock()
	if more {
		a.loop.Post(&a.node)
	}
}

// Panicked logs the panic of a hook and goes on with the requests behind it.
func (a *agent) Panicked(v any, stack []byte) {
	a.loop.Logger().Error("weir: callback panicked", "panic", v, "stack", string(stack))
	a.loop.Post(&a.node)
}

// Abort tells that the loop goes away; when that was not asked for, the others go with it.
func (a *agent) Abort(error) {
	a.gone = true
	a.drain.stop()
	a.loop.Unregister(a.reg)
	a.engine.stop()
}

// Complete and EndTurn are not used: the agent submits nothing.
func (a *agent) Complete(*transport.Completion) {}

// EndTurn is not used.
func (a *agent) EndTurn() {}

// origin says how a channel came to be.
type origin int

const (
	fromAccept origin = iota
	fromDial
)

// joined keeps account of a new channel.
func (a *agent) joined(c *channel.Channel, from origin) {
	a.channels[from].add(c)
	if from == fromAccept {
		a.accepted.Add(1)
		a.openAccepted.Add(1)
	} else {
		a.dialed.Add(1)
		a.openDialed.Add(1)
	}
}

// left is the end of what joined began.
func (a *agent) left(c *channel.Channel, from origin) {
	a.channels[from].remove(c)
	if from == fromAccept {
		a.openAccepted.Add(-1)
	} else {
		a.openDialed.Add(-1)
	}
	a.drain.channelLeft(a)
}

// roster is a list of channels, in an order that depends only on who came and went when. A channel's Place is its index.
type roster struct {
	list []*channel.Channel
}

func (r *roster) add(c *channel.Channel) {
	c.Place = int32(len(r.list)) // a loop has less than 2^24 channels
	r.list = append(r.list, c)
}

func (r *roster) remove(c *channel.Channel) {
	i := int(c.Place)
	if i >= len(r.list) || r.list[i] != c {
		return
	}
	last := len(r.list) - 1
	r.list[i] = r.list[last]
	r.list[i].Place = int32(i)
	r.list[last] = nil
	r.list = r.list[:last]
}
