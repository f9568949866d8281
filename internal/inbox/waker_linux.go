package inbox

import (
	"sync/atomic"
	"syscall"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// The state of a Waker is one word: what the loop does, whether the transport is closed, and how many goroutines are
// just writing to the eventfd.
//
//	          Wake          Rouse
//	awake ───────────▶ told ───────▶ awake
//	  │                  ▲
//	  │ Sleep            │ Wake: writes to the eventfd
//	  ▼                  │
//	asleep ──────────────┘
//	  └─ Rouse, when the wait ends for another reason ─▶ awake
const (
	awake uint32 = iota
	asleep
	told

	doing  uint32 = 3      // mask of the three above
	shut   uint32 = 1 << 2 // the transport is closed
	writer uint32 = 1 << 3 // one goroutine that is writing; the rest of the word counts them
)

// Waker lets other goroutines end a loop's wait. While the loop is awake a wake costs them no system call.
//
// Nothing is lost: whoever wakes first makes visible what the loop shall find (a task in its queue), then swaps the
// state; the loop first swaps the state to asleep, then waits. Go's atomics are sequentially consistent, so one of the
// two swaps comes first. If it is Wake's, Sleep finds told and refuses. If it is Sleep's, Wake finds asleep and writes
// to the eventfd, which ends the wait, also one that has not begun. What the loop drained its queue of before Sleep
// needs no wake, and a wake that came earlier makes one Wait return early, which is allowed.
type Waker struct {
	state  atomic.Uint32
	fd     int
	opened bool
}

// Open opens the eventfd. Once, before anything else; Close of a Waker that was not opened does nothing.
func (w *Waker) Open() (err error) {
	w.fd, err = sys.OpenEventFD()
	w.opened = err == nil
	return err
}

// FD is the eventfd, which the wait has to watch. Nobody has to read it.
func (w *Waker) FD() int { return w.fd }

// Wake makes the wait that runs now, or the next one, return. Any goroutine.
func (w *Waker) Wake() error {
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

// signal writes to the eventfd. Its caller counts as a writer, which keeps the descriptor open: Close leaves closing it
// to the last writer, so that nobody ever writes to a descriptor that belongs to somebody else by now.
func (w *Waker) signal() error {
	errno := sys.SignalEventFD(w.fd)
	if v := w.state.Add(^(writer - 1)); v&shut != 0 && v < writer {
		sys.Close(w.fd)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// Woken reports whether somebody woke the loop since Rouse. Loop goroutine.
func (w *Waker) Woken() bool { return w.state.Load()&doing == told }

// Asleep reports whether the loop is between Sleep and the wake that ends it. Any goroutine.
func (w *Waker) Asleep() bool { return w.state.Load()&doing == asleep }

// Sleep says that the loop is about to wait; false: it must not, because it was woken. Loop goroutine, awake.
func (w *Waker) Sleep() bool {
	for {
		v := w.state.Load()
		if v&doing == told {
			return false
		}
		if w.state.CompareAndSwap(v, v&^doing|asleep) {
			return true
		}
	}
}

// Rouse says that the loop is awake and reports whether somebody woke it. Loop goroutine.
func (w *Waker) Rouse() bool {
	v := w.state.And(^doing)
	return v&doing == told
}

// Close makes later wakes return ErrClosed. Loop goroutine. A second one does nothing.
func (w *Waker) Close() syscall.Errno {
	if v := w.state.Or(shut); w.opened && v < shut {
		return sys.Close(w.fd)
	}
	return 0 // the last writer closes it
}
