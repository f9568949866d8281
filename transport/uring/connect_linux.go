package uring

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

func (t *Transport) submitConnect(op *transport.Op) {
	cfg := op.Dial
	if cfg == nil {
		t.end(op.Token, invalid)
		return
	}
	d := &dialing{bound: cfg.LocalAddress != ""}
	fd, err := sys.OpenDialSocket(&sys.DialOptions{
		Network: cfg.Network, Address: cfg.Address, LocalAddress: cfg.LocalAddress, Control: cfg.Control,
		Socket: sys.SocketOptions(cfg.Socket),
	}, &d.to)
	if err != nil {
		t.end(op.Token, fmt.Errorf("uring: connect %s %s: %w", cfg.Network, cfg.Address, err))
		return
	}
	s := t.slots.take(fd, stateConnecting)
	if s == nil {
		_ = sys.Close(fd)
		t.end(op.Token, errTooMany)
		return
	}
	s.dial = d
	t.connecting[op.Token] = s
	t.start(s, &d.operation, kindConnect, op.Token)
}

func (t *Transport) issueConnect(s *slot) bool {
	d := s.dial
	if d == nil || d.stage != queued {
		return true
	}
	if d.to.Family() == unix.AF_UNIX {
		// connect(2) of a Unix socket does not wait. When the listener's queue is full it fails with EAGAIN; the ring
		// would poll for a room that nobody reports and try again in a worker thread.
		t.connected(s, sys.Connect(int(s.fd), &d.to))
		return true
	}
	name := t.arena.Name(d.to.Pointer(), d.to.Size())
	if name == nil {
		return false
	}
	e := t.entry(kindConnect, s)
	if e == nil {
		return false
	}
	ring.Connect(e, s.fd, name)
	d.stage = armed
	return true
}

func (t *Transport) finishConnect(s *slot, e *event) {
	d := s.dial
	if d == nil || d.stage != armed {
		t.stats.Stale++
		return
	}
	errno := syscall.Errno(0)
	if e.result < 0 {
		errno = errnoOf(e.result)
	}
	t.connected(s, errno)
}

// connected ends a Connect.
func (t *Transport) connected(s *slot, errno syscall.Errno) {
	d := s.dial
	switch {
	case errno == unix.ECANCELED:
		t.failConnect(s, transport.ErrCanceled)
	case errno != 0:
		t.failConnect(s, errno)
	case !d.bound && sys.ConnectedToItself(int(s.fd), &d.to):
		t.failConnect(s, unix.ECONNREFUSED) // nobody listens there
	default:
		delete(t.connecting, d.token)
		s.state, s.dial = stateOpen, nil
		t.emit(transport.Completion{
			Token: d.token, Handle: s.handle(), Addr: d.to.AddrPort(), Unix: d.to.Family() == unix.AF_UNIX,
		})
	}
}

// failConnect frees a slot that did not become a connection.
func (t *Transport) failConnect(s *slot, err error) {
	token := s.dial.token
	delete(t.connecting, token)
	_ = sys.Close(int(s.fd))
	t.slots.give(s)
	t.end(token, err)
}
