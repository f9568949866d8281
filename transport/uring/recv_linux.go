package uring

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/inbox"
	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// maxLimit is the most a receive asks the kernel for; what exceeds it is asked for later.
const maxLimit = 1 << 30

func (t *Transport) submitRecv(s *slot, op *transport.Op) {
	switch {
	case s.state == stateListening || op.Limit <= 0:
		t.end(op.Token, invalid)
		return
	case s.recv.active():
		t.end(op.Token, transport.ErrBusy)
		return
	}
	s.recv.left = op.Limit
	t.start(s, &s.recv.operation, kindRecv, op.Token)
}

// issueRecv arms a receive. The kernel keeps the limit itself where it can (optlen, Linux 6.17): it ends the receive
// with the block that reaches it. Blocks are asked for as large as it takes to come out at the limit when the peer is
// fast, so that the last one goes beyond it by less than its size.
func (t *Transport) issueRecv(s *slot, w *work) bool {
	o := &s.recv
	switch {
	case o.stage != queued:
		return true
	case s.state == stateClosing:
		t.finish(&o.operation, transport.ErrCanceled)
		return true
	case t.hold(w, &t.counters.HeldReceive):
		return true
	}
	e := t.entry(kindRecv, s)
	if e == nil {
		return false
	}
	limit := min(o.left, maxLimit)
	o.polled = t.ringless
	o.multishot = !o.polled && t.features&LimitedReceives != 0
	o.used = t.blocks.used
	if t.blocks.free() == 0 {
		o.used = ^o.used
	}
	if o.polled {
		ring.Poll(e, s.fd, unix.POLLIN, false)
		t.counters.PolledReceives++
	} else if o.multishot {
		pieces := (limit + t.blocks.size - 1) / t.blocks.size
		ring.RecvLimited(e, s.fd, bufferGroup, uint32((limit+pieces-1)/pieces), uint32(limit))
		t.counters.LimitedReceives++
	} else {
		ring.Recv(e, s.fd, bufferGroup, uint32(min(limit, t.blocks.size)))
		t.counters.SingleReceives++
	}
	o.stage = armed
	return true
}

// finishRecv deals with a completion of a receive. The receive goes on when it ended before its limit, whatever its
// result was: the kernel ends a multishot receive also when the completion queue is full.
func (t *Transport) finishRecv(s *slot, e *event) {
	o := &s.recv
	more := e.flags&ring.FlagMore != 0
	if o.multishot && more {
		t.counters.MultishotReceives++
	}
	if o.polled && e.result >= 0 {
		t.receive(s)
		return
	}
	if e.result > 0 && e.flags&ring.FlagBuffer != 0 {
		t.refused = 0
		t.received(s, e, more)
		return
	}
	if e.flags&ring.FlagBuffer != 0 {
		t.blocks.recycle(uint16(e.flags >> 16))
	}
	if more {
		return
	}
	switch errno := errnoOf(e.result); {
	case e.result == 0:
		s.eof = true
		t.finish(&o.operation, io.EOF)
	case errno == syscall.ENOBUFS && t.goesOn(s, &o.operation):
		t.counters.BufferRingEmpty++
		if o.used == t.blocks.used { // there was a block, and nobody has used it
			t.refuse()
		}
		t.blocks.starved()
		t.park(s)
	case errno == syscall.EINTR || errno == syscall.EAGAIN || errno == syscall.ENOBUFS:
		t.againRecv(s)
	case errno == syscall.ECANCELED:
		t.finish(&o.operation, transport.ErrCanceled)
	default:
		t.finish(&o.operation, errno)
	}
}

// received hands out a block.
func (t *Transport) received(s *slot, e *event, more bool) {
	t.deliverBlock(s, t.blocks.lend(t, uint16(e.flags>>16)), int(e.result), more)
}

// maxRefusals is how many receives in a row the kernel may refuse a block that it has, before it is given none any
// more.
const maxRefusals = 16

// refuse notes that the kernel had a block and told a receive that it had none. One that always does would have each
// receive tried again for ever.
func (t *Transport) refuse() {
	if t.refused++; t.refused < maxRefusals || t.ringless {
		return
	}
	t.ringless = true
	if t.warn != nil {
		t.warn("io_uring: the kernel refuses the blocks that it was given (ENOBUFS): each receive is polled for instead")
	}
}

// receive takes what has arrived without the ring's blocks. What one turn receives is bounded by its batch.
func (t *Transport) receive(s *slot) {
	o := &s.recv
	if !t.goesOn(s, &o.operation) {
		t.finish(&o.operation, transport.ErrCanceled)
		return
	}
	mem := t.blocks.own()
	n, errno := sys.Recv(int(s.fd), mem[:min(o.left, len(mem))])
	if n > 0 {
		t.blocks.lent++
		t.deliverBlock(s, t.pool.Lend(t, mem), n, false)
		return
	}
	t.blocks.reserve = append(t.blocks.reserve, mem)
	switch errno {
	case 0:
		s.eof = true
		t.finish(&o.operation, io.EOF)
	case syscall.EAGAIN:
		t.queue(s, &o.operation, kindRecv)
	default:
		t.finish(&o.operation, errno)
	}
}

// deliverBlock hands out the n bytes in a block.
func (t *Transport) deliverBlock(s *slot, b *buffer.Buf, n int, more bool) {
	o := &s.recv
	b.Extend(n)
	t.stats.Received += uint64(n)
	o.left -= n
	o.fed = true
	last := o.left <= 0 && !more
	if last {
		o.stage, o.canceled = idle, false
	}
	t.emit(transport.Completion{Token: o.token, Buf: b, N: n, More: !last})
	if !last && !more {
		t.againRecv(s)
	}
}

// againRecv arms a receive again that ended before its limit, unless it was to end.
func (t *Transport) againRecv(s *slot) {
	o := &s.recv
	if !t.goesOn(s, &o.operation) {
		t.finish(&o.operation, transport.ErrCanceled)
		return
	}
	if o.multishot {
		t.counters.MultishotRearms++
	}
	t.queue(s, &o.operation, kindRecv)
}

// goesOn reports whether an operation whose entry has ended is to have another one.
func (t *Transport) goesOn(s *slot, o *operation) bool { return !o.canceled && s.state != stateClosing }

// park lets a receive wait for blocks. Those that had none since they waited last come before those that had some, so
// that a peer who floods can not keep the blocks from others.
func (t *Transport) park(s *slot) {
	s.recv.stage = parked
	w := work{slot: s.index, gen: s.gen, kind: kindRecv}
	if s.recv.fed {
		t.sated.Push(w)
	} else {
		t.hungry.Push(w)
	}
}

// unpark lets receives that found no block try again: not more than there are blocks, because each of those that find
// none again costs an entry and a completion.
func (t *Transport) unpark() {
	n := t.blocks.free()
	for _, q := range [...]*inbox.Queue[work]{&t.hungry, &t.sated} {
		for ; n > 0 && q.Len() > 0; n-- {
			w := *q.Peek()
			q.Pop()
			if s := t.slots.at(w.slot); s.gen == w.gen && s.recv.stage == parked {
				s.recv.fed = false
				t.queue(s, &s.recv.operation, kindRecv)
			}
		}
	}
}
