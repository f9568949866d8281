package channel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// poster is what the Refs of a channel share: a queue of what other goroutines asked for, in their order.
type poster struct {
	c    *Channel
	done chan struct{} // closed when the channel is

	bytes    atomic.Int64 // posted and not yet written by the loop
	pending  atomic.Int64 // as the loop last published it, without bytes
	writable atomic.Bool
	shut     atomic.Bool // the channel takes no more writes
	waiting  atomic.Bool // a Write waits for room

	mu sync.Mutex
	// guarded by mu
	queue  []posted
	data   []byte // of the writes in queue, one after the other
	tasks  int    // Execute tasks that have not run
	count  int    // entries that are not done
	room   chan struct{}
	ending bool // Close was posted: writes are refused
	closed bool // nothing is taken any more

	// Loop goroutine only.
	run     []posted
	runData []byte
	at, off int   // how far run and runData are done
	ran     int   // entries done, of which count knows nothing yet
	ranFns  int   // tasks among them
	written int64 // of bytes: in the write queue already, and so in Channel.Pending
}

// posted is one thing to do: a task, a write of n bytes, or, with n < 0, a close.
type posted struct {
	ctx *pipeline.Context
	fn  func(*pipeline.Context)
	n   int
}

// keepPosted is up to how many bytes of queue memory are kept for the next time.
const keepPosted = 64 << 10

// postedPerRun is how many entries of one channel are done before others get their turn.
const postedPerRun = 64

// postedBytes is what an entry of the queue takes.
const postedBytes = 24

type ref struct {
	p   *poster
	ctx *pipeline.Context
}

var _ pipeline.Ref = ref{}

// Ref returns what other goroutines may hold of ctx.
func (c head) Ref(ctx *pipeline.Context) pipeline.Ref {
	if c.post == nil {
		c.post = &poster{c: c.Channel, done: make(chan struct{})}
		c.post.closed = c.life() >= pipeline.LifeEnding
		if c.finishStep > finishRef {
			close(c.post.done)
		}
		c.publish()
	}
	return ref{p: c.post, ctx: ctx}
}

// TryWrite copies p and posts it.
func (r ref) TryWrite(p []byte) error {
	r.p.mu.Lock()
	err := r.write(p)
	r.p.mu.Unlock()
	if err == nil {
		r.p.wake()
	}
	return err
}

// write posts p under the lock.
func (r ref) write(p []byte) error {
	q := r.p
	if q.closed || q.ending || q.shut.Load() {
		return pipeline.ErrClosed
	}
	if len(p) == 0 {
		return nil
	}
	limit := int64(q.c.cfg.MaxPendingBytes)
	// The entries of the queue are memory, too: many tiny writes are bounded by them.
	have := q.bytes.Load() + q.pending.Load()
	if have+int64(len(p)) > limit || int64(q.count) > limit/postedBytes {
		return fmt.Errorf("%w: write of %d bytes with %d pending, limit %d", pipeline.ErrFull, len(p), have, limit)
	}
	q.bytes.Add(int64(len(p)))
	q.data = append(q.data, p...)
	q.push(posted{ctx: r.ctx, n: len(p)})
	return nil
}

