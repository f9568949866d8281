//go:build linux

package epoll

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

func (f *fixture) dial(cfg transport.DialConfig) *call {
	return f.submit(transport.Op{Kind: transport.Connect, Dial: &cfg})
}

// freePort returns a port that nobody had a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestASocketIsNotConnectedToItself(t *testing.T) {
	f := open(t, Config{})
	var dial *call
	for attempt := 0; attempt == 0 || attempt < 10 && errors.Is(dial.err, syscall.EADDRINUSE); attempt++ {
		// A socket bound to the address that it connects to is what bad luck with an ephemeral port makes.
		port := freePort(t)
		bind := func(_, _ string, c syscall.RawConn) (err error) {
			_ = c.Control(func(fd uintptr) {
				err = unix.Bind(int(fd), &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port})
			})
			return err
		}
		dial = f.dial(transport.DialConfig{Network: "tcp", Address: fmt.Sprintf("127.0.0.1:%d", port), Control: bind})
		f.done(dial)
	}
	require.ErrorIs(t, dial.err, syscall.ECONNREFUSED)
	require.Zero(t, f.tr.Stats().Open)
}

// crowded returns the address of a listener whose queue is full, so that connecting to it takes long.
func (f *fixture) crowded() string {
	f.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(f, err)
	f.Cleanup(func() { unix.Close(fd) })
	require.NoError(f, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(f, unix.Listen(fd, 0))
	address := sys.LocalAddr(fd).String()
	first, err := net.Dial("tcp", address) // the queue holds backlog + 1
	require.NoError(f, err)
	f.Cleanup(func() { first.Close() })
	return address
}
