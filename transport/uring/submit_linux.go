package uring

import (
	"fmt"
	"syscall"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/transport"
)

// Submit implements transport.Transport. It only notes what is to be done; the next Wait makes the entries, in the
// order of the Submits.
func (t *Transport) Submit(op transport.Op) {
	if t.closed {
		return
	}
	switch op.Kind {
	case transport.Cancel:
		t.submitCancel(&op)
		return
	case transport.Connect:
		t.submitConnect(&op)
		return
	}
	s := t.slots.find(op.Handle)
	if s == nil {
		t.end(op.Token, transport.ErrStale)
		return
	}
	switch op.Kind {
	case transport.Recv:
		t.submitRecv(s, &op)
	case transport.Send:
		t.submitSend(s, &op)
	case transport.SendFile:
		t.submitFile(s, &op)
	case transport.Accept:
		t.submitAccept(s, &op)
	case transport.WatchClose:
		t.submitWatch(s, &op)
	case transport.CloseWrite:
		t.submitCloseWrite(s, &op)
	case transport.Close:
		t.submitClose(s, &op)
	default:
		panic(fmt.Sprintf("uring: Submit of kind %d", op.Kind))
	}
}

// end completes an operation without data.
func (t *Transport) end(token transport.Token, err error) {
	t.emit(transport.Completion{Token: token, Err: err})
}

// start begins an operation: its entry is made by the next Wait.
func (t *Transport) start(s *slot, o *operation, k kind, token transport.Token) {
	o.token, o.canceled = token, false
	t.queue(s, o, k)
}

// queue asks for an entry.
func (t *Transport) queue(s *slot, o *operation, k kind) {
	o.stage = queued
	t.todo.Push(work{slot: s.index, gen: s.gen, kind: k})
}

// finish ends an operation.
func (t *Transport) finish(o *operation, err error) {
	o.stage, o.canceled = idle, false
	t.end(o.token, err)
}

// entry returns a fresh entry of the ring for an operation of s (nil: of nobody), or nil when the queue is full.
func (t *Transport) entry(k kind, s *slot) *ring.SQE {
	e := t.ring.Get()
	if e == nil {
		return nil
	}
	t.outstanding++
	if s == nil {
		e.SetUserData(uint64(k) << 56)
		return e
	}
	s.kernel++
	e.SetUserData(s.data(k))
	return e
}

// issue makes entries for what is to be done. It returns true when it stopped because a queue or the arena is full:
// after an enter there is room again.
//
// An entry that completes needs a place in the completion queue. Those that complete at once never get more places than
// the shares of accepts and blocks leave, see credits.
func (t *Transport) issue() (more bool) {
	room := t.room()
	for t.todo.Len() > 0 {
		if room < 2 { // a Close makes two entries
			return true
		}
		w := *t.todo.Peek()
		before := t.ring.Prepared()
		if !t.issueOne(&w) {
			return true
		}
		t.todo.Pop()
		if w.kind != kindAccept { // it has its own share
			room -= int(t.ring.Prepared() - before)
		}
	}
	return false
}

// issueOne makes the entry of w, unless it is no longer wanted. It returns false when there is no room.
func (t *Transport) issueOne(w *work) bool {
	if w.kind == kindWake {
		return t.issueWake()
	}
	s := t.slots.at(w.slot)
	if s.gen != w.gen {
		return true
	}
	switch w.kind {
	case kindRecv:
		return t.issueRecv(s, w)
	case kindSend:
		return t.issueSend(s)
	case kindFill, kindRead, kindDrain:
		return t.issueFile(s, w.kind)
	case kindAccept:
		return t.issueAccept(s, w)
	case kindConnect:
		return t.issueConnect(s)
	case kindWatch:
		return t.issueWatch(s)
	case kindClose:
		return t.issueClose(s)
	case kindCancel:
		return t.issueCancel(s, w)
	}
	return true
}

// invalid is the error for an operation that makes no sense on its Handle.
const invalid = syscall.EINVAL
