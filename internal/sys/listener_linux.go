package sys

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotListener is returned for an adopted socket that does not listen.
var ErrNotListener = errors.New("not a listening stream socket")

const defaultBacklog = 4096

// ListenOptions says how to listen.
type ListenOptions struct {
	Network, Address string
	Backlog          int // 0: 4096
	ReusePort        bool
	Control          func(network, address string, c syscall.RawConn) error
	Socket           SocketOptions
}

// Listener is a listening socket, non-blocking and close-on-exec.
type Listener struct {
	FD     int
	Family int
	// Inherits: accepted sockets already have the options. Otherwise SocketOptions.Apply sets them, with Known.
	Inherits bool
	Known    bool
	// Shared: others have descriptors of the same socket, so that closing FD does not take it out of an epoll instance.
	Shared bool

	path string // to unlink
}

// Listen opens a listening socket.
func Listen(o *ListenOptions) (*Listener, error) {
	a, err := ParseAddress(o.Network, o.Address)
	if err != nil {
		return nil, err
	}
	l, err := listen(&a, o)
	if err != nil && a.Wildcard && lacksIPv6(err) {
		a.Network, a.Wildcard = "tcp4", false
		a.AddrPort = netip.AddrPortFrom(netip.IPv4Unspecified(), a.AddrPort.Port())
		l, err = listen(&a, o)
	}
	return l, err
}

// lacksIPv6 reports whether an error means that the machine has no IPv6, or that it is switched off.
func lacksIPv6(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.EADDRNOTAVAIL)
}

func listen(a *Address, o *ListenOptions) (*Listener, error) {
	fd, family, err := openSocket(a)
	if err != nil {
		return nil, err
	}
	l := &Listener{FD: fd, Family: family, Inherits: true, Known: true, Shared: o.Control != nil}
	if err := l.prepare(a, o); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if a.Network == "unix" && !a.Abstract() {
		l.path = a.Path
	}
	backlog := o.Backlog
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	if err := unix.Listen(fd, backlog); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// prepare sets options, runs the hook and binds.
func (l *Listener) prepare(a *Address, o *ListenOptions) error {
	if l.Family != unix.AF_UNIX {
		// A restarted server binds at once although old connections are in TIME_WAIT (socket(7), ip(7)).
		if errno := setInt(l.FD, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); errno != 0 {
			return fmt.Errorf("SO_REUSEADDR: %w", errno)
		}
		if o.ReusePort {
			if errno := setInt(l.FD, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); errno != 0 {
				return fmt.Errorf("SO_REUSEPORT: %w", errno)
			}
		}
	}
	if l.Family == unix.AF_INET6 {
		only := 1
		if a.Wildcard {
			only = 0
		}
		if errno := setInt(l.FD, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); errno != 0 {
			return fmt.Errorf("IPV6_V6ONLY %d: %w", only, errno)
		}
	}
	if err := o.Socket.Apply(l.FD, l.Family, true); err != nil {
		return err
	}
	if err := control(o.Control, a.Network, o.Address, l.FD); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	var sa Sockaddr
	a.sockaddr(&sa, l.Family)
	if errno := Bind(l.FD, &sa); errno != 0 {
		return fmt.Errorf("bind: %w", errno)
	}
	return nil
}

// Adopt duplicates the descriptor of a listening stream socket that somebody else opened and goes on owning. It sets
// the sizes of the buffers on it, as far as there are any: the window that a SYN-ACK announces is made from the
// listener's receive buffer (tcp(7)). A connection whose buffer is made smaller only when it has been accepted has
// promised its peer more than it can hold; the kernel drops the rest, and the peer's retransmissions back off for
// seconds.
func Adopt(c syscall.Conn, options *SocketOptions) (*Listener, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	fd := -1
	var dupErr error
	err = rc.Control(func(original uintptr) {
		fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = dupErr
	}
	if err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	l := &Listener{FD: fd, Shared: true}
	if err = l.inspect(); err == nil {
		err = options.applyBuffers(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("adopt: %w", err)
	}
	return l, nil
}

// inspect finds out what an adopted socket is, and makes it non-blocking for all who have it: accepting must not block.
func (l *Listener) inspect() error {
	kind, err := unix.GetsockoptInt(l.FD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	listening, err := unix.GetsockoptInt(l.FD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return err
	}
	l.Family, err = unix.GetsockoptInt(l.FD, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	if kind != unix.SOCK_STREAM || listening == 0 {
		return ErrNotListener
	}
	if l.Family == unix.AF_UNIX {
		l.Known = true
	} else {
		noDelay, err1 := unix.GetsockoptInt(l.FD, unix.IPPROTO_TCP, unix.TCP_NODELAY)
		keepAlive, err2 := unix.GetsockoptInt(l.FD, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		l.Known = err1 == nil && err2 == nil && noDelay == 0 && keepAlive == 0
	}
	return unix.SetNonblock(l.FD, true)
}

// Close closes the socket. The path of a Unix socket that Listen created is unlinked before, as net does; not that of
// an adopted one.
func (l *Listener) Close() error {
	if l.path != "" {
		_ = unix.Unlink(l.path) // somebody else may have done so
		l.path = ""
	}
	if errno := Close(l.FD); errno != 0 {
		return errno
	}
	return nil
}

// openSocket opens a stream socket for an address, non-blocking and close-on-exec.
func openSocket(a *Address) (fd, family int, err error) {
	family = a.family()
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, family, fmt.Errorf("socket: %w", err)
	}
	return fd, family, nil
}

func (a *Address) family() int {
	switch a.Network {
	case "unix":
		return unix.AF_UNIX
	case "tcp4":
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (a *Address) sockaddr(sa *Sockaddr, family int) {
	if family == unix.AF_UNIX {
		sa.SetUnix(a.Path)
		return
	}
	sa.SetAddrPort(family, a.AddrPort, a.Zone)
}

// SharePort lets other sockets of the same user listen on the address of fd from here on, also when fd listens already
// (socket(7), SO_REUSEPORT).
func SharePort(fd int) error {
	if errno := setInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); errno != 0 {
		return fmt.Errorf("SO_REUSEPORT: %w", errno)
	}
	return nil
}
