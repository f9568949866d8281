//go:build linux

package uring

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

func TestAThousandConnectionsShareEightBlocks(t *testing.T) {
	const conns, size = 1000, 3000
	for _, without := range []Features{0, LimitedReceives} {
		d := drive(t, Config{Blocks: 8, BlockBytes: 1024, Without: without})
		handles, peers := d.connections(conns, transport.SocketConfig{})
		var recvs []*call
		for i, peer := range peers {
			_, err := peer.Write(pattern(i, size)) // all of it fits the kernel
			require.NoError(t, err)
		}
		before := d.tr.Stats()
		for _, h := range handles {
			recvs = append(recvs, d.recv(h, size))
		}
		d.done(recvs...)
		for i, recv := range recvs {
			require.NoError(t, recv.err)
			require.True(t, bytes.Equal(pattern(i, size), recv.data), "connection %d", i)
		}
		d.balanced()
		c := d.tr.Counters()
		require.NotZero(t, c.BufferRingEmpty)
		require.Zero(t, c.Parked)
		// Those that wait for blocks try again when there are some, not more than there are; the first try is
		// everyone's.
		require.LessOrEqual(t, c.BufferRingEmpty, conns+8*(d.tr.Stats().Waits-before.Waits))
	}
}

func TestTwoThousandConnectionsOnACompletionQueueOf64(t *testing.T) {
	const conns, rounds, size, block = 2000, 3, 2048, 256
	for _, without := range []Features{0, LimitedReceives} {
		d := drive(t, Config{Entries: 32, CompletionEntries: 64, BlockBytes: block, Without: without})
		handles, peers := d.connections(conns, transport.SocketConfig{})
		recvs := make([]*call, conns)
		for i, h := range handles {
			recvs[i] = d.recv(h, 1<<20)
		}
		d.quiet()
		for round := range rounds {
			for i, peer := range peers { // a few completions each: the kernel works on at least 20 sockets at a time
				_, err := peer.Write(pattern(round<<16|i, size))
				require.NoError(t, err)
			}
			d.until("a message on every connection", func() bool {
				for _, recv := range recvs {
					if len(recv.data) < size*(round+1) {
						return false
					}
				}
				return true
			})
			var sends []*call
			for i, h := range handles {
				sends = append(sends, d.send(h, recvs[i].data[size*round:]))
			}
			d.done(sends...)
			for i, peer := range peers {
				p := make([]byte, size)
				_, err := io.ReadFull(peer, p)
				require.NoError(t, err)
				require.True(t, bytes.Equal(pattern(round<<16|i, size), p), "connection %d", i)
			}
		}
		c := d.tr.Counters()
		require.Zero(t, c.Lost)
		if without == 0 {
			require.NotZero(t, c.Overflows)
			require.NotZero(t, c.MultishotRearms)
		}
		d.balanced()
		require.NoError(t, d.tr.Close())
	}
}

func TestADescriptorUsedAgainGetsNothingOfTheOldOne(t *testing.T) {
	d := drive(t, Config{})
	ln, addr := d.listen(transport.SocketConfig{})
	accept := d.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	for i := range 1000 {
		peer, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		d.until("an accept", func() bool { return len(accept.conns) == 1 })
		h := accept.conns[0].Handle
		accept.conns = nil
		id := binary.BigEndian.AppendUint32(nil, uint32(i))
		recv := d.recv(h, 1<<20)
		watch := d.submit(transport.Op{Kind: transport.WatchClose, Handle: h})
		_, err = peer.Write(id)
		require.NoError(t, err)
		if i%2 == 0 {
			d.until("the data", func() bool { return len(recv.data) == 4 })
		}
		closing := d.close(h) // with a receive and a watch that are armed, and perhaps data on its way
		if i%3 == 0 {
			d.wait(0)
		}
		require.True(t, bytes.HasPrefix(id, recv.data), "connection %d got %x", i, recv.data)
		peer.Close()
		if i%5 == 0 {
			d.done(closing)
			require.ErrorIs(t, recv.err, transport.ErrCanceled)
			require.ErrorIs(t, watch.err, transport.ErrCanceled)
		}
	}
	d.done(d.close(ln))
	d.quiet()
	require.Empty(t, d.calls)
	d.balanced()
}

