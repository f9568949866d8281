package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// Stats are what a Server, or a Dialer with loops of its own, has counted.
type Stats struct {
	Accepted     uint64 // connections accepted
	Dialed       uint64 // connections made by Dialers and by handlers (Context.Dial)
	AcceptErrors uint64
	Open         int // channels open now
	Loops        []LoopStats
}

// LoopStats are one loop's part of Stats.
type LoopStats struct {
	Transport    Kind // which one it is: never Auto
	Accepted     uint64
	Dialed       uint64
	AcceptErrors uint64
	Open         int
	Loop         loop.Stats
	Kernel       transport.Stats // zero once the loop is gone
}

// Stats returns the counters, each loop's as of one moment. It waits for every loop's next turn, at most until ctx is
// done, which is its only error beside pipeline.ErrWouldDeadlock. Before the server has started it returns zero.
func (s *Server) Stats(ctx context.Context) (Stats, error) {
	s.mu.Lock()
	e := s.engine
	s.mu.Unlock()
	if e == nil {
		return Stats{}, nil
	}
	return e.stats(ctx)
}

func (e *engine) stats(ctx context.Context) (Stats, error) {
	if e.onThread() {
		return Stats{}, errOnLoop("stats", "call it on another goroutine")
	}
	all := Stats{Loops: make([]LoopStats, len(e.workers))}
	for i, w := range e.workers {
		st := LoopStats{
			Transport: w.kind, Accepted: w.accepted.Load(), Dialed: w.dialed.Load(),
			AcceptErrors: w.acceptErrors.Load(), Open: int(w.openAccepted.Load() + w.openDialed.Load()),
		}
		if err := w.stats(ctx, &st); err != nil {
			return Stats{}, fmt.Errorf("weir: stats of loop %d: %w", i, err)
		}
		all.Accepted += st.Accepted
		all.Dialed += st.Dialed
		all.AcceptErrors += st.AcceptErrors
		all.Open += st.Open
		all.Loops[i] = st
	}
	return all, nil
}

// stats adds what only the loop knows.
func (w *worker) stats(ctx context.Context, st *LoopStats) error {
	got := make(chan LoopStats, 1) // a call that ctx ended may still run: it must not touch st
	err := w.call(ctx, func() error {
		got <- LoopStats{Loop: w.loop.Stats(), Kernel: w.loop.Transport().Stats()}
		return nil
	})
	switch {
	case err == nil:
		fromLoop := <-got
		st.Loop, st.Kernel = fromLoop.Loop, fromLoop.Kernel
	case errors.Is(err, loop.ErrStopped): // its counters stand still and are anybody's
		st.Loop = w.loop.Stats()
	default:
		return err
	}
	return nil
}
