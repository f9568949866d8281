//go:build linux

package epoll

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
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

func TestCloseOfTheTransportClosesAConnectInProgress(t *testing.T) {
	f := open(t, Config{})
	address := f.crowded()
	before := descriptors(t)
	f.dial(transport.DialConfig{Network: "tcp", Address: address})
	f.quiet()
	require.NoError(t, f.tr.Close())
	require.Equal(t, before-2, descriptors(t), "also epoll and eventfd")
}

func TestConnectErrors(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound := sys.LocalAddr(fd).String() // nobody listens there, and nobody else will
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, c := range []struct {
		name string
		cfg  *transport.DialConfig
		want error
	}{
		{"refused", &transport.DialConfig{Network: "tcp", Address: bound}, syscall.ECONNREFUSED},
		{"no such path", &transport.DialConfig{Network: "unix", Address: nowhere}, syscall.ENOENT},
		{"no address", nil, syscall.EINVAL},
		{"a name", &transport.DialConfig{Network: "tcp", Address: "localhost:1"}, sys.ErrAddress},
		{"no host", &transport.DialConfig{Network: "tcp", Address: ":80"}, sys.ErrAddress},
		{"no port", &transport.DialConfig{Network: "tcp", Address: "127.0.0.1:0"}, sys.ErrAddress},
		{"other network", &transport.DialConfig{Network: "udp", Address: "127.0.0.1:1"}, sys.ErrAddress},
		{
			"local address of another family",
			&transport.DialConfig{Network: "tcp", Address: "127.0.0.1:1", LocalAddress: "[::1]:0"}, sys.ErrAddress,
		},
		{
			"nobody's local address",
			&transport.DialConfig{Network: "tcp", Address: "127.0.0.1:1", LocalAddress: "192.0.2.77:0"},
			syscall.EADDRNOTAVAIL,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, Config{})
			before := descriptors(t)
			dial := f.submit(transport.Op{Kind: transport.Connect, Dial: c.cfg})
			f.done(dial)
			require.ErrorIs(t, dial.err, c.want)
			require.Empty(t, dial.conns)
			require.Equal(t, before, descriptors(t))
			require.Zero(t, f.tr.Stats().Open)
		})
	}
}

func TestConnectFromALocalAddress(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, local := range []string{"127.0.0.2:0", "127.0.0.2:%d", ":%d"} {
		t.Run(local, func(t *testing.T) {
			f := open(t, Config{})
			var dial *call
			port := 0
			for attempt := 0; ; attempt++ {
				address := local
				if local != "127.0.0.2:0" {
					port = freePort(t)
					address = fmt.Sprintf(local, port)
				}
				dial = f.dial(transport.DialConfig{Network: "tcp", Address: l.Addr().String(), LocalAddress: address})
				f.done(dial)
				if attempt == 10 || !errors.Is(dial.err, syscall.EADDRINUSE) { // somebody else was faster
					break
				}
			}
			require.NoError(t, dial.err)
			conn, err := l.Accept()
			require.NoError(t, err)
			defer conn.Close()
			from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
			if port != 0 {
				require.EqualValues(t, port, from.Port())
			}
			if local[0] != ':' {
				require.Equal(t, netip.MustParseAddr("127.0.0.2"), from.Addr())
			}
		})
	}
}

// freePort returns a port that nobody had a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestAUnixConnectToAFullQueueFailsAtOnce(t *testing.T) {
	f := open(t, Config{})
	_, addr := f.listen(transport.ListenConfig{Network: "unix", Address: filepath.Join(t.TempDir(), "s"), Backlog: 1})
	for range 10 {
		dial := f.dial(transport.DialConfig{Network: "unix", Address: addr.String()})
		f.done(dial)
		if dial.err != nil {
			require.ErrorIs(t, dial.err, syscall.EAGAIN)
			return
		}
	}
	require.Fail(t, "the queue took more than its backlog")
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

