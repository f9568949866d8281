package epoll

import (
	"syscall"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// submitConnect starts a connection. A Unix socket whose listener's queue is full fails with EAGAIN at once, as in net:
// nothing reports when there is room again (connect(2)).
func (t *Transport) submitConnect(op *transport.Op) {
	d := op.Dial
	if d == nil {
		t.fail(op.Token, syscall.EINVAL)
		return
	}
	to := new(sys.Sockaddr)
	fd, err := sys.OpenDialSocket(&sys.DialOptions{
		Network: d.Network, Address: d.Address, LocalAddress: d.LocalAddress, Control: d.Control,
		Socket: sys.SocketOptions(d.Socket),
	}, to)
	if err != nil {
		t.fail(op.Token, err)
		return
	}
	errno := sys.Connect(fd, to)
	if errno != 0 && errno != syscall.EINPROGRESS {
		sys.Close(fd)
		t.fail(op.Token, errno)
		return
	}
	s := t.sockets.add(fd, flagConnecting)
	if s == nil {
		sys.Close(fd)
		t.fail(op.Token, errTooMany)
		return
	}
	if d.Control != nil {
		s.flags |= flagShared
	}
	s.more = &setup{remote: to, bound: d.LocalAddress != ""}
	s.begin(reading, op.Token)
	t.connecting[op.Token] = s
	if errno == 0 {
		t.connected(s)
		return
	}
	t.markDirty(s)
}

// finishConnect looks how a connection attempt ended (connect(2), EINPROGRESS).
func (t *Transport) finishConnect(s *socket, events uint32) {
	if events&(sys.EpollOut|sys.EpollErr|sys.EpollHup) == 0 {
		return
	}
	switch errno := sys.SocketError(int(s.fd)); errno {
	case 0:
		t.connected(s)
	case syscall.EINPROGRESS, syscall.EALREADY:
	default:
		t.failConnect(s, errno)
	}
}

func (t *Transport) connected(s *socket) {
	to := s.more.remote
	if !s.more.bound && sys.ConnectedToItself(int(s.fd), to) {
		t.failConnect(s, syscall.ECONNREFUSED)
		return
	}
	s.more = nil
	s.flags &^= flagConnecting
	token := s.end(reading)
	delete(t.connecting, token)
	t.markDirty(s)
	c := t.emit()
	c.Token, c.Handle = token, s.handle()
	c.Addr, c.Unix = to.AddrPort(), to.Family() == syscall.AF_UNIX
}

// failConnect ends a connection attempt and closes its socket.
func (t *Transport) failConnect(s *socket, err error) {
	token := s.end(reading)
	delete(t.connecting, token)
	t.shut(s, false)
	t.fail(token, err)
}
