//go:build linux

package uring

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/ring/ringtest"
	"github.com/weirnet/weir/transport"
)

// watched is a kernel that tells when a system call waits: after it has taken the entries, and when nothing has
// completed yet.
type watched struct {
	*ringtest.Kernel
	shared *ring.Shared
	waits  func()
}

func (k *watched) Attach(s *ring.Shared) {
	k.shared = s
	k.Kernel.Attach(s)
}

func (k *watched) Enter(submit, minimum, flags uint32, timeout time.Duration) (int, syscall.Errno) {
	if minimum == 0 {
		return k.Kernel.Enter(submit, 0, flags, timeout)
	}
	n, errno := k.Kernel.Enter(submit, 0, flags, 0)
	if *k.shared.CQTail != *k.shared.CQHead || errno != 0 {
		return n, errno
	}
	k.waits()
	_, errno = k.Kernel.Enter(0, minimum, flags, timeout)
	return n, errno
}

// driveWatched returns a driver on such a kernel, and a connection.
func driveWatched(t *testing.T, cfg Config, socket transport.SocketConfig) (
	d *driver, k *watched, h transport.Handle, peer *net.TCPConn,
) {
	k = &watched{Kernel: ringtest.New(1, ringtest.Script{}), waits: func() {}}
	runtime.LockOSThread()
	tr, err := open(cfg, ring.Config{Kernel: k})
	require.NoError(t, err)
	d = &driver{TB: t, tr: tr, calls: map[transport.Token]*call{}, batch: make([]transport.Completion, 0, 256)}
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		runtime.UnlockOSThread()
	})
	handles, peers := d.connections(1, socket)
	d.quiet()
	return d, k, handles[0], peers[0]
}

func (d *driver) sendNow(h transport.Handle, p []byte) *call {
	return d.submit(transport.Op{Kind: transport.Send, Handle: h, Bufs: []*buffer.Buf{buffer.Wrap(p)}, NoWait: true})
}

func TestAMessageThatIsAloneCostsOneEnter(t *testing.T) {
	const rounds = 1000
	d, k, h, peer := driveWatched(t, Config{Blocks: 64}, transport.SocketConfig{})
	message, echo := pattern(1, 64), make([]byte, 64)
	var send *call
	k.waits = func() { // the peer sends the next message when it has the answer, which the same call has sent
		if send != nil {
			_, err := io.ReadFull(peer, echo)
			require.NoError(t, err)
			require.Equal(t, message, echo)
		}
		_, err := peer.Write(message)
		require.NoError(t, err)
	}
	recv := d.recv(h, 1<<20)
	d.wait(-1)
	before, enters := d.tr.Stats(), d.tr.Counters().Enters
	for range rounds {
		require.Len(t, recv.data, len(message))
		recv.data = recv.data[:0]
		send = d.sendNow(h, message)
		d.wait(-1)
		require.True(t, send.done, "it is settled by the call that sent it")
		require.NoError(t, send.err)
	}
	require.EqualValues(t, rounds, d.tr.Stats().Waits-before.Waits)
	require.EqualValues(t, rounds, d.tr.Counters().Enters-enters)
}

func TestASendThatFailsEndsTheWaitItWentInWith(t *testing.T) {
	never := func() { require.Fail(t, "it waits, although there is something to tell") }
	small := transport.SocketConfig{SendBufferBytes: 4608}
	d, k, h, _ := driveWatched(t, Config{}, small)
	k.waits = never
	for range 2 { // of the second nothing fits
		send := d.sendNow(h, make([]byte, 8<<20))
		d.wait(-1)
		require.True(t, send.done)
		require.ErrorIs(t, send.err, transport.ErrWouldBlock)
	}

	d, k, h, peer := driveWatched(t, Config{}, small)
	watch := d.submit(transport.Op{Kind: transport.WatchClose, Handle: h})
	require.NoError(t, peer.SetLinger(0))
	require.NoError(t, peer.Close())
	d.done(watch) // the reset has come
	k.waits = never
	send := d.sendNow(h, make([]byte, 64))
	d.wait(-1)
	require.True(t, send.done)
	require.Error(t, send.err)
	require.NotErrorIs(t, send.err, transport.ErrWouldBlock)
}

func TestASendThatSomebodyWaitsForDoesNotWaitForOthers(t *testing.T) {
	d, k, h, _ := driveWatched(t, Config{}, transport.SocketConfig{})
	handles, _ := d.connections(1, transport.SocketConfig{})
	d.quiet()
	k.waits = func() { require.Fail(t, "it waits") }
	for range 3 {
		first, second := d.sendNow(h, pattern(1, 64)), d.send(handles[0], pattern(2, 64))
		d.wait(-1)
		require.True(t, first.done && second.done)
	}
	waits := 0
	k.waits = func() { waits++ }
	send := d.sendNow(h, pattern(1, 64))
	d.wait(-1)
	require.True(t, send.done, "for a while it does, when nothing happens")
	require.Equal(t, 1, waits)
}

// TestBlocksThatAreBeingSentComeBackWhenTheyAreShort: the kernel is not made to wait for them.
func TestBlocksThatAreBeingSentComeBackWhenTheyAreShort(t *testing.T) {
	const blocks = 8
	for held := range blocks {
		d, k, h, peer := driveWatched(t, Config{Blocks: blocks, BlockBytes: 256}, transport.SocketConfig{})
		d.tr.blocks.window = 4
		recv := d.submit(transport.Op{Kind: transport.Recv, Handle: h, Limit: 1 << 20})
		var keep []*buffer.Buf
		for range held {
			_, err := peer.Write(pattern(1, 10))
			require.NoError(t, err)
			for got := false; !got; {
				out, err := d.tr.Wait(nil, patience)
				require.NoError(t, err)
				for i := range out {
					if b := out[i].Buf; b != nil {
						keep, got = append(keep, b), true
					}
				}
			}
		}
		require.False(t, recv.done)
		waited := false
		k.waits = func() { waited = true }
		send := d.sendNow(h, pattern(2, 64))
		d.wait(-1)
		require.True(t, send.done)
		require.Equal(t, held <= 4, waited, "%d of %d blocks are lent, the window is 4", held, blocks)
		for _, b := range keep {
			b.Release()
		}
	}
}
