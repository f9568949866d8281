//go:build linux

package epoll

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// readable waits until the kernel has n bytes for h.
func (f *fixture) readable(h transport.Handle, n int) {
	f.Helper()
	deadline := time.Now().Add(patience)
	for {
		var got int
		require.NoError(f, f.tr.Control(h, func(fd uintptr) (err error) {
			got, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			return err
		}))
		if got >= n {
			return
		}
		require.True(f, time.Now().Before(deadline), "%d of %d bytes readable", got, n)
	}
}

// block identifies the memory that a Buf of received bytes lies in.
func block(b *buffer.Buf) *byte { return &b.Bytes()[0] }

func TestWaitReceivesFromABoundedNumberOfSocketsAndKeepsTheRest(t *testing.T) {
	const sockets = 10
	for _, perWait := range []int{1, 3, 9, 10, 11} {
		t.Run(fmt.Sprintf("perWait=%d", perWait), func(t *testing.T) {
			f := open(t, Config{ReceivesPerWait: perWait})
			handles, peers := f.connections(sockets, transport.ListenConfig{})
			for i := range handles {
				f.recv(handles[i], 100)
				_, err := peers[i].Write([]byte("x"))
				require.NoError(t, err)
			}
			for _, h := range handles {
				f.readable(h, 1)
			}
			waits := f.tr.Counters().EpollWaits
			left := sockets
			for left > 0 {
				got := len(f.wait(-1))
				require.Equal(t, min(perWait, left), got)
				left -= got
			}
			require.Equal(t, waits+1, f.tr.Counters().EpollWaits, "one epoll_wait for all")
			require.EqualValues(t, sockets, f.tr.Counters().Receives)
		})
	}
}

func TestOneEventBringsAtMostABlockAndTheLimit(t *testing.T) {
	for _, limit := range []int{255, 256, 257, 511, 512, 513, 1000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			f := open(t, Config{ReceiveBlockBytes: 256})
			h, peer := f.connection()
			_, err := peer.Write(pattern(1000))
			require.NoError(t, err)
			f.readable(h, 1000)
			recv := f.recv(h, limit)
			for left := limit; left > 0; {
				out := f.wait(-1)
				require.Len(t, out, 1)
				require.Equal(t, min(256, left), out[0].N)
				left -= out[0].N
				require.Equal(t, left > 0, out[0].More)
			}
			require.Equal(t, pattern(1000)[:limit], recv.data)
		})
	}
}

func TestTheBlockReturnedLastIsReceivedIntoNext(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	f.recv(h, 1<<20)
	var hot *byte
	for i := range 20 {
		_, err := peer.Write([]byte("again"))
		require.NoError(t, err)
		f.until("data", func() bool {
			out := f.take(5 * time.Millisecond)
			for _, c := range out {
				if i > 0 {
					require.Same(t, hot, block(c.Buf))
				}
				hot = block(c.Buf)
			}
			f.release(out)
			return len(out) > 0
		})
	}
	require.EqualValues(t, 1, f.tr.Counters().BlocksTaken)
	require.Equal(t, 1, f.tr.Counters().HotBlocks)
	f.balanced()
}

func TestABlockThatIsKeptLeavesAndAnotherTakesItsPlace(t *testing.T) {
	f := open(t, Config{ReceiveBlockBytes: 256})
	h, peer := f.connection()
	f.recv(h, 1<<20)
	receive := func(n int) *buffer.Buf {
		_, err := peer.Write(pattern(n))
		require.NoError(t, err)
		f.readable(h, n)
		out := f.take(-1)
		require.Len(t, out, 1)
		require.Equal(t, n, out[0].N)
		return out[0].Buf
	}
	// Half full and more: the block itself is kept.
	b := receive(128)
	kept := b.Retain()
	require.Same(t, block(b), block(kept))
	memory := block(b)
	b.Release()
	require.Equal(t, Counters{BlocksTaken: 1, BlocksLeft: 1}, blockCounters(f))
	b = receive(128)
	require.NotSame(t, memory, block(b))
	require.Equal(t, pattern(128), kept.Bytes())
	b.Release()
	require.Equal(t, Counters{BlocksTaken: 2, BlocksLeft: 1, HotBlocks: 1}, blockCounters(f))
	// Less: the bytes are copied and the block stays.
	b = receive(127)
	memory = block(b)
	copied := b.Retain()
	require.NotSame(t, memory, block(copied))
	b.Release()
	require.Equal(t, Counters{BlocksTaken: 2, BlocksLeft: 1, HotBlocks: 1}, blockCounters(f))
	kept.Release()
	copied.Release()
	f.balanced()
	// The block that left came to the pool, where the next replacement finds it.
	kept = receive(200)
	detached := kept.Detach()
	receive(200).Release()
	require.Equal(t, Counters{BlocksTaken: 3, BlocksLeft: 2, HotBlocks: 1}, blockCounters(f))
	detached.Release()
	f.balanced()
}

