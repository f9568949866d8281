package sim_test

import (
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// A sender can put into the network what both sockets' buffers hold, and not one byte more.
func TestSendBlocksWhenBothBuffersAreFull(t *testing.T) {
	const room = 1000 + 500
	for n, blocks := range map[int]bool{room - 1: false, room: false, room + 1: true} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := sim.NewWorld(1, sim.Config{SendBufferBytes: 1000, ReceiveBufferBytes: 500})
			a, b := open(t, w), open(t, w)
			c, s := connect(w, a, b)
			send := a.send(c, bytesOf(n))
			run(w, func() bool { return false }, a, b)
			_, done := a.done[send]
			require.Equal(t, !blocks, done)
			got := b.recv(s, n)
			require.Zero(t, ended(w, got, b, a).Err)
			require.NoError(t, ended(w, send, a, b).Err)
			assert.Equal(t, bytesOf(n), b.data[got])
		})
	}
}

func TestSocketConfigSetsTheBuffers(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	ln := b.listen(transport.ListenConfig{Socket: transport.SocketConfig{ReceiveBufferBytes: 300}})
	b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	dial := &transport.DialConfig{
		Network: "tcp", Address: address, Socket: transport.SocketConfig{SendBufferBytes: 200},
	}
	c := ended(w, a.submit(transport.Op{Kind: transport.Connect, Dial: dial}), a, b)
	send := a.submit(transport.Op{Kind: transport.Send, Handle: c.Handle, Bufs: wrap(bytesOf(1000)), NoWait: true})
	got := ended(w, send, a, b)
	assert.ErrorIs(t, got.Err, transport.ErrWouldBlock)
	assert.Equal(t, 200+300, got.N)
}

// Linux: closing a socket with unread data resets the connection, and what the closer had not sent is lost.
func TestCloseWithUnreadDataResets(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{ReceiveBufferBytes: 100})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	a.send(c, []byte("unread"))
	b.send(s, bytesOf(1000)) // 100 fit into a's buffer, 900 wait in b's
	run(w, func() bool { return false }, a, b)
	b.close(s)
	got := a.recv(c, 1<<20)
	assert.ErrorIs(t, ended(w, got, a, b).Err, syscall.ECONNRESET)
	assert.Equal(t, bytesOf(100), a.data[got])
}

func TestDataForAClosedSocketIsAnsweredByAReset(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	require.NoError(t, ended(w, b.close(s), b, a).Err)
	require.ErrorIs(t, ended(w, a.recv(c, 10), a, b).Err, io.EOF)
	require.NoError(t, ended(w, a.send(c, []byte("hello?")), a, b).Err)
	run(w, func() bool { return false }, a, b)
	// In CLOSE_WAIT a reset reads as EPIPE.
	assert.ErrorIs(t, ended(w, a.send(c, []byte("hello??")), a, b).Err, syscall.EPIPE)
}

func TestConnectIsRefusedAfterARoundTrip(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Latency: time.Second})
	a := open(t, w)
	assert.ErrorIs(t, ended(w, a.dial(), a).Err, syscall.ECONNREFUSED)
	assert.InDelta(t, float64(2*time.Second), float64(w.Now()), float64(time.Millisecond))
}

// A full backlog leaves connects without an answer: they try again after 1, 3, 7 … seconds, like Linux's SYNs.
func TestFullBacklogDelaysConnects(t *testing.T) {
	for room, arrives := range map[time.Duration]time.Duration{
		100 * time.Millisecond:  time.Second,
		1100 * time.Millisecond: 3 * time.Second,
		3100 * time.Millisecond: 7 * time.Second,
	} {
		w := sim.NewWorld(1, sim.Config{})
		a, b := open(t, w), open(t, w)
		ln := b.listen(transport.ListenConfig{Backlog: 2})
		for range 5 {
			a.dial()
		}
		for w.Now() < room {
			a.wait(10 * time.Millisecond)
			b.wait(10 * time.Millisecond)
		}
		require.Len(t, a.done, 3, "listen(2): one more than the backlog")
		b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
		require.True(t, run(w, func() bool { return len(a.done) == 5 }, a, b))
		for _, c := range a.done {
			assert.NoError(t, c.Err)
		}
		assert.InDelta(t, float64(arrives), float64(w.Now()), float64(time.Millisecond))
	}
}

