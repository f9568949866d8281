//go:build linux

package epoll

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// readAll reads n bytes of a peer on another goroutine; what it read comes over the channel.
func readAll(peer io.Reader, n int) <-chan []byte {
	got := make(chan []byte, 1)
	go func() {
		p := make([]byte, n)
		m, _ := io.ReadFull(peer, p)
		got <- p[:m]
	}()
	return got
}

func TestASmallSendBufferLosesAndRepeatsNothing(t *testing.T) {
	f := open(t, Config{})
	handles, peers := f.connections(1, transport.ListenConfig{
		Network: "tcp", Address: "127.0.0.1:0",
		Socket: transport.SocketConfig{SendBufferBytes: 1}, // the kernel makes the smallest of it: 4608
	})
	size := 0
	require.NoError(t, f.tr.Control(handles[0], func(fd uintptr) (err error) {
		size, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
		return err
	}))
	require.Equal(t, 4608, size)
	want := pattern(1 << 20)
	got := readAll(peers[0], len(want))
	rng := rand.New(rand.NewPCG(1, 2))
	for left := want; len(left) > 0; {
		var pieces [][]byte
		for range 1 + rng.IntN(20) {
			n := min(rng.IntN(20_000), len(left))
			pieces = append(pieces, left[:n])
			left = left[n:]
		}
		_ = f.tr.Wake() // at random moments
		f.done(f.send(handles[0], pieces...))
	}
	require.Equal(t, want, <-got)
	require.NotZero(t, f.tr.Stats().ShortSends)
	require.EqualValues(t, len(want), f.tr.Stats().Sent)
}

func TestAShortSendIsNotTriedAgainBeforeThereIsRoom(t *testing.T) {
	f := open(t, Config{})
	handles, _ := f.connections(1, transport.ListenConfig{
		Network: "tcp", Address: "127.0.0.1:0", Socket: transport.SocketConfig{SendBufferBytes: 50_000},
	})
	send := f.send(handles[0], make([]byte, 1<<20))
	require.EqualValues(t, 1, f.tr.Stats().ShortSends)
	require.EqualValues(t, 1, f.tr.Counters().Sends)
	f.wait(0)
	require.True(t, send.n > 0 && !send.done)
}

func TestAFastPeerDoesNotHoldTheLoop(t *testing.T) {
	const turn = 10_000
	for _, n := range []int{turn - 1, turn, turn + 1, 2*turn + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := open(t, Config{SendBytesPerTurn: turn})
			h, peer := f.connection()
			got := readAll(peer, n)
			send := f.send(h, pattern(n)[:n/2], pattern(n)[n/2:])
			ctls := f.tr.Counters().EpollCtls
			require.LessOrEqual(t, int(f.tr.Stats().Sent), turn, "in Submit")
			for left := n; left > 0; {
				sent := f.tr.Stats().Sent
				for _, c := range f.wait(-1) {
					require.Equal(t, min(left, turn), c.N)
					require.Equal(t, left > turn, c.More)
					left -= c.N
				}
				require.LessOrEqual(t, int(f.tr.Stats().Sent-sent), turn, "in one Wait")
			}
			require.True(t, send.done)
			require.Equal(t, ctls, f.tr.Counters().EpollCtls, "going on needs no epoll")
			require.Equal(t, pattern(n), <-got)
		})
	}
}

func TestASendThatGoesOnDoesNotStarveOthers(t *testing.T) {
	f := open(t, Config{SendBytesPerTurn: 1000})
	handles, peers := f.connections(2, transport.ListenConfig{})
	go func() { _, _ = io.Copy(io.Discard, peers[0]) }()
	recv := f.recv(handles[1], 4)
	_, err := peers[1].Write([]byte("ping"))
	require.NoError(t, err)
	f.readable(handles[1], 4)
	send := f.send(handles[0], make([]byte, 1<<20))
	for turns := 0; !recv.done; turns++ {
		require.Less(t, turns, 4)
		require.False(t, send.done)
		f.wait(-1)
	}
	f.done(send)
}

