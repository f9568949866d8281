package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// engineConfig is what a Server's and a Dialer's loops have in common.
type engineConfig struct {
	loops         int
	kind          Kind
	maxTasks      int
	watchdogAfter time.Duration
	pin           bool
	connections   int // the most
	pendingBytes  int // the most
	logClosed     LogClosed
	logger        *slog.Logger
	openers       []opener
	backend       *engine // of a front: where its connections go
}

// engine is the loops of a Server or a Dialer, with a worker on each. Any goroutine may call its methods.
//
//	running ──drain──▶ draining ──┐
//	   └──────────────────stop────┴──▶ stopping ──▶ done
type engine struct {
	// Set in startEngine, then immutable.
	cfg     engineConfig
	backend *engine // nil but for a front
	limit   limit
	pending pendingLevel
	group   *loop.Group
	workers []*worker
	done    chan struct{} // closed when all loops are gone

	stopped chan struct{} // closed by stop

	err error // why a loop has failed, or which is stuck; valid once done is closed

	stopOnce sync.Once

	front    atomic.Pointer[engine] // accepts for this one; nil: none does
	frontMu  sync.Mutex             // held while the front starts
	draining bool                   // guarded by frontMu: no front starts any more
	paused   bool                   // guarded by frontMu: Server.Pause

	mutexMu sync.Mutex
	mutexes []*acceptMutex // guarded by mutexMu

	drainOnce sync.Once
	drained   atomic.Bool // the loops were stopped because no channel was left
}

// startEngine starts the loops and returns when all transports are open and all workers at work. The caller joins.
func startEngine(cfg engineConfig) (*engine, error) {
	if cfg.loops > MaxLoops {
		return nil, fmt.Errorf("%w: Loops %d, at most %d", ErrConfig, cfg.loops, MaxLoops)
	}
	openers, err := newFallback(cfg)
	if err != nil {
		return nil, err
	}
	n := cfg.loops
	if n == 0 {
		n = defaultLoops()
	}
	e := &engine{
		cfg: cfg, backend: cfg.backend,
		done: make(chan struct{}), stopped: make(chan struct{}), workers: make([]*worker, n),
	}
	e.limit.most = int64(cfg.connections)
	e.pending.most, e.pending.workers = int64(cfg.pendingBytes), e.workers
	limit := &e.limit
	if e.backend != nil {
		limit = &e.backend.limit
	}
	e.group, err = loop.NewGroup(n, func(i int) loop.Config {
		w := &worker{
			engine: e, limit: limit, pending: &e.pending, index: i, closedLog: closedLog{what: cfg.logClosed},
		}
		e.workers[i] = w
		c := loop.Config{
			Open:          func(raw bool) (transport.Transport, error) { return openers.open(raw, w) },
			Logger:        cfg.logger,
			MaxTasks:      cfg.maxTasks,
			WatchdogAfter: cfg.watchdogAfter,
			Culprit:       w.culprit,
			FoundStuck:    w.foundStuck,
		}
		if e.backend != nil {
			c.Name = "acceptor"
		}
		if cfg.pin {
			c.OnThreadStart = func() error { return sys.PinThread(i) }
		}
		return c
	})
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	for i, w := range e.workers {
		w.init(e.group.Loop(i))
	}
	if err := e.group.Start(); err != nil {
		return nil, fmt.Errorf("weir: start: %w", err)
	}
	for _, w := range e.workers {
		if err := w.call(context.Background(), w.begin); err != nil {
			e.stop()
			e.join()
			return nil, fmt.Errorf("weir: start: %w", err)
		}
	}
	return e, nil
}

// join waits until the loops are gone. Once they have been stopped it waits no longer than endTimeout for a handler
// that does not return: its loop is left behind, and ends when the handler returns. Whoever has started the engine
// calls it, once, on a goroutine for that.
func (e *engine) join() {
	running, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-e.stopped
		cancel()
	}()
	if e.err = e.group.Wait(running); running.Err() != nil {
		e.err = e.joinStopped()
	}
	e.stop() // all loops are gone already, or it was called
	e.joinFront()
	for _, w := range e.workers {
		w.end()
		select {
		case <-w.loop.Done():
			w.tellOmitted()
		default: // it is stuck, and its own
		}
	}
	close(e.done)
}

// onThread reports whether the caller runs on a thread of a loop, whichever server's: waiting there for these loops may
// never end, because one of them may be waiting for that one.
func (e *engine) onThread() bool { return loop.OnThread() }

// nextWorker returns the workers in turn, without those whose loop is gone as long as there are others.
func (e *engine) nextWorker() *worker { return e.workers[e.group.Next().Index()] }

// joinStopped is join once the loops have been told to stop.
func (e *engine) joinStopped() error {
	for {
		bound, cancel := context.WithTimeout(context.Background(), endTimeout)
		err := e.group.Wait(bound)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err := e.stuck(); err != nil {
			go func() { _ = e.group.Wait(context.Background()) }() // ends with the handler
			return err
		}
	}
}

// stop aborts everything. It does not wait.
func (e *engine) stop() {
	e.stopOnce.Do(func() { close(e.stopped) })
	e.group.Stop()
	if f := e.front.Load(); f != nil {
		f.stop()
	}
}

// foundStuck lets others accept from the listeners that only this loop accepts from now. Any goroutine.
func (w *worker) foundStuck() {
	w.engine.mutexMu.Lock()
	defer w.engine.mutexMu.Unlock()
	for _, m := range w.engine.mutexes {
		m.stuck(w)
	}
}

// watchMutex makes foundStuck look at m, which may be nil.
func (e *engine) watchMutex(m *acceptMutex) {
	if m != nil {
		e.mutexMu.Lock()
		e.mutexes = append(e.mutexes, m)
		e.mutexMu.Unlock()
	}
}

// drain begins, once, to close everything in an orderly way and then stops the loops. It does not wait.
func (e *engine) drain() {
	e.drainOnce.Do(func() {
		// A goroutine of its own, because of several calls of Shutdown none owns the drain.
		go func() {
			e.drainFront()
			// What was accepted goes first: it may need the connections that its handlers have dialed.
			if e.each((*worker).drainAccepted) && e.each((*worker).drainDialed) {
				e.drained.Store(true)
			}
			e.stop()
		}()
	})
}

// each runs a step of the drain on every loop and returns when the last has called done; false when the loops went
// away before.
func (e *engine) each(step func(w *worker, done func())) bool {
	finished := make(chan struct{}, len(e.workers))
	for _, w := range e.workers {
		w.do(func() { step(w, func() { finished <- struct{}{} }) })
	}
	for range e.workers {
		select {
		case <-finished:
		case <-e.done:
			return false
		}
	}
	return true
}

// shutdown drains, and aborts what is left when ctx is done. It returns nil, the error of ctx, the error of a loop that
// has failed, or, when somebody else stopped the loops, ErrServerClosed.
func (e *engine) shutdown(ctx context.Context) error {
	e.drain()
	select {
	case <-e.done:
	case <-ctx.Done():
		e.stop()
		<-e.done
		switch {
		case errors.Is(e.err, loop.ErrStuck):
			return fmt.Errorf("weir: shutdown: %w: %w", ctx.Err(), e.err)
		case !e.drained.Load():
			return ctx.Err()
		}
	}
	switch {
	case e.err != nil:
		return fmt.Errorf("weir: shutdown: %w", e.err)
	case !e.drained.Load():
		return fmt.Errorf("weir: shutdown: connections were aborted: %w", ErrServerClosed)
	}
	return nil
}
