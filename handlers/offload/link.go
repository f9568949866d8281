package offload

import (
	"errors"
	"sync/atomic"

	"github.com/weirnet/weir/pipeline"
)

// link is what the pool and its goroutines know of a channel. At most one task of it waits in the channel's queue of tasks,
// however many results there are to tell of.
type link struct {
	pool *Pool
	ref  pipeline.Ref                // set when the handler is added, then immutable
	turn func(ctx *pipeline.Context) // the same

	woken   atomic.Bool // a task is posted, or will be: it has not begun to look for what is new
	granted atomic.Bool // the message that waited for room is in the pool's queue

	// guarded by pool.mu
	next, prev *link
	listed     bool
	job        job // the message that waits
	bytes      int
}

// wake makes the loop look for what is new. Any goroutine; it never fails.
func (l *link) wake() {
	if l.woken.CompareAndSwap(false, true) {
		l.post()
	}
}

// post posts the task. Where the channel's queue of tasks is full, which others have filled, the pool tries again: the loop
// runs that queue in its next turn. A closed channel has told its handler, which waits for nothing any more.
func (l *link) post() {
	if errors.Is(l.ref.Execute(l.turn), pipeline.ErrFull) {
		l.pool.retry(l)
	}
}
