package offload

import (
	"context"
	"runtime/debug"
	"sync/atomic"
)

// The states of a task.
const (
	taskWaits = iota // nobody has begun: whoever changes that owns it
	taskRuns         // it belongs to a goroutine of the pool
	taskDone         // it belongs to the loop again
)

// task is one message on its way. It belongs to the loop, to a goroutine of the pool and to the loop again.
type task[M, R any] struct {
	work  func(context.Context, M) (R, error)
	link  *link
	ctx   context.Context
	in    M
	bytes int
	out   R
	err   error
	state atomic.Uint32

	prev, next *task[M, R]  // in its channel's flight; loop goroutine
	under      *task[M, R]  // in a stack of ended tasks
	ended      *stack[M, R] // where it goes when it has ended; nil: the loop looks at its state
}

// begin makes the task belong to the caller. False: it was given up.
func (t *task[M, R]) begin() bool { return t.state.CompareAndSwap(taskWaits, taskRuns) }

// run calls the work and hands the task back to the loop. False: it did not return.
func (t *task[M, R]) run() (ok bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		t.err = ErrGoexit
		if v := recover(); v != nil {
			t.err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		t.finish()
	}()
	t.out, t.err = t.work(t.ctx, t.in)
	returned = true
	t.finish()
	return true
}

// fail hands the task back to the loop without work.
func (t *task[M, R]) fail(err error) {
	t.err = err
	t.finish()
}

func (t *task[M, R]) finish() {
	link, ended := t.link, t.ended // from the store on, or else the push, t is the loop's
	t.state.Store(taskDone)
	if ended != nil {
		ended.push(t)
	}
	link.signal.Raise()
}

// abandon ends a task that nobody has begun. Loop goroutine.
func (t *task[M, R]) abandon(cause error) {
	if t.begin() {
		var none M
		t.in, t.err = none, cause // the pool holds t until its turn comes
		t.state.Store(taskDone)
	}
}

// clear makes the task ready for another message.
func (t *task[M, R]) clear() {
	var in M
	var out R
	t.in, t.out, t.err, t.ctx = in, out, nil, nil
	t.state.Store(taskWaits)
}

// flight are the tasks of a channel in the order of its messages. Loop goroutine.
type flight[M, R any] struct {
	first, last *task[M, R]
	n           int
}

func (f *flight[M, R]) push(t *task[M, R]) {
	t.prev, t.next = f.last, nil
	if f.last != nil {
		f.last.next = t
	} else {
		f.first = t
	}
	f.last = t
	f.n++
}

func (f *flight[M, R]) remove(t *task[M, R]) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		f.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		f.last = t.prev
	}
	t.prev, t.next = nil, nil
	f.n--
}

// stack are tasks that have ended and that the loop has not looked at. Any goroutine pushes, the loop takes.
type stack[M, R any] struct{ top atomic.Pointer[task[M, R]] }

func (s *stack[M, R]) push(t *task[M, R]) {
	for {
		t.under = s.top.Load()
		if s.top.CompareAndSwap(t.under, t) {
			return
		}
	}
}

// take takes all and returns the one that ended first; those that ended behind it are linked by under.
func (s *stack[M, R]) take() (first *task[M, R]) {
	for t := s.top.Swap(nil); t != nil; {
		t.under, first, t = first, t, t.under
	}
	return first
}
