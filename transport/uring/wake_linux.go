package uring

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// What a loop does, as those who wake it see it.
const (
	awake    uint32 = iota // it will look at state before it sleeps
	asleep                 // it needs a signal
	notified               // it has been told
)

// wake is how other goroutines end a Wait. Any goroutine.
type wake struct {
	state atomic.Uint32
	mu    sync.Mutex
	fd    int  // guarded by mu; an eventfd that nobody reads, each write of which the ring sees
	gone  bool // guarded by mu
	ended atomic.Bool
}

func (w *wake) open() error {
	fd, err := sys.OpenEventFD()
	if err != nil {
		w.gone = true
		return fmt.Errorf("uring: eventfd: %w", err)
	}
	w.fd = fd
	return nil
}

// ring tells the loop.
func (w *wake) ring() error {
	if w.ended.Load() {
		return transport.ErrClosed
	}
	if w.state.Swap(notified) != asleep {
		return nil
	}
	// The lock keeps the descriptor from being closed, and its number used again, between look and write.
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return transport.ErrClosed
	}
	if errno := sys.SignalEventFD(w.fd); errno != 0 {
		return fmt.Errorf("uring: wake: %w", errno)
	}
	return nil
}

// sleep announces that the loop is about to sleep and returns false when it must not. Loop goroutine.
func (w *wake) sleep() bool { return w.state.CompareAndSwap(awake, asleep) }

// rang reports whether somebody rang since the last take. Loop goroutine.
func (w *wake) rang() bool { return w.state.Load() == notified }

// take is rang, and the loop is awake again. Loop goroutine.
func (w *wake) take() bool { return w.state.Swap(awake) == notified }

// close makes ring fail from now on. Loop goroutine.
func (w *wake) close() { w.ended.Store(true) }

// free closes the descriptor. Loop goroutine.
func (w *wake) free() {
	w.ended.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.gone && w.fd > 0 {
		_ = unix.Close(w.fd)
	}
	w.gone = true
}

// armWake has the ring watch the eventfd. A multishot poll sees each write although nobody reads:
// io_uring_prep_poll_multishot(3).
func (t *Transport) armWake() {
	t.watched = queued
	t.todo.push(work{kind: kindWake})
}

func (t *Transport) issueWake() bool {
	if t.watched != queued {
		return true
	}
	e := t.entry(kindWake, nil)
	if e == nil {
		return false
	}
	t.watched = armed
	_ = sys.ClearEventFD(t.wake.fd) // what was written so far would end the poll at once
	ring.Poll(e, int32(t.wake.fd), unix.POLLIN, true)
	return true
}
