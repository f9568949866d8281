//go:build linux

package epoll

import (
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/transport"
)

// ctls returns the number of epoll_ctl calls that one Wait makes after fn.
func (f *fixture) ctls(fn func()) uint64 {
	f.Helper()
	f.quiet()
	before := f.tr.Counters().EpollCtls
	fn()
	f.wait(0)
	f.wait(0)
	return f.tr.Counters().EpollCtls - before
}

func TestInterestChangesReachEpollOncePerWait(t *testing.T) {
	f := open(t, Config{})
	h, _ := f.connection()
	var recv *call
	require.EqualValues(t, 1, f.ctls(func() { recv = f.recv(h, 1000) }), "armed")
	require.EqualValues(t, 0, f.ctls(func() {
		for range 10 {
			f.cancel(recv)
			recv = f.recv(h, 1000)
		}
	}), "paused and resumed within a turn")
	require.EqualValues(t, 1, f.ctls(func() { f.cancel(recv) }), "paused")
	require.EqualValues(t, 0, f.ctls(func() { f.cancel(f.recv(h, 1000)) }), "resumed and paused within a turn")
	require.EqualValues(t, 1, f.ctls(func() { f.recv(h, 1000) }), "resumed")
	require.EqualValues(t, 0, f.ctls(func() { f.close(h) }), "closing takes it out of epoll")
}

func TestRecvArmedAgainWithinATurnNeedsNoEpollCtl(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	for i := range 10 {
		before := f.tr.Counters().EpollCtls
		recv := f.recv(h, 3)
		_, err := peer.Write([]byte("abc"))
		require.NoError(t, err)
		f.done(recv)
		if i > 0 {
			require.Equal(t, before, f.tr.Counters().EpollCtls)
		}
	}
}

func TestSendsThatTheKernelTakesNeverCostAnEpollWait(t *testing.T) {
	f := open(t, Config{})
	h, _ := f.connection()
	f.wait(0) // looked at the sockets
	before := f.tr.Counters()
	first, second := f.send(h, []byte("a")), f.send(h, []byte("b"))
	require.Len(t, f.wait(-1), 2)
	require.True(t, first.done && second.done)
	require.Equal(t, before.EpollWaits, f.tr.Counters().EpollWaits)
	require.Equal(t, before.EpollCtls, f.tr.Counters().EpollCtls)
	require.Equal(t, before.Sends+2, f.tr.Counters().Sends)
}

func TestALoopThatSubmitsInEveryTurnStillHearsOfItsSockets(t *testing.T) {
	for _, c := range []struct{ batch, sends int }{{256, 1}, {1, 1}, {4, 16}} {
		t.Run(fmt.Sprintf("batch=%d/sends=%d", c.batch, c.sends), func(t *testing.T) {
			f := open(t, Config{})
			handles, peers := f.connections(2, transport.ListenConfig{})
			recv := f.recv(handles[0], 4)
			_, err := peers[0].Write([]byte("ping"))
			require.NoError(t, err)
			f.readable(handles[0], 4)
			go func() { _, _ = io.Copy(io.Discard, peers[1]) }()
			f.dst = make([]transport.Completion, 0, c.batch)
			waits := f.tr.Counters().EpollWaits
			turns := 0
			// With a queue that grows by more than a batch in every turn the data comes behind what was queued before.
			for ; !recv.done && turns < 1000; turns++ {
				if turns < 50 {
					for range c.sends {
						f.send(handles[1], []byte("x"))
					}
				}
				require.NotEmpty(t, f.wait(0), "each turn has completions of sends")
			}
			require.True(t, recv.done)
			require.NotZero(t, f.tr.Counters().Receives)
			require.LessOrEqual(t, f.tr.Counters().EpollWaits-waits, uint64(turns+1)/2,
				"every second Wait at most polls")
			f.until("the sends", func() bool { return f.tr.queue.Len() == 0 })
		})
	}
}

// wakeUps returns how often epoll_wait returned with events during 40 ms of waiting.
func (f *fixture) wakeUps() uint64 {
	f.Helper()
	before := f.tr.Counters()
	for range 4 {
		f.wait(10 * time.Millisecond)
	}
	after := f.tr.Counters()
	// Besides the 4 that time out only such that were interrupted by a signal.
	require.LessOrEqual(f, after.EpollWaits-before.EpollWaits, 4+after.Events-before.Events+20)
	return after.Events - before.Events
}

// arrived waits until the kernel has what the peer did, which may be a while after the peer's call.
func (f *fixture) arrived(h transport.Handle, data, end bool) {
	f.Helper()
	for events, wanted := range map[int16]bool{unix.POLLIN: data, unix.POLLRDHUP: end} {
		if wanted {
			poll := []unix.PollFd{{Fd: f.tr.sockets.lookup(h).fd, Events: events}}
			require.Eventually(f, func() bool {
				n, err := unix.Poll(poll, 0)
				return err == nil && n == 1
			}, patience, time.Millisecond)
		}
	}
}

