//go:build linux

package sys

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// accepted returns the two ends of a TCP connection; the caller closes conn.
func accepted(t *testing.T, server, client SocketOptions) (conn, dialled int) {
	t.Helper()
	l, err := Listen(&ListenOptions{Network: "tcp", Address: "127.0.0.1:0", Socket: server})
	require.NoError(t, err)
	defer l.Close()
	var to, from Sockaddr
	dialled, err = OpenDialSocket(&DialOptions{Network: "tcp", Address: LocalAddr(l.FD).String(), Socket: client}, &to)
	require.NoError(t, err)
	t.Cleanup(func() { Close(dialled) })
	require.Contains(t, []unix.Errno{0, unix.EINPROGRESS}, Connect(dialled, &to))
	errno := unix.EAGAIN
	for deadline := time.Now().Add(10 * time.Second); errno == unix.EAGAIN && time.Now().Before(deadline); {
		conn, errno = Accept(l.FD, &from)
	}
	require.Zero(t, errno)
	require.Zero(t, SocketError(dialled))
	require.False(t, ConnectedToItself(dialled, &to))
	var local, remote Sockaddr
	require.Zero(t, LocalAddress(dialled, &local))
	require.Zero(t, RemoteAddress(conn, to.Family(), &remote))
	require.Equal(t, local.AddrPort(), remote.AddrPort())
	require.Equal(t, local.AddrPort(), from.AddrPort())
	require.Equal(t, to.NetAddr(), LocalAddr(conn))
	return conn, dialled
}

func TestOptionsOfConnectedSockets(t *testing.T) {
	options := SocketOptions{
		Delay:              true,
		KeepAlive:          net.KeepAliveConfig{Enable: true, Idle: 1500 * time.Millisecond, Interval: -1, Count: -1},
		SendBufferBytes:    20_000,
		ReceiveBufferBytes: 30_000,
	}
	server, client := accepted(t, options, options)
	defer Close(server)
	plain, plainClient := accepted(t, SocketOptions{}, SocketOptions{})
	defer Close(plain)
	get := func(fd, level, name int) int {
		value, err := unix.GetsockoptInt(fd, level, name)
		require.NoError(t, err)
		return value
	}
	for _, c := range []struct {
		level, name  int
		with, zero   int
		kernelChoice bool // zero leaves the kernel's
	}{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 0, 1, false},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1, 1, false},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 2, 15, false},
		{unix.SOL_SOCKET, unix.SO_SNDBUF, 40_000, 0, true}, // doubled, socket(7)
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 60_000, 0, true},
	} {
		for _, fd := range []int{server, client} {
			require.Equal(t, c.with, get(fd, c.level, c.name), "%+v", c)
		}
		for _, fd := range []int{plain, plainClient} {
			if c.kernelChoice {
				require.NotEqual(t, c.with, get(fd, c.level, c.name), "%+v", c)
			} else {
				require.Equal(t, c.zero, get(fd, c.level, c.name), "%+v", c)
			}
		}
	}
	// Zero is what package net does, negative leaves the kernel's.
	silent, silentClient := accepted(t, SocketOptions{NoKeepAlive: true}, SocketOptions{NoKeepAlive: true})
	defer Close(silent)
	for name, zero := range map[int]int{unix.TCP_KEEPINTVL: 15, unix.TCP_KEEPCNT: 9} {
		require.Equal(t, zero, get(plain, unix.IPPROTO_TCP, name))
		require.Equal(t, get(silent, unix.IPPROTO_TCP, name), get(server, unix.IPPROTO_TCP, name))
	}
	for _, fd := range []int{silent, silentClient} {
		require.Zero(t, get(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE))
	}
	// On a socket whose state is not known, what is off is switched off.
	off := SocketOptions{NoKeepAlive: true}
	require.NoError(t, off.Apply(server, unix.AF_INET, false))
	require.Zero(t, get(server, unix.SOL_SOCKET, unix.SO_KEEPALIVE))
	require.Equal(t, 1, get(server, unix.IPPROTO_TCP, unix.TCP_NODELAY))
	off.Delay = true
	require.NoError(t, off.Apply(server, unix.AF_INET, false))
	require.Zero(t, get(server, unix.IPPROTO_TCP, unix.TCP_NODELAY))
}

func TestOptionErrorsNameTheOption(t *testing.T) {
	for _, c := range []struct {
		options SocketOptions
		name    string
	}{
		{SocketOptions{SendBufferBytes: 1}, "SO_SNDBUF 1"},
		{SocketOptions{ReceiveBufferBytes: 1}, "SO_RCVBUF 1"},
		{SocketOptions{}, "TCP_NODELAY 1"},
		{SocketOptions{Delay: true}, "SO_KEEPALIVE 1"},
	} {
		err := c.options.Apply(-1, unix.AF_INET, true)
		require.ErrorIs(t, err, unix.EBADF)
		require.ErrorContains(t, err, c.name)
	}
}

func TestResetOnCloseSendsRST(t *testing.T) {
	server, client := accepted(t, SocketOptions{}, SocketOptions{})
	require.Zero(t, ResetOnClose(server))
	require.Zero(t, Close(server))
	p := make([]byte, 1)
	errno := unix.EAGAIN
	for deadline := time.Now().Add(10 * time.Second); errno == unix.EAGAIN && time.Now().Before(deadline); {
		_, errno = Recv(client, p)
	}
	require.Equal(t, unix.ECONNRESET, errno)
}

func TestOneBadConnectionDoesNotEndAccepting(t *testing.T) {
	for _, errno := range []unix.Errno{
		unix.ECONNABORTED, unix.EPERM, unix.EPROTO, unix.ENETDOWN, unix.EHOSTUNREACH,
		unix.EINTR,
	} {
		require.True(t, AcceptGoesOn(errno), errno)
	}
	for _, errno := range []unix.Errno{
		unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EBADF, unix.EINVAL,
		unix.ENOTSOCK,
	} {
		require.False(t, AcceptGoesOn(errno), errno)
	}
}

func TestHooksGetADescriptorAndCannotReadOrWrite(t *testing.T) {
	ran := false
	require.NoError(t, control(func(network, address string, c syscall.RawConn) error {
		require.NoError(t, c.Control(func(fd uintptr) {
			require.EqualValues(t, 7, fd)
			ran = true
		}))
		require.Error(t, c.Read(func(uintptr) bool { return true }))
		require.Error(t, c.Write(func(uintptr) bool { return true }))
		return nil
	}, "tcp4", "x", 7))
	require.True(t, ran)
	require.NoError(t, control(nil, "", "", 0))
}
