package uring

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

func (t *Transport) submitAccept(s *slot, op *transport.Op) {
	switch {
	case s.state != stateListening:
		t.end(op.Token, invalid)
		return
	case s.listener.active():
		t.end(op.Token, transport.ErrBusy)
		return
	}
	t.start(s, &s.listener.operation, kindAccept, op.Token)
}

func (t *Transport) issueAccept(s *slot, w *work) bool {
	l := s.listener
	switch {
	case l == nil || l.stage != queued:
		return true
	case s.state == stateClosing:
		t.finish(&l.operation, transport.ErrCanceled)
		return true
	case t.hold(w, holdAccepts, &t.counters.HeldAccepts):
		return true
	}
	e := t.entry(kindAccept, s)
	if e == nil {
		return false
	}
	ring.Accept(e, s.fd, l.multishot)
	l.stage = armed
	return true
}

func (t *Transport) finishAccept(s *slot, e *event) {
	l := s.listener
	more := e.flags&ring.FlagMore != 0
	if l == nil || l.stage != armed {
		t.stats.Stale++
		if e.result >= 0 {
			_ = sys.Close(int(e.result))
		}
		return
	}
	if e.result >= 0 {
		if more {
			t.counters.MultishotAccepts++
		}
		t.accepted(s, int(e.result))
	}
	if more {
		return
	}
	errno := syscall.Errno(0)
	if e.result < 0 {
		errno = errnoOf(e.result)
	}
	switch {
	case errno == unix.EINVAL && l.multishot: // before Linux 5.19
		l.multishot = false
		t.features &^= MultishotAccepts
	case errno == 0, errno == unix.EAGAIN, sys.AcceptGoesOn(errno):
	case errno == unix.ECANCELED:
		t.finish(&l.operation, transport.ErrCanceled)
		return
	default:
		t.finish(&l.operation, errno)
		return
	}
	if !t.goesOn(s, &l.operation) {
		t.finish(&l.operation, transport.ErrCanceled)
		return
	}
	t.queue(s, &l.operation, kindAccept)
}

// accepted hands a connection out. A multishot accept has no place for the peer's address, so it is asked for.
func (t *Transport) accepted(s *slot, fd int) {
	l := s.listener
	if !l.socket.Inherits {
		if l.options.Apply(fd, l.socket.Family, l.socket.Known) != nil {
			_ = sys.Close(fd) // as if the peer had gone
			return
		}
	}
	c := transport.Completion{Token: l.token, More: true, Unix: l.socket.Family == unix.AF_UNIX}
	if !c.Unix && sys.RemoteAddress(fd, l.socket.Family, &t.peer) == 0 {
		c.Addr = t.peer.AddrPort()
	}
	conn := t.slots.take(fd, stateOpen)
	if conn == nil {
		_ = sys.Close(fd)
		return
	}
	c.Handle = conn.handle()
	t.emit(c)
}