func TestNothingWakesAnIdleLoop(t *testing.T) {
	reset := func(c *net.TCPConn) error {
		if err := c.SetLinger(0); err != nil {
			return err
		}
		return c.Close()
	}
	for _, c := range []struct {
		name string
		end  func(*net.TCPConn) error
		full bool // a Send waits for room
		data bool // data waits
	}{
		{name: "nothing happens", end: func(*net.TCPConn) error { return nil }},
		{name: "data waits", end: func(*net.TCPConn) error { return nil }, data: true},
		{name: "peer finished", end: (*net.TCPConn).CloseWrite},
		{name: "peer finished with data", end: (*net.TCPConn).CloseWrite, data: true},
		{name: "peer closed", end: (*net.TCPConn).Close},
		{name: "peer reset", end: reset},
		{name: "peer reset with data", end: reset, data: true},
		{name: "full send buffer", end: func(*net.TCPConn) error { return nil }, full: true},
		{name: "full send buffer and data", end: func(*net.TCPConn) error { return nil }, full: true, data: true},
		{name: "full send buffer and peer finished", end: (*net.TCPConn).CloseWrite, full: true},
		{name: "full send buffer and peer reset", end: reset, full: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, Config{})
			h, peer := f.connection()
			f.done(f.cancel(f.recv(h, 100))) // a pause
			recv := f.recv(h, 100)
			f.wait(0)
			f.done(f.cancel(recv))
			var send *call
			if c.full {
				send = f.fillUp(h)
			}
			if c.data {
				_, err := peer.Write([]byte("data"))
				require.NoError(t, err)
			}
			require.NoError(t, c.end(peer))
			f.arrived(h, c.data, strings.Contains(c.name, "peer"))
			f.quiet() // a hang-up may wake once
			require.Zero(t, f.wakeUps())
			if c.full && c.name == "full send buffer and peer reset" {
				require.True(t, send.done)
				require.ErrorIs(t, send.err, syscall.ECONNRESET)
			}
		})
	}
}

func TestNothingWakesALoopWhosePeerFinishedWhileItWatches(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	watch := f.submit(transport.Op{Kind: transport.WatchClose, Handle: h})
	f.quiet()
	require.Zero(t, f.wakeUps())
	require.NoError(t, peer.CloseWrite())
	f.done(watch)
	require.NoError(t, watch.err)
	require.Zero(t, f.wakeUps(), "RDHUP is masked")
	recv := f.recv(h, 10)
	f.done(recv)
	require.ErrorIs(t, recv.err, io.EOF)
	again := f.submit(transport.Op{Kind: transport.WatchClose, Handle: h})
	require.Zero(t, f.wakeUps(), "the end of file is old news")
	require.False(t, again.done)
	f.done(f.submit(transport.Op{Kind: transport.CloseWrite, Handle: h}), again)
	require.NoError(t, again.err)
	require.Zero(t, f.wakeUps(), "a hung socket leaves epoll")
}

// TestAWatchArmedBeforeALeftoverEndSeesIt arms the watch between the epoll_wait that found the end and its receive.
func TestAWatchArmedBeforeALeftoverEndSeesIt(t *testing.T) {
	f := open(t, Config{ReceivesPerWait: 1})
	handles, peers := f.connections(2, transport.ListenConfig{})
	first, second := f.recv(handles[0], 10), f.recv(handles[1], 10)
	f.wait(0) // both are in epoll, which reports in the order of arrival
	_, err := peers[0].Write([]byte("x"))
	require.NoError(t, err)
	f.readable(handles[0], 1)
	require.NoError(t, peers[1].(*net.TCPConn).CloseWrite())
	f.arrived(handles[1], false, true)
	f.wait(-1)
	require.True(t, first.n == 1 && !second.done)
	watch := f.submit(transport.Op{Kind: transport.WatchClose, Handle: handles[1]})
	f.done(second, watch)
	require.ErrorIs(t, second.err, io.EOF)
	require.NoError(t, watch.err)
}

func TestAHungSocketComesBackWithItsDataWhenReceivedFrom(t *testing.T) {
	for _, rst := range []bool{false, true} {
		t.Run(fmt.Sprintf("reset=%v", rst), func(t *testing.T) {
			f := open(t, Config{ReceiveBlockBytes: 256})
			h, peer := f.connection()
			recv := f.recv(h, 1)
			want := pattern(3000)
			_, err := peer.Write(want)
			require.NoError(t, err)
			f.done(recv)
			f.until("the data", func() bool {
				n, err := unix.IoctlGetInt(int(f.tr.sockets.lookup(h).fd), unix.TIOCINQ)
				require.NoError(t, err)
				return n == len(want)-1
			})
			wantErr := error(io.EOF)
			if rst {
				require.NoError(t, peer.SetLinger(0))
				wantErr = syscall.ECONNRESET
			} else {
				f.done(f.submit(transport.Op{Kind: transport.CloseWrite, Handle: h}))
			}
			require.NoError(t, peer.Close())
			f.until("the hang-up", func() bool { return f.tr.sockets.lookup(h).is(flagHung) })
			f.wait(0)
			require.False(t, f.tr.sockets.lookup(h).is(flagInEpoll))
			got := recv.data
			for { // in grants, with a pause between them
				recv = f.recv(h, 700)
				f.done(recv)
				got = append(got, recv.data...)
				require.Zero(t, f.wakeUps())
				if recv.err != nil {
					break
				}
			}
			require.ErrorIs(t, recv.err, wantErr)
			require.Equal(t, want, got)
		})
	}
}

func TestAnErrorQueueThatNobodyReadsDoesNotSpin(t *testing.T) {
	f := open(t, Config{})
	h, peer := f.connection()
	require.NoError(t, f.tr.Control(h, func(fd uintptr) error {
		return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPING,
			unix.SOF_TIMESTAMPING_TX_SOFTWARE|unix.SOF_TIMESTAMPING_TX_SCHED|unix.SOF_TIMESTAMPING_SOFTWARE)
	}))
	recv := f.recv(h, 10)
	before := f.tr.Counters().Events
	f.done(f.send(h, []byte("stamped")))
	f.until("an event", func() bool { return f.tr.Counters().Events > before })
	require.LessOrEqual(t, f.wakeUps(), uint64(4))
	require.False(t, recv.done)
	_, err := peer.Write([]byte("0123456789"))
	require.NoError(t, err)
	f.done(recv)
	require.NoError(t, recv.err)
}
