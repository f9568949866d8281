package uring

import (
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

func (t *Transport) submitWatch(s *slot, op *transport.Op) {
	switch {
	case s.state == stateListening:
		t.end(op.Token, invalid)
		return
	case s.watch.active():
		t.end(op.Token, transport.ErrBusy)
		return
	}
	t.start(s, &s.watch, kindWatch, op.Token)
}

// issueWatch polls once. After EOF the poll must go on, because the ring adds POLLRDHUP to what is asked for
// (IO_POLL_UNMASK in io_uring/poll.c): it completes at once with that, and again when the socket changes.
func (t *Transport) issueWatch(s *slot) bool {
	if s.watch.stage != queued {
		return true
	}
	if s.state == stateClosing {
		t.finish(&s.watch, transport.ErrCanceled)
		return true
	}
	e := t.entry(kindWatch, s)
	if e == nil {
		return false
	}
	s.watch.stage, s.hangup = armed, false
	ring.Poll(e, s.fd, unix.POLLRDHUP, s.eof)
	return true
}

func (t *Transport) finishWatch(s *slot, e *event) {
	o := &s.watch
	more := e.flags&ring.FlagMore != 0
	switch errno := errnoOf(e.result); {
	case o.stage != armed:
		t.stats.Stale++
	case more && e.result&(unix.POLLHUP|unix.POLLERR) != 0 && !s.hangup:
		s.hangup = true // its end is this one's
		t.todo.Push(work{slot: s.index, gen: s.gen, kind: kindCancel, of: kindWatch})
	case more:
	case s.hangup || e.result >= 0 && (!s.eof || e.result&(unix.POLLHUP|unix.POLLERR) != 0):
		t.finish(o, nil)
	case (e.result >= 0 || errno == unix.EINTR || errno == unix.EAGAIN) && t.goesOn(s, o):
		t.queue(s, o, kindWatch)
	case e.result >= 0 || errno == unix.ECANCELED:
		t.finish(o, transport.ErrCanceled)
	default:
		t.finish(o, errno)
	}
}

// submitCloseWrite shuts the socket's sending side down once the Send before it has ended. The ring would use a worker
// thread for shutdown(2), which does not block.
func (t *Transport) submitCloseWrite(s *slot, op *transport.Op) {
	switch {
	case s.state == stateListening:
		t.end(op.Token, invalid)
		return
	case s.fin:
		t.end(op.Token, nil) // the first one does it
		return
	}
	s.fin, s.finToken = true, op.Token
	if !s.send.active() {
		t.closeWrite(s)
	}
}

func (t *Transport) closeWrite(s *slot) {
	s.fin = false
	if errno := sys.CloseWrite(int(s.fd)); errno != 0 {
		t.end(s.finToken, errno)
		return
	}
	t.end(s.finToken, nil)
}

func (t *Transport) submitClose(s *slot, op *transport.Op) {
	s.state, s.reset, s.closeToken = stateClosing, op.Reset, op.Token
	s.closing = queued
	t.todo.Push(work{slot: s.index, gen: s.gen, kind: kindClose})
}

// issueClose ends what was not begun, cancels what was, and closes. While a receive is armed, close(2) alone would send
// no FIN and leave the receive consuming data, because the receive holds the socket: so the close waits for the end of
// the cancellation, by a hard link, which does not mind its result.
func (t *Transport) issueClose(s *slot) bool {
	if s.closing != queued {
		return true
	}
	if t.ring.Room() < 2 {
		return false
	}
	t.endQueued(s)
	if s.fin {
		s.fin = false
		t.end(s.finToken, transport.ErrCanceled)
	}
	if s.kernel > 0 {
		e := t.entry(kindCancel, nil)
		ring.CancelDescriptor(e, s.fd)
		if s.listener == nil {
			ring.HardLink(e)
		}
	}
	if s.listener != nil { // its path has to be unlinked before: closeMaybe closes it, once the accept has ended
		s.closing = idle
		t.closeMaybe(s)
		return true
	}
	s.closing = armed
	if s.reset {
		_ = sys.ResetOnClose(int(s.fd)) // fails when the connection is already gone
	}
	e := t.entry(kindClose, s)
	ring.Close(e, s.fd)
	return true
}

// endQueued ends the operations of a closing slot that the kernel does not have.
func (t *Transport) endQueued(s *slot) {
	if s.recv.stage == queued || s.recv.stage == parked {
		t.finish(&s.recv.operation, transport.ErrCanceled)
	}
	if s.watch.stage == queued {
		t.finish(&s.watch, transport.ErrCanceled)
	}
	if s.send.stage == queued {
		t.finishSending(s, transport.ErrCanceled)
	}
	if s.listener != nil && s.listener.stage == queued {
		t.finish(&s.listener.operation, transport.ErrCanceled)
	}
}

// closeMaybe ends a Close when nothing of the slot is left in the kernel.
func (t *Transport) closeMaybe(s *slot) {
	if s.state != stateClosing || s.kernel > 0 || s.closing != idle {
		return
	}
	t.endQueued(s) // what went on while the close was under way
	token := s.closeToken
	if s.listener != nil {
		_ = s.listener.socket.Close()
	}
	t.slots.give(s)
	t.end(token, nil)
}

func (t *Transport) submitCancel(op *transport.Op) {
	s, o, k := t.target(op)
	if o == nil || !o.active() || o.canceled {
		t.end(op.Token, transport.ErrNotFound)
		return
	}
	o.canceled = true
	t.end(op.Token, nil)
	switch {
	case o.stage == armed:
		if k == kindSend {
			k = s.send.at()
		}
		t.todo.Push(work{slot: s.index, gen: s.gen, kind: kindCancel, of: k})
	case k == kindSend:
		t.finishSending(s, transport.ErrCanceled)
	case k == kindConnect:
		t.failConnect(s, transport.ErrCanceled)
	default:
		t.finish(o, transport.ErrCanceled)
	}
}

// target returns the operation that a Cancel names, with its slot and kind; nil when there is none.
func (t *Transport) target(op *transport.Op) (*slot, *operation, kind) {
	if op.Target == transport.Connect {
		if s := t.connecting[op.ConnectToken]; s != nil {
			return s, &s.dial.operation, kindConnect
		}
		return nil, nil, kindNone
	}
	s := t.slots.find(op.Handle)
	if s == nil {
		return nil, nil, kindNone
	}
	switch {
	case op.Target == transport.Recv:
		return s, &s.recv.operation, kindRecv
	case op.Target == transport.Send && s.send.file == nil, op.Target == transport.SendFile && s.send.file != nil:
		return s, &s.send.operation, kindSend
	case op.Target == transport.Accept && s.listener != nil:
		return s, &s.listener.operation, kindAccept
	case op.Target == transport.WatchClose:
		return s, &s.watch, kindWatch
	}
	return nil, nil, kindNone
}

// at is the kind of the entry that a sending has in the kernel.
func (o *sending) at() kind {
	if o.file != nil {
		return o.file.at
	}
	return kindSend
}

// issueCancel asks the kernel to end an operation. The operation says by its own completion how it ended.
func (t *Transport) issueCancel(s *slot, w *work) bool {
	if o := s.operationOf(w.of); o == nil || o.stage != armed {
		return true // it has ended by itself
	}
	e := t.entry(kindCancel, nil)
	if e == nil {
		return false
	}
	if w.of == kindAccept { // there may be several
		ring.CancelDescriptor(e, s.fd)
		return true
	}
	ring.Cancel(e, s.data(w.of))
	return true
}
