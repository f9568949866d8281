//go:build linux

package sys

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func socketPair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return fds[0], fds[1]
}

func TestNothingBlocksOnABlockingSocket(t *testing.T) {
	a, b := socketPair(t)
	p := make([]byte, 1<<16)
	_, errno := Recv(a, p)
	require.Equal(t, unix.EAGAIN, errno)
	total := 0
	for errno = 0; errno == 0; {
		var n int
		n, errno = Send(a, p)
		total += n
	}
	require.Equal(t, unix.EAGAIN, errno)
	var v Vector
	v.Add(p)
	_, errno = v.Send(a)
	require.Equal(t, unix.EAGAIN, errno)
	for total > 0 {
		n, errno := Recv(b, p)
		require.Zero(t, errno)
		total -= n
	}
}

func TestAVectorHoldsWhatOneCallTakes(t *testing.T) {
	a, b := socketPair(t)
	var v Vector
	var want []byte
	for i := range maxIovecs {
		require.False(t, v.Full())
		p := []byte{byte(i), byte(i >> 8)}
		want = append(want, p...)
		v.Add(p)
	}
	require.True(t, v.Full())
	require.Equal(t, 2*maxIovecs, v.Bytes())
	require.Panics(t, func() { v.Add([]byte("one more")) })
	n, errno := v.Send(a)
	require.Zero(t, errno)
	require.Equal(t, len(want), n)
	require.Zero(t, v.Bytes())
	require.Nil(t, v.iovecs[0].Base, "it keeps nobody's memory alive")
	require.Nil(t, v.iovecs[maxIovecs-1].Base)
	got := make([]byte, len(want))
	n, errno = Recv(b, got)
	require.Zero(t, errno)
	require.Equal(t, len(want), n)
	require.True(t, bytes.Equal(want, got))
}

func TestSendToNobodyRaisesNoSignal(t *testing.T) {
	a, b := socketPair(t)
	require.NoError(t, unix.Shutdown(b, unix.SHUT_RD))
	_, errno := Send(a, []byte("x"))
	require.Equal(t, unix.EPIPE, errno)
	require.Zero(t, CloseWrite(a))
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	a, b := socketPair(t)
	n, errno := SendFile(a, int(file.Fd()), 3, 4)
	require.Zero(t, errno)
	require.Equal(t, 4, n)
	p := make([]byte, 10)
	n, errno = Recv(b, p)
	require.Zero(t, errno)
	require.Equal(t, "3456", string(p[:n]))
	n, errno = ReadFile(int(file.Fd()), p, 8)
	require.Zero(t, errno)
	require.Equal(t, "89", string(p[:n]))
	_, errno = SendFile(a, -1, 0, 1)
	require.Equal(t, unix.EBADF, errno)
}

func TestDiscardErrorQueueOfASocketWithoutOneEnds(t *testing.T) {
	a, b := socketPair(t)
	_, errno := Send(b, []byte("data"))
	require.Zero(t, errno)
	require.Zero(t, DiscardErrorQueue(a))
	p := make([]byte, 10)
	n, errno := Recv(a, p)
	require.Zero(t, errno)
	require.Equal(t, "data", string(p[:n]), "and leaves its data alone")
}

func TestErrno(t *testing.T) {
	require.Equal(t, unix.Errno(0), Errno(nil))
	require.Equal(t, unix.EPIPE, Errno(unix.EPIPE))
	require.Equal(t, unix.EIO, Errno(errors.New("other")))
}

func TestEpollReportsWhatWasAdded(t *testing.T) {
	e, err := OpenEpoll()
	require.NoError(t, err)
	defer e.Close()
	a, b := socketPair(t)
	const data = 0xfedcba9876543210
	require.Zero(t, e.Add(a, EpollIn, data))
	require.Equal(t, unix.EEXIST, e.Add(a, EpollIn, data))
	events := make([]EpollEvent, 4)
	wait := func() int {
		n, errno := e.WaitRaw(events, 0)
		require.Zero(t, errno)
		return n
	}
	require.Zero(t, wait())
	_, errno := Send(b, []byte("x"))
	require.Zero(t, errno)
	require.Equal(t, 1, wait())
	require.EqualValues(t, uint64(data), events[0].Data())
	require.Equal(t, EpollIn, events[0].Events())
	require.Zero(t, e.Modify(a, EpollOut, data+1))
	n, errno := e.Wait(events, -1)
	require.Zero(t, errno)
	require.Equal(t, 1, n)
	require.EqualValues(t, uint64(data+1), events[0].Data())
	require.Equal(t, EpollOut, events[0].Events())
	require.Zero(t, e.Delete(a))
	require.Zero(t, wait())
	require.Equal(t, unix.ENOENT, e.Modify(a, EpollIn, data))
}

func TestTimeoutsAreNotRoundedDown(t *testing.T) {
	for d, want := range map[time.Duration]int32{
		-1: -1, 0: 0, 1: 1, time.Millisecond - 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		1 << 62: 1<<31 - 1,
	} {
		require.Equal(t, want, milliseconds(d), "%v", d)
	}
	for d, want := range map[time.Duration]bool{
		-1: false, 0: false, 1: true, time.Millisecond: false, time.Millisecond + 1: true,
	} {
		require.Equal(t, want, fractional(d), "%v", d)
	}
	require.Equal(t, timespec64{3, 500}, kernelTimespec(3*time.Second+500))
}

func TestWithoutNanosecondsMillisecondsDo(t *testing.T) {
	e, err := OpenEpoll()
	require.NoError(t, err)
	defer e.Close()
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		e.noNanowait = false
		require.False(t, e.lacksNanowait(0))
		require.False(t, e.lacksNanowait(unix.EINTR))
		require.True(t, e.lacksNanowait(errno))
		require.True(t, e.lacksNanowait(0), "it is not tried again")
	}
	for _, wait := range []func([]EpollEvent, time.Duration) (int, unix.Errno){e.Wait, e.WaitRaw} {
		n, errno := wait(make([]EpollEvent, 1), 1500*time.Microsecond)
		require.Zero(t, n)
		require.Contains(t, []unix.Errno{0, unix.EINTR}, errno)
	}
}

func TestEventFDs(t *testing.T) {
	fd, err := OpenEventFD()
	require.NoError(t, err)
	defer Close(fd)
	require.Zero(t, ClearEventFD(fd), "does not block")
	require.Zero(t, SignalEventFD(fd))
	require.Zero(t, SignalEventFD(fd))
	var p [8]byte
	n, err := unix.Read(fd, p[:])
	require.NoError(t, err)
	require.Equal(t, 8, n)
	_, err = unix.Write(fd, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	if err == nil { // little-endian: the counter is full
		require.Zero(t, SignalEventFD(fd), "does not block")
	}
	require.Zero(t, ClearEventFD(fd))
	require.Equal(t, unix.EBADF, SignalEventFD(-1))
}