func TestShortSendsDeliverEveryByte(t *testing.T) {
	const size = 1 << 20
	for _, without := range []Features{0, SkippedSends, VectoredSends} {
		d := drive(t, Config{Without: without})
		handles, peers := d.connections(4, transport.SocketConfig{SendBufferBytes: 2304}) // the kernel doubles it
		var readers sync.WaitGroup
		var sends []*call
		for i, h := range handles {
			want := pattern(i, size)
			readers.Go(func() {
				got, err := io.ReadAll(peers[i])
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(want, got), "connection %d", i)
			})
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			var pieces [][]byte
			for p := want; len(p) > 0; {
				n := min(len(p), 1+rng.IntN(1<<rng.IntN(17)))
				pieces = append(pieces, p[:n])
				p = p[n:]
			}
			sends = append(sends, d.send(h, pieces...))
		}
		d.done(sends...)
		for i, h := range handles {
			require.NoError(t, sends[i].err)
			require.Equal(t, size, sends[i].n)
			d.done(d.close(h))
		}
		readers.Wait()
		require.Greater(t, d.tr.Counters().ShortSends, uint64(10))
		require.EqualValues(t, 4*size, d.tr.Stats().Sent)
	}
}

func TestManySmallSendsToASlowPeerDeliverEveryByte(t *testing.T) {
	const size = 1 << 20
	d := drive(t, Config{})
	handles, peers := d.connections(1, transport.SocketConfig{SendBufferBytes: 2304})
	want := pattern(1, size)
	var reader sync.WaitGroup
	reader.Go(func() {
		got, err := io.ReadAll(peers[0])
		assert.NoError(t, err)
		assert.True(t, bytes.Equal(want, got))
	})
	for at := 0; at < size; { // what NoWait leaves goes without
		n := min(size-at, 1+at%5000)
		bufs := d.send(handles[0], want[at:at+n])
		d.done(bufs)
		require.NoError(t, bufs.err)
		at += n
	}
	d.done(d.close(handles[0]))
	reader.Wait()
	c := d.tr.Counters()
	require.NotZero(t, c.ShortSends)
	require.NotZero(t, c.SkippedSends)
}

func TestATransportClosesWithAThousandOperationsInFlight(t *testing.T) {
	for range 3 {
		before := descriptors(t)
		d := drive(t, Config{})
		handles, peers := d.connections(1000, transport.SocketConfig{})
		ln, _ := d.listen(transport.SocketConfig{})
		d.submit(transport.Op{Kind: transport.Accept, Handle: ln})
		for i, h := range handles {
			d.recv(h, 1<<20)
			if i%10 == 0 {
				d.send(h, make([]byte, 8<<20)) // blocks
			}
			if i%7 == 0 {
				d.submit(transport.Op{Kind: transport.WatchClose, Handle: h})
			}
		}
		d.quiet()
		for i, h := range handles { // and some that no Wait has seen
			if i%20 == 0 {
				d.close(h)
			}
		}
		for _, peer := range peers[:100] {
			_, err := peer.Write([]byte("unread"))
			require.NoError(t, err)
		}
		require.NoError(t, d.tr.Close())
		require.Zero(t, d.tr.Pool().Outstanding())
		require.Zero(t, d.tr.Stats().Open)
		for _, peer := range peers {
			require.NoError(t, peer.SetReadDeadline(time.Now().Add(patience)))
			_, err := io.Copy(io.Discard, peer)
			if err != nil { // the 100 that had written
				require.ErrorContains(t, err, "reset")
			}
			peer.Close()
		}
		require.Equal(t, before, descriptors(t))
	}
}

func TestAFileIsReadWhereItCannotBeSpliced(t *testing.T) {
	d := drive(t, Config{})
	h, peer := d.connection()
	name := filepath.Join(t.TempDir(), "file")
	want := pattern(1, 200_001)
	require.NoError(t, os.WriteFile(name, want, 0o600))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	var old, few unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	free, err := unix.Dup(1)
	require.NoError(t, err)
	require.NoError(t, unix.Close(free))
	few = unix.Rlimit{Cur: uint64(free), Max: old.Max}
	send := d.submit(transport.Op{
		Kind: transport.SendFile, Handle: h,
		File: &transport.FileRange{File: f, Length: int64(len(want))},
	})
	got := make(chan []byte)
	go func() {
		p := make([]byte, len(want))
		_, err := io.ReadFull(peer, p)
		assert.NoError(t, err)
		got <- p
	}()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few)) // no pipe can be made
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	d.done(send)
	require.NoError(t, send.err)
	require.True(t, bytes.Equal(want, <-got))
	require.NotZero(t, d.tr.Counters().FileReads)
	require.Zero(t, d.tr.Counters().Splices)
	require.Zero(t, d.tr.Stats().FileSent)
	d.balanced()
}

