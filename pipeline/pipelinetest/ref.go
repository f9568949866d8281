package pipelinetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/pipeline"
)

// poster is what the Refs of a channel share: what other goroutines asked for, in their order.
type poster struct {
	c    *Channel
	done chan struct{}

	bytes    atomic.Int64 // posted and not yet written
	pending  atomic.Int64 // the channel's, without bytes, as of the last turn
	writable atomic.Bool

	mu sync.Mutex
	// guarded by mu
	queue  []posted
	tasks  int
	room   chan struct{} // closed when there may be room; nil when nobody waits
	closed bool
}

// posted is one thing to do: fn, or to write b, or else to close.
type posted struct {
	ctx *pipeline.Context
	fn  func(*pipeline.Context)
	b   []byte
}

type ref struct {
	p   *poster
	ctx *pipeline.Context
}

var _ pipeline.Ref = ref{}

func newPoster(c *Channel) *poster {
	p := &poster{c: c, done: make(chan struct{})}
	p.writable.Store(true)
	return p
}

// TryWrite copies b and posts it.
func (r ref) TryWrite(b []byte) error {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.write(b)
}

// write posts b. The caller holds mu.
func (r ref) write(b []byte) error {
	q := r.p
	if q.closed {
		return pipeline.ErrClosed
	}
	have, limit := int(q.bytes.Load()+q.pending.Load()), q.c.cfg.MaxPendingBytes
	if have+len(b) > limit {
		return fmt.Errorf("%w: write of %d bytes with %d pending, limit %d", pipeline.ErrFull, len(b), have, limit)
	}
	q.bytes.Add(int64(len(b)))
	q.queue = append(q.queue, posted{ctx: r.ctx, b: append(make([]byte, 0, len(b)), b...)})
	return nil
}

// Write is TryWrite that waits for room.
func (r ref) Write(ctx context.Context, b []byte) error {
	q := r.p
	for {
		q.mu.Lock()
		err := r.write(b)
		if err == nil || q.closed || len(b) > q.c.cfg.MaxPendingBytes {
			q.mu.Unlock()
			return err
		}
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		if goroutine() == q.c.l.thread {
			return fmt.Errorf("%w: %w", pipeline.ErrWouldDeadlock, err)
		}
		select {
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
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return pipeline.ErrClosed
	case q.tasks >= q.c.cfg.MaxPostedTasks:
		return fmt.Errorf("%w: %d tasks of this channel wait", pipeline.ErrFull, q.tasks)
	}
	q.tasks++
	q.queue = append(q.queue, posted{ctx: r.ctx, fn: fn})
	return nil
}

// Close posts an orderly close.
func (r ref) Close() error {
	q := r.p
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return pipeline.ErrClosed
	}
	q.queue = append(q.queue, posted{ctx: r.ctx})
	return nil
}

// Pending is the channel's as of its last turn, with what is posted now.
func (r ref) Pending() int { return int(r.p.bytes.Load() + r.p.pending.Load()) }

// Writable is the channel's as of its last turn.
func (r ref) Writable() bool { return r.p.writable.Load() }

// Closed is closed when the channel is.
func (r ref) Closed() <-chan struct{} { return r.p.done }

// ID is the channel's.
func (r ref) ID() uint64 { return r.p.c.id }

func (q *poster) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 0
}

// drain does what was posted until now.
func (q *poster) drain() {
	q.mu.Lock()
	n := len(q.queue)
	q.mu.Unlock()
	for range n {
		q.runOne()
	}
	q.c.dirty = true // publishes
}

func (q *poster) runOne() {
	q.mu.Lock()
	p := q.queue[0]
	q.queue = q.queue[1:]
	if p.fn != nil {
		q.tasks--
	}
	q.mu.Unlock()
	switch {
	case p.fn != nil:
		p.fn(p.ctx)
	case p.b != nil:
		q.bytes.Add(-int64(len(p.b)))
		_ = p.ctx.WriteBytes(p.b) // closed meanwhile: as with any socket, the bytes are lost
	default:
		_ = p.ctx.Close() // the handlers' answer has nobody to go to
	}
}

// finish refuses everything from now on and runs what was accepted: in this order, or a task that posts itself again would
// never end.
func (q *poster) finish() {
	q.mu.Lock()
	q.closed = true
	n := len(q.queue)
	q.mu.Unlock()
	for range n {
		q.runOne()
	}
}

// publish tells the Refs what is pending now and lets waiting writers try again.
func (c *Channel) publish() {
	q := c.post
	q.pending.Store(int64(c.Pending()) - q.bytes.Load())
	q.writable.Store(c.pipe.Pipeline().Writable())
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}
