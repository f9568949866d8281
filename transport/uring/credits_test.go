//go:build linux

package uring

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring/ringtest"
	"github.com/weirnet/weir/transport"
)

// TestCreditsGateAtItsBorders has the thresholds from both sides.
func TestCreditsGateAtItsBorders(t *testing.T) {
	for _, entries := range []int{8, 64, 100, 16384} {
		at := func(percent int) int { return (percent*entries + 99) / 100 }
		for _, tc := range []struct {
			before  gate
			waiting int
			after   gate
		}{
			{gateOpen, 0, gateOpen},
			{gateOpen, at(75) - 1, gateOpen},
			{gateOpen, at(75), gateSlow},
			{gateSlow, at(75) - 1, gateOpen},
			{gateSlow, at(90) - 1, gateSlow},
			{gateSlow, at(90), gateShut},
			{gateOpen, entries, gateShut},
			{gateOpen, 10 * entries, gateShut},
			{gateShut, at(90) - 1, gateShut},
			{gateShut, at(50), gateShut},
			{gateShut, at(50) - 1, gateOpen},
		} {
			if tc.before == gateSlow && tc.after == gateSlow && tc.waiting < at(75) {
				continue // no number lies between in a short queue
			}
			require.Equal(t, tc.after, tc.before.next(tc.waiting, entries), "%d of %d, before %d", tc.waiting, entries,
				tc.before)
		}
	}
}

// TestCreditsFitTheQueue of every length.
func TestCreditsFitTheQueue(t *testing.T) {
	for entries := 8; entries <= 1<<16; entries *= 2 {
		c := divide(entries)
		require.GreaterOrEqual(t, entries-c.accepts-c.blocks, 2, "a Close makes two entries")
		require.Positive(t, c.accepts)
		require.Positive(t, c.blocks)
	}
}

// TestCreditsBoundAccepts of many listeners by their share, beside the one that each has in any case.
func TestCreditsBoundAccepts(t *testing.T) {
	for _, listeners := range []int{1, 7, 8, 9, 30} {
		d := drive(t, Config{Entries: 32, CompletionEntries: 64})
		for range listeners {
			h, _ := d.listen(transport.SocketConfig{})
			d.submit(transport.Op{Kind: transport.Accept, Handle: h})
		}
		d.quiet()
		require.Equal(t, 8+listeners-1, d.tr.accepting)
		require.NoError(t, d.tr.Close())
	}
}

// TestCreditsOfAListenerAreSixteen however long the queue is.
func TestCreditsOfAListenerAreSixteen(t *testing.T) {
	for limit, armed := range map[int]int{0: 16, 15: 15, 16: 16, 17: 16} {
		d := drive(t, Config{})
		h, _ := d.listen(transport.SocketConfig{})
		d.submit(transport.Op{Kind: transport.Accept, Handle: h, Limit: limit})
		d.quiet()
		require.Equal(t, armed, d.tr.accepting, "limit %d", limit)
		require.NoError(t, d.tr.Close())
	}
}

// TestCreditsBoundTheBlocksInTheKernel however many are asked for and starved for.
func TestCreditsBoundTheBlocksInTheKernel(t *testing.T) {
	d := drive(t, Config{Entries: 32, CompletionEntries: 64, BlockBytes: 256})
	require.LessOrEqual(t, d.tr.blocks.free(), 32)
	for range 10 {
		d.tr.blocks.starved()
		d.tr.blocks.fill()
	}
	require.Equal(t, 32, d.tr.blocks.free())
}

