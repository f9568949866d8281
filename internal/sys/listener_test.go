//go:build linux

package sys

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestListenFallsBackToIPv4WhereThereIsNoIPv6(t *testing.T) {
	type answer struct {
		addr net.Addr
		err  error
	}
	listenOn := func(network, address string) (a answer) {
		l, err := Listen(&ListenOptions{Network: network, Address: address})
		if err != nil {
			return answer{err: err}
		}
		defer l.Close()
		return answer{addr: LocalAddr(l.FD)}
	}
	got := make(chan answer, 3)
	go func() { // on a thread that ends with this goroutine and takes the filter with it
		runtime.LockOSThread()
		if !assert.NoError(t, withoutIPv6()) {
			close(got)
			return
		}
		got <- listenOn("tcp", ":0")
		got <- listenOn("tcp6", ":0")
		got <- listenOn("tcp", "[::1]:0")
	}()
	dual := <-got
	require.NoError(t, dual.err)
	require.Equal(t, "0.0.0.0", dual.addr.(*net.TCPAddr).IP.String())
	for range 2 { // asked for by name, it is an error
		require.ErrorIs(t, (<-got).err, unix.EAFNOSUPPORT)
	}
	with := listenOn("tcp", ":0")
	require.NoError(t, with.err)
	require.Equal(t, "::", with.addr.(*net.TCPAddr).IP.String())
}

// withoutIPv6 makes socket(AF_INET6, …) fail with EAFNOSUPPORT on this thread, as a kernel without IPv6 does
// (seccomp(2)).
func withoutIPv6() error {
	const (
		load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
			unix.BPF_RET | unix.BPF_K
		number, firstArg = 0, 16 // offsets in struct seccomp_data; little-endian
		allow, fail      = 0x7fff0000, 0x00050000
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_SOCKET, Jf: 3},
		{Code: load, K: firstArg},
		{Code: equal, K: unix.AF_INET6, Jf: 1},
		{Code: answer, K: fail | uint32(unix.EAFNOSUPPORT)},
		{Code: answer, K: allow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// SAFETY: the kernel reads program and filter during the call only.
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func TestDualStackIsForTheWildcardOfTCPOnly(t *testing.T) {
	for _, c := range []struct {
		network, address string
		only             int
	}{{"tcp", ":0", 0}, {"tcp", "[::]:0", 0}, {"tcp6", ":0", 1}, {"tcp6", "[::]:0", 1}, {"tcp", "[::1]:0", 1}} {
		l, err := Listen(&ListenOptions{Network: c.network, Address: c.address})
		require.NoError(t, err)
		only, err := unix.GetsockoptInt(l.FD, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		require.NoError(t, err)
		require.Equal(t, c.only, only, "%s %s", c.network, c.address)
		require.NoError(t, l.Close())
	}
}

func TestOnlyAPathThatListenCreatedIsUnlinked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := Listen(&ListenOptions{Network: "unix", Address: path})
	require.NoError(t, err)
	_, err = Listen(&ListenOptions{Network: "unix", Address: path})
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.FileExists(t, path, "a Listen that failed leaves somebody else's path alone")
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)

	original, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer original.Close()
	adopted, err := Adopt(original.(syscall.Conn), &SocketOptions{})
	require.NoError(t, err)
	require.NoError(t, adopted.Close())
	require.FileExists(t, path)
}

func TestAdoptRefusesWhatDoesNotListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer packets.Close()
	file, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer file.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for _, c := range []struct {
		conn any
		want error
	}{
		{conn, ErrNotListener},
		{packets, ErrNotListener},
		{file, unix.ENOTSOCK},
		{closed, net.ErrClosed},
	} {
		_, err := Adopt(c.conn.(syscall.Conn), &SocketOptions{})
		require.ErrorIs(t, err, c.want, "%T", c.conn)
	}
}

// A client must not be promised room that its connection will not have: what it sent into that would be dropped.
func TestAnAdoptedListenerPromisesNoMoreThanItsReceiveBuffer(t *testing.T) {
	promised := func(options SocketOptions) uint32 {
		original, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer original.Close()
		l, err := Adopt(original.(syscall.Conn), &options)
		require.NoError(t, err)
		defer l.Close()
		conn, err := net.Dial("tcp", original.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		var info *unix.TCPInfo
		require.NoError(t, raw.Control(func(fd uintptr) {
			info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		}))
		require.NoError(t, err)
		return info.Snd_wnd
	}
	require.Greater(t, promised(SocketOptions{}), uint32(32<<10))
	require.LessOrEqual(t, promised(SocketOptions{ReceiveBufferBytes: 16 << 10}), uint32(16<<10))
}

func TestAdoptedDescriptorsAreCloseOnExecAndNonBlocking(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0) // blocking, as socket activation may hand it over
	require.NoError(t, err)
	require.NoError(t, unix.Listen(fd, 1))
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	l, err := Adopt(file, &SocketOptions{})
	require.NoError(t, err)
	defer l.Close()
	flags, err := unix.FcntlInt(uintptr(l.FD), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC)
	flags, err = unix.FcntlInt(uintptr(l.FD), unix.F_GETFL, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.O_NONBLOCK)
	var from Sockaddr
	_, errno := Accept(l.FD, &from)
	require.Equal(t, unix.EAGAIN, errno)
}

func TestTheBacklogIsTheKernels(t *testing.T) {
	// A backlog of zero means 4096, a small one is kept: that many connections and one more wait (listen(2)).
	address := fmt.Sprintf("@weir-sys-backlog-%d", os.Getpid())
	l, err := Listen(&ListenOptions{Network: "unix", Address: address, Backlog: 2})
	require.NoError(t, err)
	defer l.Close()
	var to Sockaddr
	var errno unix.Errno
	connected := 0
	for ; errno == 0 && connected < 10; connected++ {
		fd, err := OpenDialSocket(&DialOptions{Network: "unix", Address: address}, &to)
		require.NoError(t, err)
		defer Close(fd)
		errno = Connect(fd, &to)
	}
	require.Equal(t, unix.EAGAIN, errno)
	require.Equal(t, 4, connected)
}
