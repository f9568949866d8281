//go:build linux

package load

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// connsPerSource is how many connections leave from one loopback address, well below the number of ephemeral ports.
const connsPerSource = 10_000

// connect returns a connected socket whose calls do not block. Connections leave from 127.0.0.1, .2, …
func connect(to netip.AddrPort, i int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("load: socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := options(fd); err != nil {
		return -1, err
	}
	if source := i / connsPerSource; source > 0 {
		// The port is chosen by connect, among those that are free towards that destination.
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return -1, fmt.Errorf("load: IP_BIND_ADDRESS_NO_PORT: %w", err)
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(1 + source)}}); err != nil {
			return -1, fmt.Errorf("load: bind: %w", err)
		}
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return -1, fmt.Errorf("load: connect to %v: %w", to, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, fmt.Errorf("load: O_NONBLOCK: %w", err)
	}
	return fd, nil
}

// options turns Nagle's algorithm off and makes close a reset, so that no port stays occupied for a minute.
func options(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("load: TCP_NODELAY: %w", err)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return fmt.Errorf("load: SO_LINGER: %w", err)
	}
	return nil
}

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}
