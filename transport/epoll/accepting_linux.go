package epoll

import (
	"syscall"

	"github.com/weirnet/weir/internal/sys"
)

// accept takes connections from a listener's queue; what it leaves is reported again.
func (t *Transport) accept(s *socket) {
	for range t.cfg.AcceptsPerWait {
		if !s.has(reading) {
			return
		}
		fd, errno := sys.Accept(int(s.fd), &t.peer)
		t.counters.Accepts++
		switch {
		case errno == 0:
			t.accepted(s, fd)
			if t.room == 0 {
				return
			}
		case errno == syscall.EAGAIN:
			return
		case !sys.AcceptGoesOn(errno):
			t.finish(s, reading, 0, errno)
		}
	}
}

func (t *Transport) accepted(listener *socket, fd int) {
	conn := t.sockets.add(fd, 0)
	if conn == nil {
		sys.Close(fd)
		t.finish(listener, reading, 0, syscall.ENFILE)
		return
	}
	l := listener.more.listener
	if !l.Inherits {
		// A peer that is already gone shows when it is read from.
		_ = listener.more.options.Apply(fd, l.Family, l.Known)
	}
	c := t.emit()
	c.Token, c.Handle, c.More = listener.tokens[reading], conn.handle(), listener.limit != 1
	switch listener.limit {
	case 0: // without limit
	case 1:
		listener.end(reading)
		t.markDirty(listener)
		listener.limit = 0
	default:
		listener.limit--
	}
	c.Addr, c.Unix = t.peer.AddrPort(), l.Family == syscall.AF_UNIX
}
