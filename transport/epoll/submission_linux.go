package epoll

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

var errTooMany = errors.New("epoll: 2^28 sockets are open")

// Submit starts an operation; it panics on KindNone and on kinds that do not exist. After Close it does nothing.
func (t *Transport) Submit(op transport.Op) {
	if t.closed {
		return
	}
	switch op.Kind {
	case transport.Connect:
		t.submitConnect(&op)
		return
	case transport.Cancel:
		t.submitCancel(&op)
		return
	}
	s := t.sockets.lookup(op.Handle)
	if s == nil && op.Kind > transport.KindNone && op.Kind < transport.Cancel {
		t.fail(op.Token, transport.ErrStale)
		return
	}
	switch op.Kind {
	case transport.Recv:
		t.submitRecv(s, &op)
	case transport.Send:
		t.submitSend(s, &op)
	case transport.SendFile:
		t.submitSendFile(s, &op)
	case transport.Accept:
		t.submitAccept(s, &op)
	case transport.WatchClose:
		t.submitWatchClose(s, &op)
	case transport.CloseWrite:
		t.submitCloseWrite(s, &op)
	case transport.Close:
		t.submitClose(s, &op)
	default:
		panic(fmt.Sprintf("epoll: Submit of kind %d", op.Kind))
	}
}

func (t *Transport) submitRecv(s *socket, op *transport.Op) {
	switch {
	case s.has(reading) && !s.is(flagListener):
		t.fail(op.Token, transport.ErrBusy)
	case s.is(flagListener) || op.Limit <= 0:
		t.fail(op.Token, syscall.EINVAL)
	default:
		s.limit = op.Limit
		s.begin(reading, op.Token)
		t.markDirty(s)
	}
}

func (t *Transport) submitAccept(s *socket, op *transport.Op) {
	switch {
	case !s.is(flagListener):
		t.fail(op.Token, syscall.EINVAL)
	case s.has(reading):
		t.fail(op.Token, transport.ErrBusy)
	case op.Limit < 0:
		t.fail(op.Token, syscall.EINVAL)
	default:
		s.limit = op.Limit
		s.begin(reading, op.Token)
		t.markDirty(s)
	}
}

func (t *Transport) submitWatchClose(s *socket, op *transport.Op) {
	switch {
	case s.is(flagListener):
		t.fail(op.Token, syscall.EINVAL)
	case s.has(watching):
		t.fail(op.Token, transport.ErrBusy)
	default:
		s.flags &^= flagWatchBreak
		if s.is(flagEOF) {
			s.flags |= flagWatchBreak
		}
		s.begin(watching, op.Token)
		t.markDirty(s)
	}
}

func (t *Transport) submitCloseWrite(s *socket, op *transport.Op) {
	if s.is(flagListener) { // shutdown(2) of a listening socket ends it on Linux
		t.fail(op.Token, syscall.EINVAL)
		return
	}
	errno := sys.CloseWrite(int(s.fd))
	if errno != 0 {
		t.fail(op.Token, errno)
		return
	}
	t.emit().Token = op.Token
}

// submitClose ends what is in progress, closes the socket and completes, in this order.
func (t *Transport) submitClose(s *socket, op *transport.Op) {
	for which := range operations {
		if s.has(which) {
			t.finish(s, which, 0, transport.ErrCanceled)
		}
	}
	t.shut(s, op.Reset)
	t.emit().Token = op.Token
}

func (t *Transport) submitCancel(op *transport.Op) {
	if op.Target == transport.Connect {
		if s := t.connecting[op.ConnectToken]; s != nil {
			t.failConnect(s, transport.ErrCanceled)
			t.emit().Token = op.Token
			return
		}
	} else if s := t.sockets.lookup(op.Handle); s != nil {
		if which := s.target(op.Target); which < operations && s.has(which) {
			t.finish(s, which, 0, transport.ErrCanceled)
			t.emit().Token = op.Token
			return
		}
	}
	t.fail(op.Token, transport.ErrNotFound)
}

// target is the place of the operation that a Cancel of kind names; operations when there is none.
func (s *socket) target(kind transport.Kind) operation {
	switch {
	case kind == transport.Accept && s.is(flagListener), kind == transport.Recv && !s.is(flagListener):
		return reading
	case kind == transport.Send && s.file == nil, kind == transport.SendFile && s.file != nil:
		return writing
	case kind == transport.WatchClose:
		return watching
	}
	return operations
}

// fail completes an operation that is not, or no longer, in progress.
func (t *Transport) fail(token transport.Token, err error) {
	c := t.emit()
	c.Token, c.Err = token, err
}

// shut closes a socket on which nothing is in progress and frees its slot.
func (t *Transport) shut(s *socket, reset bool) {
	fd := int(s.fd)
	if s.is(flagInEpoll) && s.is(flagShared) {
		// Closing takes a descriptor out of epoll only if no other refers to the same socket (epoll(7), question 6).
		t.leave(s)
	}
	if reset {
		sys.ResetOnClose(fd)
	}
	if s.is(flagListener) {
		_ = s.more.listener.Close()
	} else {
		sys.Close(fd)
	}
	t.sockets.remove(s)
}
