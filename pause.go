package weir

import (
	"context"
	"fmt"
)

// Pause stops accepting on all listeners, those of later calls of Listen included, until Resume. It returns when the
// loops have stopped: what the kernel has handed to them until then is served, what comes afterwards waits in its
// queue, and is dropped there when that is full (Stats.ListenOverflows). Channels go on. When ctx is done before, the
// loops that are late stop all the same, when they come to it. ErrServerClosed after Shutdown or Close; on a loop's
// thread pipeline.ErrWouldDeadlock.
func (s *Server) Pause(ctx context.Context) error { return s.suspend(ctx, "pause", true) }

// Resume undoes Pause, and returns in the same way.
func (s *Server) Resume(ctx context.Context) error { return s.suspend(ctx, "resume", false) }

func (s *Server) suspend(ctx context.Context, operation string, paused bool) error {
	e, err := s.start()
	if err != nil {
		return err
	}
	if e.onThread() {
		return errOnLoop(operation, "call it on another goroutine")
	}
	e.frontMu.Lock()
	e.paused = paused
	workers := e.workers
	if f := e.front.Load(); f != nil {
		workers = append(workers[:len(workers):len(workers)], f.workers...)
	}
	e.frontMu.Unlock()
	done := make(chan struct{}, len(workers))
	for _, w := range workers {
		w.do(func() {
			defer func() { done <- struct{}{} }()
			w.suspend(paused)
		})
	}
	for range workers {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("weir: %s: %w", operation, ctx.Err())
		case <-e.done:
			return fmt.Errorf("weir: %s: %w", operation, ErrServerClosed)
		}
	}
	return nil
}

// suspend pauses the worker's listeners or lets them go on, those that have their turn. Loop goroutine.
func (w *worker) suspend(paused bool) {
	w.suspended = paused
	for _, ln := range w.listeners {
		switch m := w.mutexOf[ln]; {
		case paused:
			ln.Pause()
		case m == nil || m.held(w):
			ln.Resume()
		}
	}
}
