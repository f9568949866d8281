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

// opener makes one kind of transport, on the loop's thread.
type opener struct {
	kind Kind
	open func(raw bool) (transport.Transport, error)
}

// engineConfig is what a Server's and a Dialer's loops have in common.
type engineConfig struct {
	loops         int
	kind          Kind
	maxTasks      int
	watchdogAfter time.Duration
	pin           bool
	logger        *slog.Logger
	openers       []opener
}

// engine is the loops of a Server or a Dialer, with an agent on each. Any goroutine may call its methods.
//
//	running ──drain──▶ draining ──┐
//	   └──────────────────stop────┴──▶ stopping ──▶ done
type engine struct {
	// Set in startEngine, then immutable.
	group  *loop.Group
	agents []*agent
	done   chan struct{} // closed when all loops are gone

	err error // why a loop has failed; valid once done is closed

	drainOnce sync.Once
	drained   atomic.Bool // the loops were stopped because no channel was left
}

// startEngine starts the loops and answers when all transports are open and all agents at work. The caller joins.
func startEngine(cfg engineConfig) (*engine, error) {
	choice, err := newChoice(cfg)
	if err != nil {
		return nil, err
	}
	n := cfg.loops
	if n == 0 {
		n = defaultLoops()
	}
	e := &engine{done: make(chan struct{}), agents: make([]*agent, n)}
	e.group, err = loop.NewGroup(n, func(i int) loop.Config {
		a := &agent{engine: e, index: i}
		e.agents[i] = a
		c := loop.Config{
			Open:          func(raw bool) (transport.Transport, error) { return choice.open(raw, a) },
			Logger:        cfg.logger,
			MaxTasks:      cfg.maxTasks,
			WatchdogAfter: cfg.watchdogAfter,
		}
		if cfg.pin {
			c.OnThreadStart = func() error { return sys.PinThread(i) }
		}
		return c
	})
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	for i, a := range e.agents {
		a.init(e.group.Loop(i))
	}
	if err := e.group.Start(); err != nil {
		return nil, fmt.Errorf("weir: start: %w", err)
	}
	for _, a := range e.agents {
		if err := a.call(context.Background(), a.begin); err != nil {
			e.stop()
			e.join()
			return nil, fmt.Errorf("weir: start: %w", err)
		}
	}
	return e, nil
}

// join waits until the loops are gone. Whoever has started the engine calls it, once, on a goroutine for that.
func (e *engine) join() {
	e.err = e.group.Wait()
	close(e.done)
}

// onThread tells whether the caller runs on the thread of one of the loops, where waiting for them would never end.
func (e *engine) onThread() bool { return e.group.Loop(0).OnThread() }

// nextAgent answers the agents in turn, without those whose loop is gone as long as there are others.
func (e *engine) nextAgent() *agent { return e.agents[e.group.Next().Index()] }

// stop aborts everything. It does not wait.
func (e *engine) stop() { e.group.Stop() }

// drain begins, once, to close everything in an orderly way and then stops the loops. It does not wait.
func (e *engine) drain() {
	e.drainOnce.Do(func() {
		// A goroutine of its own, because of several calls of Shutdown none owns the drain.
		go func() {
			// What was accepted goes first: it may need the connections that its handlers have dialed.
			if e.each((*agent).drainAccepted) && e.each((*agent).drainDialed) {
				e.drained.Store(true)
			}
			e.stop()
		}()
	})
}

// each runs a step of the drain on every loop and answers when the last has called done; false when the loops went
// away before.
func (e *engine) each(step func(a *agent, done func())) bool {
	finished := make(chan struct{}, len(e.agents))
	for _, a := range e.agents {
		a.do(func() { step(a, func() { finished <- struct{}{} }) })
	}
	for range e.agents {
		select {
		case <-finished:
		case <-e.done:
			return false
		}
	}
	return true
}

// shutdown drains, and aborts what is left when ctx is done. It answers nil, the error of ctx, the error of a loop that
// has failed, or, when somebody else stopped the loops, ErrServerClosed.
func (e *engine) shutdown(ctx context.Context) error {
	e.drain()
	select {
	case <-e.done:
	case <-ctx.Done():
		e.stop()
		<-e.done
		if !e.drained.Load() {
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

// choice opens the transports of one engine.
type choice struct {
	openers  []opener // tried in turn; the last one's error counts
	logger   *slog.Logger
	fallback sync.Once
}

func newChoice(cfg engineConfig) (*choice, error) {
	c := &choice{logger: cfg.logger}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	switch cfg.kind {
	case "", Auto:
		c.openers = cfg.openers
	case Epoll, Uring:
		for _, o := range cfg.openers {
			if o.kind == cfg.kind {
				c.openers = []opener{o}
			}
		}
	default:
		return nil, fmt.Errorf("%w: Transport %q is not %q, %q or %q", ErrConfig, cfg.kind, Auto, Uring, Epoll)
	}
	if len(c.openers) == 0 {
		return nil, fmt.Errorf("weir: transport %q: %w on this system", cfg.kind, transport.ErrNotSupported)
	}
	return c, nil
}

// open runs on the loop's thread.
func (c *choice) open(raw bool, a *agent) (transport.Transport, error) {
	var failed []error
	for _, o := range c.openers {
		tr, err := o.open(raw)
		if err == nil {
			a.kind = o.kind
			if len(failed) > 0 {
				c.fallback.Do(func() {
					c.logger.Warn("weir: transport falls back", "to", o.kind, "reason", errors.Join(failed...))
				})
			}
			return tr, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", o.kind, err))
	}
	return nil, errors.Join(failed...)
}
