package weir

import (
	"sync/atomic"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// resumesPerTurn is how many channels a loop lets read again in one turn, so that what they read can be seen before all
// others read, too.
const resumesPerTurn = 64

// pendingLevel is what all channels on a server's loops have pending, against Server.MaxPendingBytes. Any goroutine.
type pendingLevel struct {
	most    int64     // 0: nothing is counted
	workers []*worker // to be told when it falls

	bytes atomic.Int64
	high  atomic.Bool // above most, and since then not at or below half of it
	rises atomic.Uint64
}

func (l *pendingLevel) add(n int) {
	v := l.bytes.Add(int64(n))
	if high := l.high.Load(); high && v > l.most/2 || !high && v <= l.most {
		return
	}
	l.settle()
}

// settle turns the level until it fits the value: another goroutine may have changed that after it was looked at.
func (l *pendingLevel) settle() {
	for {
		v, high := l.bytes.Load(), l.high.Load()
		switch {
		case !high && v > l.most:
			if l.high.CompareAndSwap(false, true) {
				l.rises.Add(1)
			}
		case high && v <= l.most/2:
			if l.high.CompareAndSwap(true, false) {
				for _, w := range l.workers {
					w.wakeReaders()
				}
			}
		default:
			return
		}
	}
}

// readers are the channels of a loop that do not read because the server has too much pending, longest first. It
// belongs to the loop, but for waking.
type readers struct {
	first, last *gauge
	count       atomic.Int64
	waking      atomic.Bool // resumeReaders will come
}

// wakeReaders makes the loop look which channels may read again. Any goroutine.
func (w *worker) wakeReaders() {
	if !w.readers.waking.Swap(true) {
		w.do(w.resumeReaders)
	}
}

func (w *worker) resumeReaders() {
	r := &w.readers
	r.waking.Store(false)
	for n := 0; n < resumesPerTurn && r.first != nil && !w.pending.high.Load(); n++ {
		g := r.first
		r.remove(g)
		g.ctx.Resume()
	}
	if r.first != nil && !w.pending.high.Load() {
		w.wakeReaders()
	}
}

func (r *readers) add(g *gauge) {
	g.paused, g.prev = true, r.last
	if r.last == nil {
		r.first = g
	} else {
		r.last.next = g
	}
	r.last = g
	r.count.Add(1)
}

func (r *readers) remove(g *gauge) {
	if !g.paused {
		return
	}
	if g.prev == nil {
		r.first = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		r.last = g.prev
	} else {
		g.next.prev = g.prev
	}
	g.paused, g.next, g.prev = false, nil, nil
	r.count.Add(-1)
}

// gauge counts what one channel has pending, and pauses it when there is too much in all. It belongs to the loop.
type gauge struct {
	w          *worker
	from       origin
	ctx        *pipeline.Context
	watcher    func(*pipeline.Context, int) error // count, made once
	counted    int
	paused     bool // in w.readers
	next, prev *gauge
}

var (
	_ pipeline.AddedHandler   = (*gauge)(nil)
	_ pipeline.ReadHandler    = (*gauge)(nil)
	_ pipeline.RemovedHandler = (*gauge)(nil)
)

// watchPending makes a new channel count for Server.MaxPendingBytes.
func (w *worker) watchPending(c *channel.Channel, from origin) {
	if w.pending.most == 0 {
		return
	}
	if err := c.Pipeline().AddFirst("", &gauge{w: w, from: from}); err != nil {
		c.Abort(err)
	}
}

// HandlerAdded begins to count.
func (g *gauge) HandlerAdded(ctx *pipeline.Context) error {
	g.ctx, g.watcher = ctx, g.count
	return g.count(ctx, ctx.Pending())
}

// HandlerRemoved gives back what was counted.
func (g *gauge) HandlerRemoved(*pipeline.Context) error {
	g.w.readers.remove(g)
	g.w.pending.add(-g.counted)
	g.counted = 0
	return nil
}

// ChannelRead passes msg on and lets nothing more come while there is too much pending. What the server has dialed
// reads on: a backend that cannot get rid of its responses may stop taking requests, and then nothing would ever
// fall. It borrows msg until return.
func (g *gauge) ChannelRead(ctx *pipeline.Context, msg any) error {
	if g.from == fromAccept && !g.paused && g.w.pending.high.Load() {
		g.w.readers.add(g)
		ctx.Pause()
	}
	ctx.FireRead(msg)
	return nil
}

// count is called at the end of a turn that has changed what is pending.
func (g *gauge) count(ctx *pipeline.Context, pendingBytes int) error {
	g.w.pending.add(pendingBytes - g.counted)
	g.counted = pendingBytes
	ctx.WatchPending(pendingBytes-1, pendingBytes+1, g.watcher)
	return nil
}
