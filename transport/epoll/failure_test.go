//go:build linux

package epoll

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/transport"
)

// unpollable returns a descriptor that epoll refuses with EPERM: a regular file's.
func unpollable(t *testing.T) int {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "file")
	require.NoError(t, err)
	defer file.Close()
	fd, err := syscall.Dup(int(file.Fd()))
	require.NoError(t, err)
	return fd
}

func TestWhatEpollRefusesEndsTheOperations(t *testing.T) {
	f := open(t, Config{})
	h, _ := f.connection()
	fd := unpollable(t)
	s := f.tr.sockets.lookup(h)
	require.NoError(t, unix.Dup3(fd, int(s.fd), unix.O_CLOEXEC)) // the file instead of the socket
	require.NoError(t, syscall.Close(fd))
	recv := f.recv(h, 10)
	watch := f.submit(transport.Op{Kind: transport.WatchClose, Handle: h})
	f.done(recv, watch)
	require.ErrorIs(t, recv.err, syscall.EPERM)
	require.ErrorIs(t, watch.err, syscall.EPERM)
	f.done(f.close(h))
}

func TestAConnectThatEpollRefusesFails(t *testing.T) {
	f := open(t, Config{})
	address := f.crowded()
	before := descriptors(t)
	dial := f.dial(transport.DialConfig{Network: "tcp", Address: address})
	s := f.tr.sockets.at(0)
	require.True(t, s.is(flagConnecting))
	fd := unpollable(t)
	require.NoError(t, unix.Dup3(fd, int(s.fd), unix.O_CLOEXEC))
	require.NoError(t, syscall.Close(fd))
	f.done(dial)
	require.ErrorIs(t, dial.err, syscall.EPERM)
	require.Zero(t, f.tr.Stats().Open)
	require.Equal(t, before, descriptors(t))
}

func TestWaitSaysWhenTheTransportIsBeyondUse(t *testing.T) {
	tr, err := Open(Config{})
	require.NoError(t, err)
	require.NoError(t, tr.epoll.Close())
	_, err = tr.Wait(nil, -1)
	require.ErrorIs(t, err, syscall.EBADF)
	require.ErrorIs(t, tr.Close(), syscall.EBADF)
	_, err = tr.Wait(nil, 0)
	require.ErrorIs(t, err, transport.ErrClosed)
}

func TestAClosedTransportDoesNothing(t *testing.T) {
	tr, err := Open(Config{})
	require.NoError(t, err)
	h, err := tr.Listen(transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0"})
	require.NoError(t, err)
	address := tr.LocalAddr(h).String()
	require.NoError(t, tr.Close())
	before := descriptors(t)
	tr.Submit(transport.Op{Kind: transport.Close, Handle: h})
	tr.Submit(transport.Op{Kind: transport.Connect, Dial: &transport.DialConfig{Network: "tcp", Address: address}})
	require.Zero(t, tr.queue.Len())
	require.Equal(t, before, descriptors(t))
	require.Nil(t, tr.LocalAddr(h))
	require.ErrorIs(t, tr.Control(h, func(uintptr) error { return nil }), transport.ErrStale)
	_, err = net.Dial("tcp", address)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestOpenLeavesNothingBehindWhenItFails opens transports with one descriptor too few, and with two.
func TestOpenLeavesNothingBehindWhenItFails(t *testing.T) {
	lowest, err := syscall.Dup(0)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(lowest))
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	for allowed := range uint64(2) {
		tight := limit
		tight.Cur = uint64(lowest) + allowed
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &tight))
		_, err = Open(Config{})
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		require.ErrorIs(t, err, syscall.EMFILE)
	}
	again, err := syscall.Dup(0)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(again))
	require.Equal(t, lowest, again)
}

// TestOrderHoldsWhenTheQueueIsLongerThanABatch cancels and submits again with the same token, as a channel that pauses
// and resumes within a turn does: the end of the first comes before the data of the second.
func TestOrderHoldsWhenTheQueueIsLongerThanABatch(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	_, err := peer.Write([]byte("data"))
	require.NoError(t, err)
	f.readable(h, 4)
	recv := transport.Op{Kind: transport.Recv, Handle: h, Limit: 4, Token: 7}
	f.tr.Submit(recv)
	for range 5 {
		f.tr.Submit(transport.Op{Kind: transport.Cancel, Handle: h, Target: transport.Recv, Token: 8})
		f.tr.Submit(recv)
	}
	var ends []error
	for len(ends) < 6 {
		out, err := f.tr.Wait(make([]transport.Completion, 0, 1), -1)
		require.NoError(t, err)
		for _, c := range out {
			if c.Token == 7 {
				require.False(t, c.More)
				ends = append(ends, c.Err)
			}
			if c.Buf != nil {
				c.Buf.Release()
			}
		}
	}
	canceled := transport.ErrCanceled
	require.Equal(t, []error{canceled, canceled, canceled, canceled, canceled, nil}, ends)
}
