package epoll

import (
	"sync/atomic"
	"syscall"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// The state of a waker is one word: what the loop does, whether the transport is closed, and how many goroutines are
// just writing to the eventfd.
//
//	          wake                      sleep: refused, the wait only looks
//	awake ───────────▶ told ────────────────────────────────────────────────▶ awake
//	  │                  ▲
//	  │ sleep            │ wake: writes to the eventfd
//	  ▼                  │
//	asleep ──────────────┘
//	  └─ rouse, when the wait ends for another reason ─▶ awake
const (
	awake uint32 = iota
	asleep
	told

	doing  uint32 = 3      // mask of the three above
	shut   uint32 = 1 << 2 // the transport is closed
	writer uint32 = 1 << 3 // one goroutine that is writing; the rest of the word counts them
)

// waker lets other goroutines end the loop's wait. While the loop is awake a wake costs them no system call.
//
// Nothing is lost: whoever wakes first makes visible what the loop shall find (a task in its queue), then swaps the
// state; the loop first swaps the state to asleep, then waits. Go's atomics are sequentially consistent, so one of the
// two swaps comes first. If it is wake's, sleep finds told and does not wait. If it is sleep's, wake finds asleep and
// writes to the eventfd, which ends the wait, also one that has not begun. What the loop drained its queue of before
// sleep needs no wake, and a wake that came earlier makes one Wait return early, which is allowed.
type waker struct {
	state atomic.Uint32
	fd    int
}

// wake makes the wait that runs now, or the next one, return. Any goroutine.
func (w *waker) wake() error {
	for {
		v := w.state.Load()
		switch {
		case v&shut != 0:
			return transport.ErrClosed
		case v&doing == told:
			return nil
		case v&doing == awake:
			if w.state.CompareAndSwap(v, v|told) {
				return nil
			}
		default:
			if w.state.CompareAndSwap(v, v&^doing|told+writer) {
				return w.signal()
			}
		}
	}
}

// signal writes to the eventfd. Its caller counts as a writer, which keeps the descriptor open: close leaves closing it
// to the last writer, so that nobody ever writes to a descriptor that belongs to somebody else by now.
func (w *waker) signal() error {
	errno := sys.SignalEventFD(w.fd)
	if v := w.state.Add(^(writer - 1)); v&shut != 0 && v < writer {
		sys.Close(w.fd)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// consume reports whether somebody woke the loop since it last asked. Loop goroutine, awake.
func (w *waker) consume() bool {
	if w.state.Load()&doing != told {
		return false
	}
	return w.rouse()
}

// sleep says that the loop is about to wait; false: it must not, because it was woken. Loop goroutine, awake.
func (w *waker) sleep() bool {
	for {
		v := w.state.Load()
		if v&doing == told {
			w.rouse()
			return false
		}
		if w.state.CompareAndSwap(v, v&^doing|asleep) {
			return true
		}
	}
}

// rouse says that the loop is awake and reports whether somebody woke it. Loop goroutine.
func (w *waker) rouse() bool {
	v := w.state.And(^doing)
	return v&doing == told
}

// close makes later wakes return ErrClosed. Loop goroutine, once.
func (w *waker) close() syscall.Errno {
	if v := w.state.Or(shut); v < writer {
		return sys.Close(w.fd)
	}
	return 0 // the last writer closes it
}
