package sys

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Defaults of net.KeepAliveConfig.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 9
)

// SocketOptions holds options of connected sockets. Its fields are those of transport.SocketConfig, so that one
// converts to the other.
type SocketOptions struct {
	Delay              bool // leave Nagle's algorithm on
	KeepAlive          net.KeepAliveConfig
	NoKeepAlive        bool
	SendBufferBytes    int
	ReceiveBufferBytes int
}

// Apply sets the options on a socket of the given family. On a listening socket before listen(2) they hold for the
// connections it accepts: Linux clones the listener's socket (tcp(7), "Sockets API"). known is false when the socket
// may have other options than a new one, so that each is set, not only those that differ from the kernel's default.
func (o *SocketOptions) Apply(fd, family int, known bool) error {
	if err := o.applyBuffers(fd); err != nil {
		return err
	}
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return nil
	}
	if !o.Delay || !known {
		noDelay := 1
		if o.Delay {
			noDelay = 0
		}
		if errno := setInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, noDelay); errno != 0 {
			return fmt.Errorf("TCP_NODELAY %d: %w", noDelay, errno)
		}
	}
	return o.applyKeepAlive(fd, known)
}

// applyBuffers sets the sizes of the buffers.
func (o *SocketOptions) applyBuffers(fd int) error {
	if o.SendBufferBytes > 0 {
		if errno := setInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, o.SendBufferBytes); errno != 0 {
			return fmt.Errorf("SO_SNDBUF %d: %w", o.SendBufferBytes, errno)
		}
	}
	if o.ReceiveBufferBytes > 0 {
		if errno := setInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, o.ReceiveBufferBytes); errno != 0 {
			return fmt.Errorf("SO_RCVBUF %d: %w", o.ReceiveBufferBytes, errno)
		}
	}
	return nil
}

func (o *SocketOptions) applyKeepAlive(fd int, known bool) error {
	k := o.KeepAlive
	if !k.Enable { // as in net: then the rest does not count, either
		k = net.KeepAliveConfig{}
	}
	if o.NoKeepAlive {
		if known {
			return nil
		}
		if errno := setInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0); errno != 0 {
			return fmt.Errorf("SO_KEEPALIVE 0: %w", errno)
		}
		return nil
	}
	if errno := setInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1); errno != 0 {
		return fmt.Errorf("SO_KEEPALIVE 1: %w", errno)
	}
	for _, o := range []struct {
		option, value int
		name          string
	}{
		{unix.TCP_KEEPIDLE, seconds(k.Idle, keepAliveIdle), "TCP_KEEPIDLE"},
		{unix.TCP_KEEPINTVL, seconds(k.Interval, keepAliveInterval), "TCP_KEEPINTVL"},
		{unix.TCP_KEEPCNT, probes(k.Count), "TCP_KEEPCNT"},
	} {
		if o.value < 0 { // net.KeepAliveConfig: leave it as it is
			continue
		}
		if errno := setInt(fd, unix.IPPROTO_TCP, o.option, o.value); errno != 0 {
			return fmt.Errorf("%s %d: %w", o.name, o.value, errno)
		}
	}
	return nil
}

// seconds rounds up to what the kernel counts in.
func seconds(d, zero time.Duration) int {
	switch {
	case d == 0:
		d = zero
	case d < 0:
		return -1
	}
	return int((d + time.Second - 1) / time.Second)
}

func probes(n int) int {
	if n == 0 {
		return keepAliveCount
	}
	return n
}