func blockCounters(f *fixture) Counters {
	c := f.tr.Counters()
	return Counters{BlocksTaken: c.BlocksTaken, BlocksLeft: c.BlocksLeft, HotBlocks: c.HotBlocks}
}

func TestMoreBlocksThanABurstNeedsGoToThePool(t *testing.T) {
	f := open(t, Config{ReceivesPerWait: 2, ReceiveBlockBytes: 256})
	h, peer := f.connection()
	f.recv(h, 1<<20)
	_, err := peer.Write(pattern(10 * 256))
	require.NoError(t, err)
	f.readable(h, 10*256)
	var held []transport.Completion
	for len(held) < 10 {
		held = append(held, f.take(-1)...)
	}
	f.release(held)
	require.Equal(t, Counters{BlocksTaken: 10, HotBlocks: 4}, blockCounters(f))
	require.Equal(t, 6*256, f.tr.Pool().FreeBytes())
	f.balanced()
}

func TestBufsThatOutliveTheTransportAreReleasedInPeace(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	f.recv(h, 100)
	_, err := peer.Write([]byte("data"))
	require.NoError(t, err)
	f.readable(h, 4)
	out := f.take(-1)
	require.Len(t, out, 1)
	require.NoError(t, f.tr.Close())
	require.Equal(t, "data", string(out[0].Buf.Bytes()))
	f.release(out)
	f.balanced()
	require.NoError(t, f.tr.Close(), "a second Close does nothing")
}

func TestCloseDropsWhatWasNotHandedOutWithItsBufs(t *testing.T) {
	f := open(t, Config{})
	handles, peers := f.connections(2, transport.ListenConfig{})
	recv := f.recv(handles[0], 4)
	_, err := peers[0].Write([]byte("data"))
	require.NoError(t, err)
	f.readable(handles[0], 4)
	f.dst = make([]transport.Completion, 0, 1)
	for f.tr.Counters().Receives == 0 { // a queue longer than a batch: what is received is queued behind it
		f.send(handles[1], []byte("x"))
		f.send(handles[1], []byte("x"))
		f.wait(0)
	}
	require.False(t, recv.done)
	require.Equal(t, 1, f.tr.Pool().Outstanding())
	require.NoError(t, f.tr.Close())
	f.balanced()
}

func TestEventsOfAClosedSocketAreCountedAndDropped(t *testing.T) {
	f := open(t, Config{ReceivesPerWait: 1})
	handles, peers := f.connections(2, transport.ListenConfig{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	recvs := make([]*call, 2)
	for i := range handles {
		recvs[i] = f.recv(handles[i], 100)
		_, err := peers[i].Write([]byte("old"))
		require.NoError(t, err)
		f.readable(handles[i], 3)
	}
	require.Len(t, f.wait(-1), 1) // the other's event is left over
	other := 0
	if recvs[0].n > 0 {
		other = 1
	}
	fd := f.tr.sockets.lookup(handles[other]).fd
	f.close(handles[other])
	// The kernel gives the lowest free descriptor, the table the slot freed last.
	dial := f.submit(transport.Op{Kind: transport.Connect, Dial: &transport.DialConfig{
		Network: "tcp",
		Address: l.Addr().String(),
	}})
	s := f.tr.sockets.at(uint32(handles[other]))
	require.Equal(t, fd, s.fd)
	require.NotEqual(t, handles[other], s.handle())
	f.done(dial, recvs[other])
	require.EqualValues(t, 1, f.tr.Stats().Stale)
	require.Zero(t, recvs[other].n)
	require.ErrorIs(t, recvs[other].err, transport.ErrCanceled)
	require.Nil(t, f.tr.LocalAddr(handles[other]))
	require.ErrorIs(t, f.tr.Control(handles[other], func(uintptr) error { return nil }), transport.ErrStale)
	require.NotNil(t, f.tr.LocalAddr(s.handle()))
}

func TestReceiveErrors(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	// The kernel tells the reset once, here to the Send; the Recv must not see a clean end of file.
	require.NoError(t, peer.SetLinger(0))
	require.NoError(t, peer.Close())
	deadline := time.Now().Add(patience)
	for {
		send := f.send(h, []byte("x"))
		f.done(send)
		if send.err != nil {
			require.ErrorIs(t, send.err, syscall.ECONNRESET)
			break
		}
		require.True(t, time.Now().Before(deadline))
	}
	recv := f.recv(h, 10)
	f.done(recv)
	require.ErrorIs(t, recv.err, syscall.ECONNRESET)
}