// TestCreditsSlowArmingDown has more completions than half of the queue wait, and looks at what is armed meanwhile.
func TestCreditsSlowArmingDown(t *testing.T) {
	d := drive(t, Config{Entries: 64, CompletionEntries: 64, BlockBytes: 256})
	handles, _ := d.connections(100, transport.SocketConfig{})
	d.quiet()
	stay := func(n int) { // so many wait behind the next Wait
		for d.tr.backlog() < n+1 {
			d.cancel(&call{op: transport.Op{Kind: transport.Recv}})
		}
		d.batch = make([]transport.Completion, 0, max(1, d.tr.backlog()-n))
	}
	armedNow := func() (n int) {
		for _, h := range handles {
			if s := d.tr.slots.find(h); s.recv.stage == armed {
				n++
			}
		}
		return n
	}
	next := 0
	arm := func(n int) {
		for range n {
			d.recv(handles[next], 100)
			next++
		}
	}
	turn := func(waiting int) {
		stay(waiting)
		d.tr.regulate()
		d.tr.issue()
	}
	arm(10)
	turn(46) // with the one that is handed out next, 47
	require.Equal(t, gateOpen, d.tr.gate)
	require.Equal(t, 10, armedNow())
	arm(10)
	turn(47) // 48 are 75 %
	require.Equal(t, gateSlow, d.tr.gate)
	require.Equal(t, 11, armedNow(), "one in a turn of a queue of 64")
	held := d.tr.Counters().HeldReceive
	for i := range 9 { // new ones come as fast as any may be armed
		arm(1)
		turn(47)
		require.Equal(t, gateSlow, d.tr.gate)
		require.Equal(t, 12+i, armedNow())
		require.Equal(t, armed, d.tr.slots.find(handles[11+i]).recv.stage, "first come, first served")
	}
	require.Equal(t, held+9, d.tr.Counters().HeldReceive, "each is counted once")
	turn(57) // 58 are 90 %
	require.Equal(t, gateShut, d.tr.gate)
	require.Equal(t, 20, armedNow())
	require.NotZero(t, d.tr.Counters().HeldReceive)
	d.batch = make([]transport.Completion, 0, 256)
	d.quiet()
	require.Equal(t, gateOpen, d.tr.gate)
	require.Equal(t, 29, armedNow(), "what was held is armed")
	require.Empty(t, d.tr.held)
}

// TestCreditsOfAnAcceptThatFindsNoDescriptor come back, nothing spins, and the connections are there later.
func TestCreditsOfAnAcceptThatFindsNoDescriptor(t *testing.T) {
	d := drive(t, Config{})
	ln, addr := d.listen(transport.SocketConfig{})
	var peers []net.Conn
	for range 40 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		peers = append(peers, c)
	}
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	free, err := unix.Dup(1)
	require.NoError(t, err)
	require.NoError(t, unix.Close(free))
	few := unix.Rlimit{Cur: uint64(free + 3), Max: old.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }() // also when the test fails
	accept := d.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	d.done(accept)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	require.ErrorIs(t, accept.err, unix.EMFILE)
	require.Len(t, accept.conns, 3)
	require.Zero(t, d.tr.accepting)
	before := d.tr.Counters().Enters
	d.wait(0)
	require.LessOrEqual(t, d.tr.Counters().Enters, before+1)
	again := d.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	d.until("the others", func() bool { return len(again.conns) == len(peers)-3 })
	d.balanced()
}

// TestOverflowOnAScriptedKernelIsCountedAndEndsNothing whether the queue was full or the kernel says so.
func TestOverflowOnAScriptedKernelIsCountedAndEndsNothing(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed=%d", seed+1), func(t *testing.T) {
			tr, k := openScripted(t, Config{Entries: 16, CompletionEntries: 16, BlockBytes: 256}, seed,
				ringtest.Script{Overflow: 64, EndMultishot: 32, Late: 32})
			d := &driver{TB: t, tr: tr, calls: map[transport.Token]*call{}, batch: make([]transport.Completion, 0, 256)}
			handles, peers := d.connections(100, transport.SocketConfig{})
			var recvs []*call
			for _, h := range handles {
				recvs = append(recvs, d.recv(h, 3000))
			}
			d.quiet() // all are idle
			for i := range handles {
				_, err := peers[i].Write(pattern(i, 3000))
				require.NoError(t, err)
			}
			d.done(recvs...)
			for i, recv := range recvs {
				require.NoError(t, recv.err)
				require.Equal(t, pattern(i, 3000), recv.data)
			}
			st := tr.Stats()
			require.NotZero(t, k.Faults().Overflows)
			require.NotZero(t, st.Overflows)
			require.NotZero(t, st.Overflowed)
			require.Zero(t, st.Dropped)
			require.Zero(t, st.Waiting)
			require.NotZero(t, st.WaitingPeak)
			require.NoError(t, tr.Close())
		})
	}
}