// Write is TryWrite that waits for room.
func (r ref) Write(ctx context.Context, p []byte) error {
	q := r.p
	for {
		q.mu.Lock()
		q.waiting.Store(true) // before looking at pending: publish stores pending, then looks here
		err := r.write(p)
		if !errors.Is(err, pipeline.ErrFull) || len(p) > q.c.cfg.MaxPendingBytes {
			q.mu.Unlock()
			if err == nil {
				q.wake()
			}
			return err
		}
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		if loop.OnThread() {
			return fmt.Errorf("%w: %w", pipeline.ErrWouldDeadlock, err)
		}
		select { //weir:goroutines a caller beside the loop waits here
		case <-room:
		case <-q.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Execute posts fn.
func (r ref) Execute(fn func(*pipeline.Context)) error {
	q := r.p
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return pipeline.ErrClosed
	case q.tasks >= q.c.cfg.MaxPostedTasks:
		q.mu.Unlock()
		return fmt.Errorf("%w: %d tasks of this channel wait", pipeline.ErrFull, q.c.cfg.MaxPostedTasks)
	}
	q.tasks++
	q.push(posted{ctx: r.ctx, fn: fn})
	q.mu.Unlock()
	q.wake()
	return nil
}

// Close posts an orderly close.
func (r ref) Close() error {
	q := r.p
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return pipeline.ErrClosed
	}
	if !q.ending {
		q.ending = true
		q.push(posted{ctx: r.ctx, n: -1})
	}
	q.mu.Unlock()
	q.wake()
	return nil
}

func (r ref) Pending() int            { return int(r.p.pending.Load() + r.p.bytes.Load()) }
func (r ref) Writable() bool          { return r.p.writable.Load() }
func (r ref) Closed() <-chan struct{} { return r.p.done }
func (r ref) ID() uint64              { return r.p.c.ID() }

// wake posts the channel's node. When the loop has stopped, its channels are closed and finish has drained the queue.
func (q *poster) wake() { q.c.loop.Post(&q.c.node) }

// push adds an entry. The caller holds mu.
func (q *poster) push(p posted) {
	q.queue = append(q.queue, p)
	q.count++
}

// drain does what was posted until now, a share at a time: between two of them others get their turn. Loop goroutine.
// After a panic in a task it goes on behind that task.
func (q *poster) drain() {
	q.doQueued()
	if q.settle() > 0 {
		q.wake()
	}
	q.c.dirty() // publishes
}

// doQueued does up to postedPerRun entries.
func (q *poster) doQueued() {
	left := q.doRun(postedPerRun)
	if q.at < len(q.run) {
		return
	}
	q.mu.Lock()
	q.take()
	q.mu.Unlock()
	q.doRun(left)
}

// take swaps the queue for the empty one. The caller holds mu.
func (q *poster) take() {
	q.run, q.queue = q.queue, q.run[:0]
	q.runData, q.data = q.data, q.runData[:0]
	q.at, q.off = 0, 0
}

// settle makes room for as many entries as are done, and returns how many wait.
func (q *poster) settle() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count -= q.ran
	q.tasks -= q.ranFns
	q.ran, q.ranFns = 0, 0
	return q.count
}

// doRun does up to n entries of those that were taken, and returns how many fewer it were.
func (q *poster) doRun(n int) (left int) {
	for ; n > 0 && q.at < len(q.run); n-- {
		p := q.run[q.at]
		q.run[q.at] = posted{}
		q.at++
		q.ran++
		switch {
		case p.fn != nil:
			q.ranFns++
			p.fn(p.ctx)
		case p.n < 0:
			_ = p.ctx.Close() // the handlers' answer has nobody to go to
		default:
			b := q.runData[q.off : q.off+p.n]
			q.off += p.n
			q.written += int64(p.n) // posted until publish has told what is pending with it: TryWrite must not see less
			q.c.writePosted(p.ctx, b)
		}
	}
	if q.at < len(q.run) {
		return 0
	}
	if cap(q.runData) > keepPosted {
		q.runData = nil
	}
	if cap(q.run) > keepPosted/64 {
		q.run = nil
		q.at = 0
	}
	return n
}

// refuse makes everything be refused from now on. What was accepted runs before the channel is closed.
func (q *poster) refuse() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// finish refuses everything and does what was accepted, a share at a time. It reports whether that was all.
func (q *poster) finish() bool {
	q.refuse()
	q.doQueued()
	return q.settle() == 0
}

// waited reports whether a Write waits for room.
func (q *poster) waited() bool {
	if !q.waiting.Load() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.room != nil
}

// publish tells the Refs what is pending now and lets waiting writers try again.
func (c *Channel) publish() {
	q := c.post
	if q == nil {
		return
	}
	q.pending.Store(int64(c.queuedPending()))
	q.bytes.Add(-q.written)
	q.written = 0
	q.writable.Store(c.pipe.Pipeline().Writable())
	q.shut.Store(c.life() > pipeline.LifeStarting && c.writeErr() != nil)
	if !q.waiting.Load() {
		return
	}
	q.mu.Lock()
	q.waiting.Store(false)
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
	q.mu.Unlock()
}