func TestAFileOfANotSpliceableKindIsRead(t *testing.T) {
	d := drive(t, Config{})
	h, peer := d.connection()
	f, err := os.Open("/proc/self/mem") // splice(2) returns EINVAL
	require.NoError(t, err)
	defer f.Close()
	secret := pattern(1, 5000)
	send := d.submit(transport.Op{Kind: transport.SendFile, Handle: h, File: &transport.FileRange{
		File: f, Offset: int64(uintptr(reflect.ValueOf(secret).Pointer())), Length: int64(len(secret)),
	}})
	d.done(send)
	require.NoError(t, send.err)
	p := make([]byte, len(secret))
	_, err = io.ReadFull(peer, p)
	require.NoError(t, err)
	require.True(t, bytes.Equal(secret, p))
	require.NotZero(t, d.tr.Counters().FileReads)
	runtime.KeepAlive(secret)
}

// TestManyWaitingCompletionsSlowArmingDown: what is armed brings more of them.
func TestManyWaitingCompletionsSlowArmingDown(t *testing.T) {
	d := drive(t, Config{Entries: 16, CompletionEntries: 16, BlockBytes: 256})
	handles, peers := d.connections(20, transport.SocketConfig{})
	ln, _ := d.listen(transport.SocketConfig{})
	var recvs []*call
	for i, h := range handles {
		_, err := peers[i].Write(pattern(i, 2048))
		require.NoError(t, err)
		recvs = append(recvs, d.recv(h, 2048))
	}
	d.batch = make([]transport.Completion, 0, 1)
	d.until("many completions to wait", func() bool { return d.tr.gate == gateShut })
	accept := d.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	d.wait(0)
	require.NotZero(t, d.tr.Counters().HeldAccepts)
	require.Equal(t, queued, d.tr.slots.find(ln).listener.stage)
	d.done(recvs...)
	for i, recv := range recvs {
		require.True(t, bytes.Equal(pattern(i, 2048), recv.data))
	}
	d.quiet()
	require.Equal(t, armed, d.tr.slots.find(ln).listener.stage)
	require.NotZero(t, d.tr.Counters().HeldReceive)
	require.False(t, accept.done)
	d.balanced()
}

func TestTheWindowOfBlocksFollowsTheLoad(t *testing.T) {
	d := drive(t, Config{BlockBytes: 256})
	require.Equal(t, firstWindow, d.tr.Counters().Blocks)
	handles, peers := d.connections(10, transport.SocketConfig{})
	var recvs []*call
	for i, h := range handles {
		_, err := peers[i].Write(pattern(i, 32<<10))
		require.NoError(t, err)
		recvs = append(recvs, d.recv(h, 32<<10))
	}
	d.done(recvs...)
	require.Greater(t, d.tr.Counters().Blocks, firstWindow)
	require.LessOrEqual(t, d.tr.Counters().Blocks, 1024)
	for range 6 * windowTurns {
		d.wait(0)
	}
	require.Equal(t, firstWindow, d.tr.Counters().Blocks)
	d.balanced()
}

