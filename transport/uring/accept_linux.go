package uring

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// maxAccepts is how many accepts of a listener the kernel has at a time. Each takes one connection, so what a burst
// brings, and what still comes behind a Cancel, is bounded.
const maxAccepts = 16

func (t *Transport) submitAccept(s *slot, op *transport.Op) {
	switch {
	case s.state != stateListening || op.Limit < 0:
		t.end(op.Token, invalid)
		return
	case s.listener.active():
		t.end(op.Token, transport.ErrBusy)
		return
	}
	s.listener.left, s.listener.failure = op.Limit, nil
	t.start(s, &s.listener.operation, kindAccept, op.Token)
}

// issueAccept arms as many accepts as there are credits for.
func (t *Transport) issueAccept(s *slot, w *work) bool {
	l := s.listener
	switch {
	case l == nil:
		return true
	case l.stage == idle || l.failure != nil || l.canceled:
		l.due = false
		return true
	case s.state == stateClosing:
		l.due = false
		if l.entries == 0 {
			t.finish(&l.operation, transport.ErrCanceled)
		}
		return true
	case t.hold(w, &t.counters.HeldAccepts):
		return true
	}
	for n := t.acceptCredits(l); n > 0; n-- {
		e := t.entry(kindAccept, s)
		if e == nil {
			return false
		}
		ring.Accept(e, s.fd, t.features&VectoredSends != 0) // of Linux 6.17, which has this, too
		l.stage = armed
		l.entries++
		t.accepting++
	}
	l.due = false
	return true
}

// acceptCredits returns how many more accepts of a listener may be armed. One always may: it completes once, as an idle
// receive does, so that no listener waits for what others do not use.
func (t *Transport) acceptCredits(l *listener) int {
	n := l.most - l.entries
	if t.gate != gateOpen {
		n = 1 - l.entries
	}
	if l.left > 0 {
		n = min(n, l.left-l.entries)
	}
	if l.entries == 0 {
		return max(1, min(n, t.credits.accepts-t.accepting))
	}
	return min(n, t.credits.accepts-t.accepting)
}

func (t *Transport) finishAccept(s *slot, e *event) {
	l := s.listener
	t.accepting--
	if l == nil || l.stage != armed {
		t.stats.Stale++
		if e.result >= 0 {
			_ = sys.Close(int(e.result))
		}
		return
	}
	l.entries--
	if e.result >= 0 {
		t.accepted(s, int(e.result))
	} else if errno := errnoOf(e.result); errno != unix.EAGAIN && errno != unix.ECANCELED && !sys.AcceptGoesOn(errno) {
		t.failAccept(s, errno)
	}
	switch {
	case l.stage == idle: // that was the last one
	case l.failure == nil && t.goesOn(s, &l.operation):
		if l.entries == 0 {
			l.stage = queued
		}
		if !l.due {
			l.due = true
			t.todo.Push(work{slot: s.index, gen: s.gen, kind: kindAccept})
		}
	case l.entries > 0: // they end, too
	case l.failure != nil:
		t.finish(&l.operation, l.failure)
	default:
		t.finish(&l.operation, transport.ErrCanceled)
	}
}

// failAccept notes what ends the Accept. What else is armed is taken back; connections that come meanwhile are handed
// out.
func (t *Transport) failAccept(s *slot, errno syscall.Errno) {
	l := s.listener
	if l.failure != nil {
		return
	}
	l.failure = errno
	if l.entries > 0 {
		t.todo.Push(work{slot: s.index, gen: s.gen, kind: kindCancel, of: kindAccept})
	}
}

// accepted hands a connection out. Its address is asked for: who has reset meanwhile has one, too.
func (t *Transport) accepted(s *slot, fd int) {
	l := s.listener
	if !l.socket.Inherits {
		// A peer that is already gone shows when it is read from.
		_ = l.options.Apply(fd, l.socket.Family, l.socket.Known)
	}
	c := transport.Completion{Token: l.token, More: true, Unix: l.socket.Family == unix.AF_UNIX}
	if !c.Unix && sys.RemoteAddress(fd, l.socket.Family, &t.peer) == 0 {
		c.Addr = t.peer.AddrPort()
	}
	conn := t.slots.take(fd, stateOpen)
	if conn == nil {
		_ = sys.Close(fd)
		t.failAccept(s, unix.ENFILE)
		return
	}
	c.Handle = conn.handle()
	if l.left > 0 {
		l.left--
		c.More = l.left > 0
	}
	if !c.More { // never more are armed than may come
		l.stage, l.canceled = idle, false
	}
	t.emit(c)
}
