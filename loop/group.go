package loop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Group is a number of loops that start and stop together, each on a goroutine and OS thread of its own. Any goroutine
// may call its methods.
type Group struct {
	// Set in NewGroup, then immutable.
	loops []*Loop

	ended chan struct{} // closed when all loops have

	rawRefused atomic.Bool // the line about it has been logged
	next       atomic.Uint64
	watchdog   watchdog

	mu      sync.Mutex
	started bool    // guarded by mu
	running int     // guarded by mu
	errs    []error // guarded by mu; by loop
}

// NewGroup returns a group of n loops, with config(i) for loop i. With n zero it has as many as GOMAXPROCS.
func NewGroup(n int, config func(i int) Config) (*Group, error) {
	if n < 0 {
		return nil, fmt.Errorf("loop: group of %d loops", n)
	}
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	g := &Group{errs: make([]error, n), ended: make(chan struct{})}
	for i := range n {
		l, err := newLoop(config(i), i, g)
		if err != nil {
			return nil, fmt.Errorf("loop %d: %w", i, err)
		}
		g.loops = append(g.loops, l)
	}
	return g, nil
}

// Start runs the loops, and returns when all transports are open. When one cannot be opened, it stops the others, waits
// for them and returns why: then none is open, and the group is used up.
func (g *Group) Start() error {
	g.mu.Lock()
	if g.started {
		g.mu.Unlock()
		return fmt.Errorf("loop: start of the group: %w", ErrState)
	}
	g.started, g.running = true, len(g.loops)
	g.mu.Unlock()

	opened := make(chan error, len(g.loops))
	for _, l := range g.loops {
		go g.run(l, opened) //weir:goroutines a loop is one
	}
	failed := false
	for range g.loops {
		if err := <-opened; err != nil {
			failed = true
		}
	}
	if failed {
		g.Stop()
		return g.Wait(context.Background())
	}
	g.watchdog.start(g.loops)
	return nil
}

func (g *Group) run(l *Loop, opened chan<- error) {
	err := ErrGoexit // stays when run does not return
	told := false
	tell := func(err error) {
		if !told {
			told = true
			opened <- err
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", l.Name(), err)
		}
		g.mu.Lock()
		g.errs[l.index] = err
		if g.running--; g.running == 0 {
			close(g.ended)
		}
		g.mu.Unlock()
		tell(err)
	}()
	err = l.run(tell)
}

// Loop is loop i, from 0 to Len-1.
func (g *Group) Loop(i int) *Loop { return g.loops[i] }

// Len is the number of loops.
func (g *Group) Len() int { return len(g.loops) }

// Next returns the loops in turn, without those that end, have ended, or are stuck as the watchdog knows, as long as
// there are others.
func (g *Group) Next() *Loop {
	n := uint64(len(g.loops))
	first := g.next.Add(1) - 1
	for i := range n {
		l := g.loops[(first+i)%n]
		if !l.stop.Load() && !l.Stuck() {
			return l
		}
	}
	return g.loops[first%n]
}

// Stop makes all loops end. It does not wait.
func (g *Group) Stop() {
	for _, l := range g.loops {
		l.Stop()
	}
}

// Wait waits until all loops have ended, and joins their errors. A loop that ends early (ErrGoexit, an error of its
// transport) is logged at once; the others go on until Stop. On a loop's thread it returns ErrState instead.
//
// When ctx is done before, Wait returns ctx's error joined with one for each loop that has not ended: a *StuckError
// where a callback does not return. These loops are left alone: each ends when its callback returns. Wait may be called
// again.
func (g *Group) Wait(ctx context.Context) error {
	if OnThread() {
		return fmt.Errorf("loop: wait for the group on a loop's thread: %w", ErrState)
	}
	g.mu.Lock()
	started := g.started
	g.mu.Unlock()
	if !started {
		return nil
	}
	select { //weir:goroutines a caller beside the loops waits here
	case <-g.ended:
	case <-ctx.Done():
		if err := g.unfinished(ctx.Err()); err != nil {
			return err
		}
	}
	g.watchdog.stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}

// unfinished is the error of a Wait that cause has ended; nil when all loops have ended all the same.
func (g *Group) unfinished(cause error) error {
	g.mu.Lock()
	running := g.running
	g.mu.Unlock()
	if running == 0 {
		return nil
	}
	errs := []error{fmt.Errorf("loop: wait for the group: %w", cause)}
	for _, l := range g.loops {
		if l.life.Load() == lifeClosed {
			continue
		}
		if err := l.StuckError(); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, fmt.Errorf("%s: has not ended", l.Name()))
		}
	}
	return errors.Join(errs...)
}