func TestConnectToAFullBacklogTimesOut(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{ConnectTimeout: 10 * time.Second})
	a, b := open(t, w), open(t, w)
	b.listen(transport.ListenConfig{Backlog: 1})
	for range 2 {
		require.NoError(t, ended(w, a.dial(), a, b).Err)
	}
	start := w.Now()
	assert.ErrorIs(t, ended(w, a.dial(), a, b).Err, syscall.ETIMEDOUT)
	assert.InDelta(t, float64(10*time.Second), float64(w.Now()-start), float64(time.Millisecond))
}

func TestMaxOpenIsEMFILE(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{MaxOpen: 3})
	a, b := open(t, w), open(t, w)
	ln := b.listen(transport.ListenConfig{})
	accept := b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	for range 3 {
		require.NoError(t, ended(w, a.dial(), a, b).Err)
	}
	assert.ErrorIs(t, ended(w, a.dial(), a, b).Err, syscall.EMFILE, "a fourth on the connecting side")
	require.ErrorIs(t, ended(w, accept, b, a).Err, syscall.EMFILE, "beside the listener only two")
	require.Len(t, b.new, 2)
	_, err := b.Listen(transport.ListenConfig{Network: "tcp", Address: "10.0.0.1:81"})
	require.ErrorIs(t, err, syscall.EMFILE)
	require.NoError(t, ended(w, b.close(b.new[0]), b, a).Err)
	b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	assert.True(t, run(w, func() bool { return len(b.new) == 3 }, b, a), "the third waited in the backlog")
}

func TestListenersOnOneAddress(t *testing.T) {
	cfg := func(network, address string, reuse bool) transport.ListenConfig {
		return transport.ListenConfig{Network: network, Address: address, ReusePort: reuse}
	}
	for _, c := range []struct {
		name          string
		first, second transport.ListenConfig
		err           error
	}{
		{"same", cfg("tcp", "10.0.0.1:1", false), cfg("tcp", "10.0.0.1:1", false), syscall.EADDRINUSE},
		{"only one shares", cfg("tcp", "10.0.0.1:1", true), cfg("tcp", "10.0.0.1:1", false), syscall.EADDRINUSE},
		{"both share", cfg("tcp", "10.0.0.1:1", true), cfg("tcp", "10.0.0.1:1", true), nil},
		{"other port", cfg("tcp", "10.0.0.1:1", false), cfg("tcp", "10.0.0.1:2", false), nil},
		{"other host", cfg("tcp", "10.0.0.1:1", false), cfg("tcp", "10.0.0.2:1", false), nil},
		{"any host", cfg("tcp", "10.0.0.1:1", false), cfg("tcp4", ":1", false), syscall.EADDRINUSE},
		{"any host of both families", cfg("tcp", "10.0.0.1:1", false), cfg("tcp", ":1", false), syscall.EADDRINUSE},
		{"other family", cfg("tcp", "[::1]:1", false), cfg("tcp4", ":1", false), nil},
		{"paths", cfg("unix", "a", false), cfg("unix", "b", false), nil},
		{"same path", cfg("unix", "a", false), cfg("unix", "a", false), syscall.EADDRINUSE},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := open(t, sim.NewWorld(1, sim.Config{}))
			first, err := n.Listen(c.first)
			require.NoError(t, err)
			_, err = n.Listen(c.second)
			require.ErrorIs(t, err, c.err)
			if c.err != nil {
				n.close(first)
				_, err = n.Listen(c.second)
				require.NoError(t, err, "after the first was closed")
			}
		})
	}
}

