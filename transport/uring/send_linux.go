package uring

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/transport"
)

const (
	// A send that must not wait: the kernel takes what it has room for and says only when that was not all.
	flagsNow = unix.MSG_DONTWAIT | unix.MSG_WAITALL | unix.MSG_NOSIGNAL
	// A send that waits for room and completes with what it then got rid of.
	flagsPlain = unix.MSG_NOSIGNAL

	maxChunk = 1 << 30 // bytes of one entry: below MAX_RW_COUNT, write(2)
)

// SendNow borrows bufs until return and does nothing: a ring's sends go to the kernel with the next system call that is
// due anyway.
func (t *Transport) SendNow(transport.Handle, []*buffer.Buf) (int, error) {
	return 0, transport.ErrNotNow
}

func (t *Transport) submitSend(s *slot, op *transport.Op) {
	switch {
	case s.state == stateListening:
		t.end(op.Token, invalid)
		return
	case s.send.active():
		t.end(op.Token, transport.ErrBusy)
		return
	}
	o := t.slots.sends(s)
	o.bufs, o.noWait = op.Bufs, op.NoWait
	if op.NoWait {
		t.urgent++
	}
	t.start(s, &o.operation, kindSend, op.Token)
}

// issueSend makes the entry for what is left of a send. The first attempt must not wait and goes without a completion:
// most sends are taken whole, and settle knows. What was not taken waits for room as an ordinary entry.
func (t *Transport) issueSend(s *slot) bool {
	o := s.send
	if o.stage != queued {
		return true
	}
	for o.next < len(o.bufs) && o.bufs[o.next].Len() == o.offset {
		o.next, o.offset = o.next+1, 0
	}
	if o.next == len(o.bufs) {
		t.sentBytes(s, 0, 0) // nothing to send
		return true
	}
	flags := uint32(flagsNow)
	if o.plain {
		flags = flagsPlain
	}
	if !t.prepareSend(s, flags) {
		return false
	}
	o.stage = armed
	o.skipped = !o.plain && t.features&SkippedSends != 0
	if o.skipped {
		t.unsettled = append(t.unsettled, sent{
			slot: s.index, gen: s.gen, position: t.ring.Prepared(), awaited: !o.noWait,
		})
		if !o.noWait {
			t.awaited++
		}
	} else {
		t.counters.OrdinarySends++
	}
	return true
}

// prepareSend fills an entry with the Bufs that are left, as many as it takes.
func (t *Transport) prepareSend(s *slot, flags uint32) bool {
	o := s.send
	left := len(o.bufs) - o.next
	var v []ring.Vector
	var h *ring.MessageHeader
	if left > 1 {
		if v = t.arena.Vectors(min(left, ring.MaxVectors)); v == nil {
			return false
		}
		if t.features&VectoredSends == 0 {
			if h = t.arena.Header(); h == nil {
				return false
			}
		}
	}
	e := t.entry(kindSend, s)
	if e == nil {
		return false
	}
	p := o.bufs[o.next].Bytes()[o.offset:]
	if len(p) > maxChunk {
		p = p[:maxChunk]
	}
	o.chunk = len(p)
	if n := t.vectors(o, v, p); n > 1 {
		t.counters.VectoredSends++
		if h != nil {
			ring.SendMessage(e, s.fd, h, v[:n], flags)
		} else {
			ring.SendVectors(e, s.fd, v[:n], flags)
		}
	} else {
		ring.Send(e, s.fd, p, flags)
	}
	if !o.plain && t.features&SkippedSends != 0 {
		ring.SkipSuccess(e)
	}
	return true
}

// vectors fills v with p and the Bufs after it and returns how many it used.
func (t *Transport) vectors(o *sending, v []ring.Vector, p []byte) int {
	if len(v) == 0 {
		return 0
	}
	v[0] = ring.MakeVector(p)
	n := 1
	for _, b := range o.bufs[o.next+1:] {
		if n == len(v) || o.chunk+b.Len() > maxChunk {
			break
		}
		if b.Len() == 0 {
			continue
		}
		v[n] = ring.MakeVector(b.Bytes())
		o.chunk += b.Len()
		n++
	}
	return n
}

// finishSend deals with the completion of a send's entry.
func (t *Transport) finishSend(e *event) {
	s := t.slots.owner(e.data)
	if s == nil {
		t.stale(kindSend, e)
		return
	}
	t.returned(s)
	n, errno := int(e.result), syscall.Errno(0)
	if e.result < 0 {
		n, errno = 0, errnoOf(e.result)
	}
	t.sentBytes(s, n, errno)
	t.closeMaybe(s)
}

// sentBytes goes on with a send after n bytes of its entry were taken.
func (t *Transport) sentBytes(s *slot, n int, errno syscall.Errno) {
	o := s.send
	t.stats.Sent += uint64(n)
	o.reported += n
	short := o.stage == armed && n < o.chunk && (errno == 0 || errno == syscall.EAGAIN)
	o.advance(n)
	if short {
		t.counters.ShortSends++
	}
	switch {
	case errno == syscall.ECANCELED:
		t.finishSending(s, transport.ErrCanceled)
		return
	case errno != 0 && errno != syscall.EAGAIN && errno != syscall.EINTR:
		t.finishSending(s, errno)
		return
	}
	switch {
	case o.next == len(o.bufs):
		t.sentBufs(s)
	case o.noWait && short:
		t.finishSending(s, transport.ErrWouldBlock)
	case !t.goesOn(s, &o.operation):
		t.finishSending(s, transport.ErrCanceled)
	default:
		if short {
			o.plain = true
			t.progress(o)
		}
		t.queue(s, &o.operation, kindSend)
	}
}

// sentBufs goes on after all Bufs were sent.
func (t *Transport) sentBufs(s *slot) {
	if s.send.file != nil {
		t.sentCopy(s)
		return
	}
	t.finishSending(s, nil)
}

// advance moves on by n bytes.
func (o *sending) advance(n int) {
	for o.next < len(o.bufs) {
		left := o.bufs[o.next].Len() - o.offset
		if n < left {
			o.offset += n
			return
		}
		n -= left
		o.next, o.offset = o.next+1, 0
	}
}

// progress tells of what was sent so far.
func (t *Transport) progress(o *sending) {
	if o.reported == 0 {
		return
	}
	t.emit(transport.Completion{Token: o.token, N: o.reported, More: true})
	o.reported = 0
}

// finishSending ends a Send or SendFile.
func (t *Transport) finishSending(s *slot, err error) {
	o := s.send
	c := transport.Completion{Token: o.token, N: o.reported, Err: err}
	if o.noWait {
		t.urgent--
	}
	if o.file != nil {
		o.file.drop(t)
	}
	t.slots.sent(s)
	t.emit(c)
	if s.fin {
		t.closeWrite(s)
	}
}
