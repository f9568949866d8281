package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// stuckLook is how often Stats looks whether the loop that it waits for is stuck.
const stuckLook = 20 * time.Millisecond

// Stats are what a Server, or a Dialer with loops of its own, has counted.
type Stats struct {
	Accepted     uint64 // connections accepted
	Dialed       uint64 // connections made by Dialers and by handlers (Context.Dial)
	AcceptErrors uint64
	Limited      uint64 // how often a loop has stopped accepting because of Server.MaxConnections
	Refused      uint64 // connections that Server.Admit has not let in; a Ledger knows why
	Open         int    // channels open now

	// What the kernel has dropped since it was started, of all listeners in the process's network namespace: handshakes
	// that found a queue full, and those dropped for whatever reason (ListenOverflows, ListenDrops in /proc/net/netstat).
	// Zero where it does not say.
	ListenOverflows, ListenDrops uint64

	// Where Server.MaxPendingBytes is set: what is pending, how often that was too much, and the channels that do not
	// read now because of it.
	PendingBytes  int64
	PendingRises  uint64
	PendingPaused int

	Loops []LoopStats
	// Acceptor is the loop that accepts for the others (AcceptHandoff), nil without one. What becomes of a connection
	// counts on the loop that has it.
	Acceptor *LoopStats
}

// LoopStats are one loop's part of Stats.
type LoopStats struct {
	Transport    Kind // which one it is: never Auto
	Stuck        bool // a handler keeps it: the log of the watchdog says which
	Accepted     uint64
	Dialed       uint64
	AcceptErrors uint64
	Limited      uint64
	Refused      uint64
	Open         int
	Loop         loop.Stats
	Kernel       transport.Stats // zero once the loop is gone, as Loop is zero while it is stuck
}

// Stats returns the counters, each loop's as of one moment. It waits for the next turn of every loop, at most until
// ctx is done, and not for one that the watchdog has found stuck: that one is marked, and what only its own goroutine
// knows is zero. When ctx is done before, the loops that have not replied are marked as stuck ones are, and its error
// comes with the counters. Before the server has started they are zero. On a loop's thread:
// pipeline.ErrWouldDeadlock.
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
	replies := make([]*reply, len(e.workers))
	for i, w := range e.workers {
		replies[i] = w.askStats()
	}
	all := Stats{Loops: make([]LoopStats, len(e.workers))}
	var late error
	for i, w := range e.workers {
		st := &all.Loops[i]
		if err := w.stats(ctx, replies[i], st); err != nil && late == nil {
			late = fmt.Errorf("weir: stats of loop %d: %w", i, err)
		}
		all.Accepted += st.Accepted
		all.Dialed += st.Dialed
		all.AcceptErrors += st.AcceptErrors
		all.Limited += st.Limited
		all.Refused += st.Refused
		all.Open += st.Open
		all.PendingPaused += int(w.readers.count.Load())
	}
	if f := e.front.Load(); f != nil {
		of, err := f.stats(ctx)
		if err != nil && late == nil {
			late = fmt.Errorf("weir: stats of the acceptor: %w", err)
		}
		all.Acceptor = &of.Loops[0]
		all.AcceptErrors += of.AcceptErrors
		all.Limited += of.Limited
		all.Refused += of.Refused
	}
	all.ListenOverflows, all.ListenDrops = listenDrops()
	all.PendingBytes, all.PendingRises = e.pending.bytes.Load(), e.pending.rises.Load()
	return all, late
}

// reply is what a loop tells of itself.
type reply struct {
	ready  chan struct{} // closed when it is there
	loop   loop.Stats
	kernel transport.Stats
}

// askStats asks the loop for a reply. There is one question at a time, however often a loop that is stuck is asked.
func (w *worker) askStats() *reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = &reply{ready: make(chan struct{})}
		w.queue = append(w.queue, w.replyStats)
		w.loop.Post(&w.node)
	}
	return w.asked
}

func (w *worker) replyStats() {
	w.mu.Lock()
	r := w.asked
	w.asked = nil
	w.mu.Unlock()
	r.loop, r.kernel = w.loop.Stats(), w.loop.Transport().Stats()
	close(r.ready)
}

// stats fills st when the loop has replied, and with what there is without its reply when it does not.
func (w *worker) stats(ctx context.Context, r *reply, st *LoopStats) error {
	err := w.await(ctx, r)
	*st = LoopStats{
		Transport: w.kind, Accepted: w.accepted.Load(), Dialed: w.dialed.Load(),
		AcceptErrors: w.acceptErrors.Load(), Limited: w.limited.Load(), Refused: w.refused.Load(),
		Open: int(w.openAccepted.Load() + w.openDialed.Load()),
	}
	switch {
	case err == nil:
		st.Loop, st.Kernel = r.loop, r.kernel
	case errors.Is(err, loop.ErrStopped): // its counters stand still and are anybody's
		st.Loop, err = w.loop.Stats(), nil
	default:
		st.Stuck = true
		if errors.Is(err, loop.ErrStuck) {
			err = nil
		}
	}
	return err
}

// await waits for the reply: nil, loop.ErrStopped, loop.ErrStuck, or the error of ctx.
func (w *worker) await(ctx context.Context, r *reply) error {
	look := time.NewTicker(stuckLook)
	defer look.Stop()
	for {
		select {
		case <-r.ready:
			return nil
		default:
		}
		select {
		case <-w.loop.Done():
			return loop.ErrStopped
		default:
		}
		if w.loop.Stuck() {
			return loop.ErrStuck
		}
		select {
		case <-r.ready:
		case <-w.loop.Done():
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
