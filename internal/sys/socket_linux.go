package sys

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Accept takes a connection from a listener's queue, non-blocking and close-on-exec, and writes the peer's address into
// from. It never blocks when the listener is non-blocking.
func Accept(fd int, from *Sockaddr) (int, unix.Errno) {
	from.Reset()
	// SAFETY: the kernel writes into from, whose size it is told, during the call only.
	conn, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(from.Pointer()),
		uintptr(from.SizePointer()),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(conn), 0
}

// AcceptGoesOn reports whether an error of accept concerns one connection only, so that the next can be accepted: the
// peer gave up (ECONNABORTED), a firewall said no (EPERM), or the new socket has an error pending, which Linux passes
// on from accept (accept(2), "Error handling").
func AcceptGoesOn(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNABORTED, unix.EINTR, unix.EPERM, unix.EPROTO, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN,
		unix.ENONET,
		unix.EHOSTUNREACH, unix.EOPNOTSUPP, unix.ENETUNREACH:
		return true
	}
	return false
}

// WakeAcceptors makes every epoll instance that has the listener look at it again when connections wait in its queue.
// With EPOLLEXCLUSIVE one of them is told of a connection; when that one leaves without accepting, the others do not
// know. It never blocks.
//
// Shutting down a listener's sending side changes nothing, but Linux then wakes whoever polls the socket
// (inet_shutdown and unix_shutdown end with sk_state_change).
func WakeAcceptors(fd int) {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, 0); err == nil && n == 0 {
		return
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
}

// Connect starts to connect. It never blocks on a non-blocking socket; EINPROGRESS says that the socket becomes
// writable when it is decided. EINTR on a non-blocking socket means the same (connect(2)).
func Connect(fd int, to *Sockaddr) unix.Errno {
	// SAFETY: the kernel reads to.Size() bytes of to during the call only.
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(to.Pointer()), uintptr(to.Size()))
	if errno == unix.EINTR {
		return unix.EINPROGRESS
	}
	return errno
}

// Bind binds a socket.
func Bind(fd int, to *Sockaddr) unix.Errno {
	// SAFETY: the kernel reads to.Size() bytes of to during the call only.
	_, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(to.Pointer()), uintptr(to.Size()))
	return errno
}

// LocalAddress writes the address a socket is bound to into sa. It never blocks.
func LocalAddress(fd int, sa *Sockaddr) unix.Errno {
	sa.Reset()
	// SAFETY: the kernel writes into sa, whose size it is told, during the call only.
	_, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(sa.Pointer()), uintptr(sa.SizePointer()))
	return errno
}

// RemoteAddress writes the address of the peer of a TCP socket into sa. It never blocks. getpeername(2) fails with
// ENOTCONN once the peer has reset the connection. SO_PEERNAME still tells, as accept(2) does: both ask inet_getname of
// net/ipv4/af_inet.c, and inet6_getname, not to look at the state. It wants the exact length of an address.
func RemoteAddress(fd, family int, sa *Sockaddr) unix.Errno {
	sa.Reset()
	sa.size = unix.SizeofSockaddrInet6
	if family == unix.AF_INET {
		sa.size = unix.SizeofSockaddrInet4
	}
	// SAFETY: as in LocalAddress.
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERNAME,
		uintptr(sa.Pointer()), uintptr(sa.SizePointer()), 0)
	if errno == 0 {
		return 0
	}
	sa.Reset()
	// SAFETY: as in LocalAddress.
	_, _, errno = unix.RawSyscall(unix.SYS_GETPEERNAME, uintptr(fd), uintptr(sa.Pointer()), uintptr(sa.SizePointer()))
	return errno
}

// LocalAddr is the address a socket is bound to, as a *net.TCPAddr or *net.UnixAddr; nil when the kernel does not say.
func LocalAddr(fd int) net.Addr {
	var sa Sockaddr
	if LocalAddress(fd, &sa) != 0 {
		return nil
	}
	return sa.NetAddr()
}

// SocketError returns and clears the error pending on a socket, SO_ERROR. It never blocks.
func SocketError(fd int) unix.Errno {
	var value, size int32 = 0, 4
	// SAFETY: the kernel writes four bytes into value and into size, during the call only.
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR,
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return unix.Errno(value)
}

// CloseWrite sends FIN. It never blocks.
func CloseWrite(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return errno
}

// ResetOnClose makes the following close send RST and drop what was not sent (SO_LINGER with zero seconds, socket(7)).
func ResetOnClose(fd int) unix.Errno {
	linger := unix.Linger{Onoff: 1}
	// SAFETY: the kernel reads linger during the call only.
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&linger)), unsafe.Sizeof(linger), 0)
	return errno
}

// Close closes a descriptor. Linux frees it whatever the answer is, so it is never tried again (close(2)).
func Close(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return errno
}

// setInt sets an integer option. It never blocks.
func setInt(fd, level, option, value int) unix.Errno {
	v := int32(value)
	// SAFETY: the kernel reads four bytes of v during the call only.
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&v)), 4, 0)
	return errno
}
