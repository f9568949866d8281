package weir

import (
	"sync/atomic"

	"github.com/weirnet/weir/channel"
)

// mutexTurn is how many connections a loop accepts before another one has its turn: one wake-up to pass that on for so
// many connections is not much, and counts differ by no more.
const mutexTurn = 16

// acceptMutex says which loop accepts from a listener that all of them have; the others' stand still. The nil
// acceptMutex lets all of them accept.
type acceptMutex struct {
	// Set in newMutex, then immutable.
	workers []*worker

	listeners []*channel.Listener // by worker; each is written and read on that one's loop

	holder atomic.Int64
}

// newMutex returns the mutex of a common listener, held by the first loop; nil unless that is the way to accept.
func (s *Server) newMutex(e *engine) *acceptMutex {
	if s.Accept != AcceptMutex || len(e.workers) == 1 {
		return nil
	}
	return &acceptMutex{workers: e.workers, listeners: make([]*channel.Listener, len(e.workers))}
}

// batch is ListenerConfig.Batch.
func (m *acceptMutex) batch() int {
	if m == nil {
		return 0
	}
	return mutexTurn
}

// turnDone passes the mutex on, or goes on when nobody else can do with more. A server that drains has no turns: each
// loop empties the queue that is about to be closed. The worker's loop.
func (m *acceptMutex) turnDone(w *worker) {
	if w.drain.begun || m.held(w) && !m.pass(w) && !w.suspended {
		m.listeners[w.index].Resume()
	}
}

// held reports whether a worker has the mutex: it may have lost it while it was stuck.
func (m *acceptMutex) held(w *worker) bool { return m.holder.Load() == int64(w.index) }

// opened is told of each worker's listener. The worker's loop.
func (m *acceptMutex) opened(w *worker, ln *channel.Listener) {
	if m == nil {
		return
	}
	m.listeners[w.index] = ln
	if w.mutexOf == nil {
		w.mutexOf = map[*channel.Listener]*acceptMutex{}
	}
	w.mutexOf[ln] = m
	if !m.held(w) {
		ln.Pause()
	}
}

// accepted ends a turn early when the worker has enough. The worker's loop.
func (m *acceptMutex) accepted(w *worker) {
	if m != nil && !w.drain.begun && m.held(w) && w.nearlyFull() && m.pass(w) {
		m.listeners[w.index].Pause()
	}
}

// stuck passes the mutex on when it is held by a worker whose handler does not return. Any goroutine.
func (m *acceptMutex) stuck(w *worker) {
	if m.held(w) {
		m.pass(w)
	}
}

// pass gives a worker's mutex to the next loop, in turn, that goes on and has room. It reports whether there is one.
func (m *acceptMutex) pass(from *worker) bool {
	for n := 1; n < len(m.workers); n++ {
		to := m.workers[(from.index+n)%len(m.workers)]
		if to.loop.Stuck() || to.nearlyFull() {
			continue
		}
		if m.holder.CompareAndSwap(int64(from.index), int64(to.index)) {
			m.resume(to)
		}
		return true
	}
	return false
}

// resume makes a worker accept, if it still holds the mutex then.
func (m *acceptMutex) resume(w *worker) {
	w.do(func() {
		ln := m.listeners[w.index]
		if m.held(w) && !w.gone && !w.suspended && ln != nil {
			ln.Resume()
		}
	})
}

// nearlyFull reports whether the worker has 7/8 of its part of the connections that the server may have, or of the
// completions that its transport has room for. Any goroutine.
func (w *worker) nearlyFull() bool {
	if most := w.limit.most; most > 0 && 8*w.openAccepted.Load()*int64(len(w.engine.workers)) >= 7*most {
		return true
	}
	load := w.loop.Transport().Load()
	return load.Entries > 0 && 8*load.Waiting >= 7*load.Entries
}