func TestBlocksThatStayLeaveTheRing(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Blocks: 2, BlockBytes: 256})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	got := b.recv(s, 256*20)
	a.send(c, bytesOf(256*20))
	kept := 0
	for b.done[got].N == 0 {
		a.wait(time.Millisecond)
		out, err := b.Wait(nil, time.Millisecond)
		require.NoError(t, err)
		for _, comp := range out {
			if comp.Buf != nil {
				comp.Buf.Detach() // kept, and full: the ring gets another block
				kept++
			}
			if !comp.More {
				b.done[comp.Token] = comp
			}
		}
		require.NoError(t, w.Check())
	}
	assert.Equal(t, 20, kept)
	assert.Equal(t, 20, b.Pool().Outstanding())
	assert.Zero(t, b.Parked())
}

// Sockets that wait for a block take turns, so that none of them starves.
func TestParkedReceivesTakeTurns(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Blocks: 4, BlockBytes: 256})
	a, b := open(t, w), open(t, w)
	b.submit(transport.Op{Kind: transport.Accept, Handle: b.listen(transport.ListenConfig{})})
	var socks []transport.Handle
	for range 3 {
		socks = append(socks, ended(w, a.dial(), a, b).Handle)
	}
	require.True(t, run(w, func() bool { return len(b.new) == 3 }, a, b))
	for i := range socks {
		a.send(socks[i], bytesOf(256*10))
	}
	run(w, func() bool { return false }, a, b)
	for _, h := range b.new {
		b.recv(h, 1<<20)
	}
	var order []transport.Token
	b.seen = func(c transport.Completion) { order = append(order, c.Token) }
	require.True(t, run(w, func() bool { return len(order) == 30 }, a, b))
	// The first takes all four blocks before anybody is parked, and is then the first in the row.
	for i := 4 + 3; i < 4+3*6; i++ {
		assert.Equal(t, order[i-3], order[i], "%v", order)
	}
}

func TestCancelledReceiveIsParkedNoMore(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Blocks: 1, BlockBytes: 256})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	b.hold = true
	got := b.recv(s, 1000)
	a.send(c, bytesOf(1000))
	run(w, func() bool { return false }, a, b)
	require.Equal(t, 1, b.Parked())
	b.cancel(got)
	require.ErrorIs(t, ended(w, got, b, a).Err, transport.ErrCanceled)
	assert.Zero(t, b.Parked())
	b.held[0].Release()
}

// As in Linux, where shutdown(2) ends a send(2) that waits for room.
func TestCloseWriteFailsABlockedSend(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	c, _ := connect(w, a, b)
	send := a.send(c, bytesOf(1<<20))
	run(w, func() bool { return false }, a, b)
	require.NoError(t, ended(w, a.submit(transport.Op{Kind: transport.CloseWrite, Handle: c}), a, b).Err)
	assert.ErrorIs(t, ended(w, send, a, b).Err, syscall.EPIPE)
}

// A Send that is cancelled tells of all that it sent, so that the stream can go on behind it.
func TestCancelledSendCountsExactly(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Faults: sim.Faults{QuietProgress: 1}})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	send := a.send(c, bytesOf(1<<20))
	run(w, func() bool { return false }, a, b)
	a.cancel(send)
	end := ended(w, send, a, b)
	require.ErrorIs(t, end.Err, transport.ErrCanceled)
	a.close(c)
	got := b.recv(s, 1<<20)
	require.ErrorIs(t, ended(w, got, b, a).Err, io.EOF)
	assert.Len(t, b.data[got], end.N)
}

func TestBlockThatComesBackAfterCloseGoesToThePool(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	b.hold = true
	b.recv(s, 100)
	a.send(c, bytesOf(10))
	require.True(t, run(w, func() bool { return len(b.held) == 1 }, a, b))
	require.NoError(t, b.Close())
	require.Equal(t, 1, b.Pool().Outstanding())
	before := b.Pool().FreeBytes()
	b.held[0].Release()
	assert.Zero(t, b.Pool().Outstanding())
	assert.Equal(t, before+16<<10, b.Pool().FreeBytes())
}
