package sys

import (
	"errors"
	"syscall"
)

var errNoReadWrite = errors.New("sys: the event loop reads and writes this socket")

// rawConn is the syscall.RawConn that Control hooks get, as those of net.ListenConfig and net.Dialer do.
type rawConn struct{ fd uintptr }

var _ syscall.RawConn = rawConn{}

// Control runs f with the descriptor.
func (c rawConn) Control(f func(fd uintptr)) error {
	f(c.fd)
	return nil
}

// Read is refused.
func (rawConn) Read(func(fd uintptr) bool) error { return errNoReadWrite }

// Write is refused.
func (rawConn) Write(func(fd uintptr) bool) error { return errNoReadWrite }

// control runs a hook, which may be nil. Like net it passes "tcp4" or "tcp6" for "tcp".
func control(hook func(network, address string, c syscall.RawConn) error, network, address string, fd int) error {
	if hook == nil {
		return nil
	}
	return hook(network, address, rawConn{uintptr(fd)})
}