func TestASendWithoutWaitingAnswersAtOnceWhatTheKernelTook(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	noWait := func(p []byte) *call {
		return f.submit(transport.Op{
			Kind: transport.Send, Handle: h, NoWait: true,
			Bufs: []*buffer.Buf{buffer.Wrap(p)},
		})
	}
	small := noWait([]byte("small"))
	require.Len(t, f.wait(-1), 1)
	require.NoError(t, small.err)
	require.Equal(t, 5, small.n)
	var full *call
	sent := 5
	for full == nil || full.n > 0 {
		full = noWait(make([]byte, 16<<20))
		require.Len(t, f.wait(-1), 1)
		require.ErrorIs(t, full.err, transport.ErrWouldBlock)
		require.Less(t, full.n, 16<<20)
		sent += full.n
	}
	require.Zero(t, f.tr.Counters().EpollCtls-1, "nothing waits for room: only the listener was in epoll")
	rest := f.send(h, []byte("rest"))
	require.Len(t, readAllNow(peer, sent+4, f), sent+4)
	f.done(rest)
	require.NoError(t, rest.err)
}

// readAllNow reads n bytes of a peer while the transport goes on.
func readAllNow(peer net.Conn, n int, f *fixture) []byte {
	got := readAll(peer, n)
	var p []byte
	f.until("the peer has all", func() bool {
		select {
		case p = <-got:
			return true
		default:
			return false
		}
	})
	return p
}

func TestSendFile(t *testing.T) {
	content := pattern(300_000)
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	regular, err := os.Open(path)
	require.NoError(t, err)
	defer regular.Close()
	auxv, err := os.ReadFile("/proc/self/auxv")
	require.NoError(t, err)
	unspliceable, err := os.Open("/proc/self/auxv")
	require.NoError(t, err)
	defer unspliceable.Close()

	for _, c := range []struct {
		name   string
		file   *os.File
		offset int64
		length int64
		want   []byte
		err    error
	}{
		{"all", regular, 0, 300_000, content, nil},
		{"part", regular, 1000, 70_000, content[1000:71_000], nil},
		{"nothing", regular, 0, 0, nil, nil},
		{"one more than there is", regular, 290_000, 10_001, content[290_000:], io.ErrUnexpectedEOF},
		{"behind the end", regular, 300_001, 1, nil, io.ErrUnexpectedEOF},
		{"cannot be spliced", unspliceable, 16, int64(len(auxv)) - 16, auxv[16:], nil},
		{"cannot be spliced, one more", unspliceable, 0, int64(len(auxv)) + 1, auxv, io.ErrUnexpectedEOF},
		{"no file", nil, 0, 1, nil, syscall.EINVAL},
		{"negative offset", regular, -1, 1, nil, syscall.EINVAL},
		{"negative length", regular, 0, -1, nil, syscall.EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, Config{SendBytesPerTurn: 50_000})
			h, peer := f.connection()
			got := readAll(peer, len(c.want))
			send := f.submit(transport.Op{
				Kind: transport.SendFile, Handle: h,
				File: &transport.FileRange{File: c.file, Offset: c.offset, Length: c.length},
			})
			f.done(send)
			require.ErrorIs(t, send.err, c.err)
			require.Equal(t, len(c.want), send.n)
			require.Equal(t, string(c.want), string(<-got))
			if c.file == regular {
				require.EqualValues(t, send.n, f.tr.Stats().FileSent)
			} else {
				require.Zero(t, f.tr.Stats().FileSent)
			}
			if int64(send.n) > 50_000 {
				require.Greater(t, send.count, 1, "bounded per turn")
			}
			f.done(f.send(h, []byte("x")))
			runtime.KeepAlive(peer)
		})
	}
}
