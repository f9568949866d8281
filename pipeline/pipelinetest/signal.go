package pipelinetest

import (
	"sync"

	"github.com/weirnet/weir/pipeline"
)

// signal is a pipeline.Signal.
type signal struct {
	c      *Channel
	fn     func()
	raised bool // guarded by the loop's raised.mu
}

var _ pipeline.Signal = (*signal)(nil)

// raised are the signals that the loop has to run, in the order in which they were raised.
type raised struct {
	mu   sync.Mutex
	list []*signal // guarded by mu
}

// Raise makes the loop's next turn run fn. Any goroutine.
func (s *signal) Raise() {
	r := &s.c.l.raised
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.raised {
		s.raised = true
		r.list = append(r.list, s)
	}
}

// take answers the oldest, which can be raised again, or nil.
func (r *raised) take() *signal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 {
		return nil
	}
	s := r.list[0]
	r.list = r.list[1:]
	s.raised = false
	return s
}

func (r *raised) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list)
}

// runSignals runs those that are raised now; what they raise has its turn later.
func (l *Loop) runSignals() (did bool) {
	for n := l.raised.count(); n > 0; n-- {
		if s := l.raised.take(); s.c.state != stateClosed {
			l.enter(s.fn)
		}
		did = true
	}
	return did
}
