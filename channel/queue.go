package channel

import (
	"math"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

const (
	// keepItems is up to how many entries the queue's array is kept while it is empty.
	keepItems = 64
	// maxSpare is how many empty queues are kept for the channels of a listener on one loop.
	maxSpare = 256
)

// item is an entry of the write queue: a Buf, or a file region when buf is nil.
type item struct {
	buf    *buffer.Buf
	region *region
	charge int // what it counts in pending, bytes
}

// region is a queued file region.
type region struct {
	file transport.FileRange
	done func(error)
}

// queue is what is queued: blocks, of which the last may be open for appending, and who waits for them. Most channels
// have nothing queued most of the time, so those of a listener on a loop share a few.
type queue struct {
	items  []item // not yet completely sent; those of the flight first
	tail   *buffer.Buf
	flight []*buffer.Buf // what the Send in flight borrows
	inAir  int           // how many items that is
	fresh  int           // items from here on may hold lent blocks and must not outlive the turn unsent
	// regions is how many file regions are among the items; each is an open descriptor.
	regions int
	files   int // charges of file regions, which are no memory: they do not count against MaxPendingBytes

	// Positions in the stream, counted from where the queue was last empty.
	head   uint64 // of the first entry
	sent   uint64 // of what the kernel has taken
	queued uint64 // behind what is sealed
	waits  []flushed
}

// idle reports whether there is nothing in the queue and nobody waits for it.
func (q *queue) idle() bool { return len(q.items) == 0 && len(q.waits) == 0 && q.inAir == 0 }

// takeQueue makes the queue one that can be added to.
func (c *Channel) takeQueue() {
	s := c.cfg
	if c.out.queue != &s.empty {
		return
	}
	last := len(s.spare) - 1
	if last < 0 {
		c.out.queue = &queue{}
		return
	}
	c.out.queue = s.spare[last]
	s.spare = s.spare[:last]
}

// returnQueue gives an idle queue to whoever has something to send next.
func (c *Channel) returnQueue() {
	q, s := c.out.queue, c.cfg
	if q == &s.empty || !q.idle() {
		return
	}
	c.out.queue = &s.empty
	if len(s.spare) < maxSpare {
		q.head, q.sent, q.queued, q.fresh = 0, 0, 0, 0
		s.spare = append(s.spare, q)
	}
}

// advance consumes the first n bytes of an entry that was sent in part.
func (o *writing) advance(it *item, n int64) {
	o.head += uint64(n)
	if it.region != nil {
		it.region.file.Offset += n
		it.region.file.Length -= n
		o.countFile(it, it.region.file.Length)
		return
	}
	it.buf.Advance(int(n))
}

// countFile makes a file region count for the bytes that are left of it.
func (o *writing) countFile(it *item, left int64) {
	n := int(min(left, math.MaxInt32)) - it.charge
	it.charge += n
	o.pending += n
	o.files += n
}

// shift removes the first n entries, which are empty.
func (o *writing) shift(n int) {
	if n == 0 {
		return
	}
	k := copy(o.items, o.items[n:])
	clear(o.items[k:])
	o.items = o.items[:k]
	o.fresh = max(0, o.fresh-n)
	if k > 0 {
		o.recharge(0) // it may have shared the block of one that is gone
	} else if cap(o.items) > keepItems {
		o.items = nil
	}
}

// detachUnsent gives what stays queued past this turn memory of its own: a block lent by the transport leaves it or is
// copied out of, so that a stalled peer starves nobody; what a slow peer keeps waiting is shrunk.
func (o *writing) detachUnsent() {
	if len(o.items) == 0 {
		return
	}
	for i := max(o.fresh, o.inAir); i < len(o.items); i++ {
		it := &o.items[i]
		if it.buf == nil || it.buf == o.tail {
			continue
		}
		it.buf = it.buf.Detach()
		if o.stalled {
			it.buf.Shrink()
		}
		o.recharge(i)
	}
	o.fresh = len(o.items)
}

// recharge corrects what entry i counts after its block, or its neighbour, has changed.
func (o *writing) recharge(i int) {
	it := &o.items[i]
	if it.buf == nil {
		return
	}
	now := it.buf.Cap()
	if i > 0 && o.items[i-1].buf != nil && it.buf.SameBlock(o.items[i-1].buf) {
		now = 0
	}
	o.pending += now - it.charge
	it.charge = now
}

func (it *item) len() int64 {
	if it.region != nil {
		return it.region.file.Length
	}
	return int64(it.buf.Len())
}

// release gives up an entry: sent (nil) or not.
func (it *item) release(err error) {
	if it.buf != nil {
		it.buf.Release()
		return
	}
	if done := it.region.done; done != nil {
		it.region.done = nil
		done(err)
	}
}