func TestMemoryOfReceivedDataOutlivesTheTransport(t *testing.T) {
	d := drive(t, Config{})
	h, peer := d.connection()
	_, err := peer.Write(pattern(1, 12_000))
	require.NoError(t, err)
	d.tr.Submit(transport.Op{Kind: transport.Recv, Handle: h, Token: 1, Limit: 12_000})
	var bufs []*buffer.Buf
	for got := 0; got < 12_000; {
		out, err := d.tr.Wait(nil, time.Second)
		require.NoError(t, err)
		for _, c := range out {
			got += c.N
			bufs = append(bufs, c.Buf) // lent
		}
	}
	kept := bufs[0].Retain() // left, or copied
	require.NoError(t, d.tr.Close())
	var all []byte
	for _, b := range bufs {
		all = append(all, b.Bytes()...)
	}
	require.True(t, bytes.Equal(pattern(1, 12_000), all))
	require.True(t, bytes.HasPrefix(all, kept.Bytes()))
	for _, b := range append(bufs, kept) {
		b.Release()
	}
	require.Zero(t, d.tr.Pool().Outstanding())
	require.Zero(t, d.tr.Pool().OutstandingBytes())
}

// TestALimitedReceiveOfAFastPeerComesOutAtItsLimit although the kernel only stops after the block that reaches it.
func TestALimitedReceiveOfAFastPeerComesOutAtItsLimit(t *testing.T) {
	d := drive(t, Config{})
	if d.tr.Features()&LimitedReceives == 0 {
		t.Skip("this kernel has no limited receives")
	}
	handles, peers := d.connections(1, transport.SocketConfig{ReceiveBufferBytes: 1 << 20})
	h, peer := handles[0], peers[0]
	const block = 16 << 10
	for _, limit := range []int{1, 100, block - 1, block, block + 1, 3*block - 1, 3 * block, 3*block + 1} {
		_, err := peer.Write(make([]byte, limit+2*block))
		require.NoError(t, err)
		d.until("all the data", func() (there bool) {
			require.NoError(t, d.tr.Control(h, func(fd uintptr) error {
				n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
				there = n == limit+2*block
				return err
			}))
			return there
		})
		recv := d.recv(h, limit)
		d.done(recv)
		pieces := (limit + block - 1) / block
		require.Less(t, recv.n-limit, pieces, "limit %d", limit) // rounding up each piece
		rest := d.recv(h, limit+2*block-recv.n)
		d.done(rest)
		require.NoError(t, rest.err)
	}
}

// TestASendWithNoWaitOfManyPiecesEndsInTheNextWait although the kernel takes no more than 1,024 pieces at a time.
func TestASendWithNoWaitOfManyPiecesEndsInTheNextWait(t *testing.T) {
	for _, without := range []Features{0, SkippedSends} {
		d := drive(t, Config{Without: without})
		h, peer := d.connection()
		for _, n := range []int{1023, 1024, 1025, 5000} {
			want := pattern(n, n)
			var bufs []*buffer.Buf
			for i := range want {
				bufs = append(bufs, buffer.Wrap(want[i:i+1]))
			}
			send := d.submit(transport.Op{Kind: transport.Send, Handle: h, Bufs: bufs, NoWait: true})
			d.wait(0)
			require.True(t, send.done, "%d pieces", n)
			require.NoError(t, send.err)
			require.Equal(t, n, send.n)
			p := make([]byte, n)
			_, err := io.ReadFull(peer, p)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, p))
		}
	}
}

// TestAWaitWithoutEndHandsOutASendAtOnce although nothing but the send happens, and the send has no completion in the
// ring.
func TestAWaitWithoutEndHandsOutASendAtOnce(t *testing.T) {
	for _, raw := range []bool{false, true} {
		d := drive(t, Config{Raw: raw})
		h, _ := d.connection()
		d.quiet()
		alarm := time.AfterFunc(patience, func() { _ = d.tr.Wake() })
		for range 100 {
			send := d.send(h, []byte("x"))
			d.wait(-1)
			require.True(t, send.done)
		}
		alarm.Stop()
	}
}

// TestOperationsThatEndAtOnceKeepNoOthersFromEnding when somebody makes one in each turn.
func TestOperationsThatEndAtOnceKeepNoOthersFromEnding(t *testing.T) {
	for _, room := range []int{2, 256} { // one each turn is for the operation that ends at once
		d := drive(t, Config{})
		h, peer := d.connection()
		recv := d.recv(h, 1000)
		d.quiet()
		_, err := peer.Write(pattern(1, 1000))
		require.NoError(t, err)
		d.batch = make([]transport.Completion, 0, room)
		d.until("the end of the receive", func() bool { d.cancel(&call{}); return recv.done })
		require.True(t, bytes.Equal(pattern(1, 1000), recv.data))
	}
}