func TestUnexpectedArgumentsCompleteWithErrors(t *testing.T) {
	f := open(t, Config{})
	l, _ := f.listen(transport.ListenConfig{})
	h, _ := f.connection()
	gone, _ := f.connection()
	f.done(f.close(gone))
	busyRecv := f.recv(h, 1)
	busyWatch := f.submit(transport.Op{Kind: transport.WatchClose, Handle: h})
	busyAccept := f.submit(transport.Op{Kind: transport.Accept, Handle: l})
	busySend := f.fillUp(h)
	kinds := []transport.Kind{
		transport.Recv, transport.Send, transport.SendFile, transport.Accept, transport.WatchClose,
		transport.CloseWrite, transport.Close,
	}
	type test struct {
		op   transport.Op
		want error
	}
	tests := []test{
		{transport.Op{Kind: transport.Recv, Handle: h, Limit: 1}, transport.ErrBusy},
		{transport.Op{Kind: transport.Send, Handle: h}, transport.ErrBusy},
		{transport.Op{Kind: transport.SendFile, Handle: h}, transport.ErrBusy},
		{transport.Op{Kind: transport.WatchClose, Handle: h}, transport.ErrBusy},
		{transport.Op{Kind: transport.Accept, Handle: l}, transport.ErrBusy},
		{transport.Op{Kind: transport.Accept, Handle: h}, syscall.EINVAL},
		{transport.Op{Kind: transport.Recv, Handle: l, Limit: 1}, syscall.EINVAL},
		{transport.Op{Kind: transport.WatchClose, Handle: l}, syscall.EINVAL},
		{transport.Op{Kind: transport.CloseWrite, Handle: l}, syscall.EINVAL},
		{transport.Op{Kind: transport.Cancel}, transport.ErrNotFound},
		{transport.Op{Kind: transport.Connect}, syscall.EINVAL},
	}
	for _, kind := range kinds {
		for _, stale := range []transport.Handle{0, gone, 99 << 32, 1<<32 + 1000, gone + 1<<32, ^transport.Handle(0)} {
			tests = append(tests, test{transport.Op{Kind: kind, Handle: stale, Limit: 1}, transport.ErrStale})
		}
	}
	for _, c := range tests {
		got := f.submit(c.op)
		f.done(got)
		require.ErrorIs(t, got.err, c.want, "%+v", c.op)
		require.Zero(t, got.n)
	}
	require.False(t, busyRecv.done || busyWatch.done || busyAccept.done || busySend.done)
	f.done(f.cancel(busyRecv), busyRecv)
	for _, limit := range []int{0, -1} {
		recv := f.recv(h, limit)
		f.done(recv)
		require.ErrorIs(t, recv.err, syscall.EINVAL)
	}
	require.Panics(t, func() { f.tr.Submit(transport.Op{Handle: h}) })
	require.Panics(t, func() { f.tr.Submit(transport.Op{}) })
	require.Panics(t, func() { f.tr.Submit(transport.Op{Kind: transport.Cancel + 1}) })
}

func TestDescriptorsBalance(t *testing.T) {
	before := descriptors(t)
	dir := t.TempDir()
	for round := range 3 {
		f := open(t, Config{})
		l, addr := f.listen(transport.ListenConfig{Network: "unix", Address: filepath.Join(dir, fmt.Sprint(round))})
		accept := f.submit(transport.Op{Kind: transport.Accept, Handle: l})
		for range 20 {
			dial := f.dial(transport.DialConfig{Network: "unix", Address: addr.String()})
			f.done(dial)
			f.recv(dial.conns[0].Handle, 10)
		}
		f.until("connections", func() bool { return len(accept.conns) == 20 })
		f.fillUp(accept.conns[0].Handle)
		for _, c := range accept.conns[10:] {
			f.done(f.close(c.Handle))
		}
		require.Equal(t, 31, f.tr.Stats().Open)
		require.NoError(t, f.tr.Close())
		require.Zero(t, f.tr.Stats().Open)
		require.Equal(t, before, descriptors(t))
	}
}
