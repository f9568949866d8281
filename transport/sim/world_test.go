package sim_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// workload does things from a seed of its own on two transports, until nothing will ever happen, and returns the trace.
func workload(t *testing.T, seed uint64, cfg sim.Config) string {
	var trace bytes.Buffer
	cfg.Trace = &trace
	w := sim.NewWorld(seed, cfg)
	a, b := open(t, w), open(t, w)
	rng := rand.New(rand.NewPCG(1, 1))
	ln, err := b.Listen(transport.ListenConfig{Network: "tcp", Address: address})
	for err != nil {
		ln, err = b.Listen(transport.ListenConfig{Network: "tcp", Address: address})
	}
	var client []transport.Handle
	accept := b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	for range 400 {
		if c, over := b.done[accept]; over && c.Err != nil {
			accept = b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
		}
		n, socks := a, client
		if rng.IntN(2) == 0 {
			n, socks = b, b.new
		}
		switch what := rng.IntN(10); {
		case what < 2 || len(socks) == 0:
			if c := ended(w, a.dial(), a, b); c.Err == nil {
				client = append(client, c.Handle)
			}
		case what < 5:
			n.recv(socks[rng.IntN(len(socks))], 1+rng.IntN(50_000))
		case what < 8:
			n.send(socks[rng.IntN(len(socks))], bytesOf(rng.IntN(50_000)))
		case what < 9:
			n.cancel(transport.Token(1 + rng.IntN(int(n.next)+1)))
		default:
			n.submit(transport.Op{Kind: transport.Close, Handle: socks[rng.IntN(len(socks))], Reset: rng.IntN(2) == 0})
		}
		if rng.IntN(3) == 0 {
			a.wait(time.Duration(rng.IntN(100)) * time.Microsecond)
			b.wait(time.Duration(rng.IntN(100)) * time.Microsecond)
		}
	}
	run(w, func() bool { return false }, a, b)
	require.NoError(t, w.Check())
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Zero(t, a.Pool().Outstanding())
	require.Zero(t, b.Pool().Outstanding())
	return trace.String()
}

func harsh() sim.Config {
	cfg := sim.Config{Jitter: 100 * time.Microsecond, Blocks: 4, Faults: sim.Harsh()}
	cfg.Faults.Reset = 0.01
	return cfg
}

func TestSameSeedSameTrace(t *testing.T) {
	for seed := range uint64(20) {
		first, second := workload(t, seed, harsh()), workload(t, seed, harsh())
		require.Equal(t, first, second, "seed %d", seed)
		require.Greater(t, len(first), 10_000)
	}
}

func TestOtherSeedOtherTrace(t *testing.T) {
	assert.NotEqual(t, workload(t, 1, harsh()), workload(t, 2, harsh()))
}

// Faults that are off draw nothing, so that a seed stays itself when a rate is set to zero, and a perfect network does
// not depend on its seed at all.
func TestPerfectWorldNeedsNoSeed(t *testing.T) {
	assert.Equal(t, workload(t, 1, sim.Config{}), workload(t, 2, sim.Config{}))
}

func TestTraceNamesTimeTransportAndSocket(t *testing.T) {
	line := regexp.MustCompile(`(?m)^ +\d+\.\d+[µm]s t1 s\d+ +recv \d+, \d+ left to the limit$`)
	assert.True(t, line.MatchString(workload(t, 1, sim.Config{})))
}

func TestWaitJumpsToItsTimeout(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	n := open(t, w)
	assert.Empty(t, n.wait(time.Hour))
	assert.Equal(t, time.Hour, n.Now())
	assert.Zero(t, w.Idle())
}

func TestWaitJumpsToTheNextEvent(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Latency: time.Second, TurnTime: 1})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	got := b.recv(s, 3)
	b.wait(0)
	before := w.Now()
	a.send(c, []byte("one"))
	a.wait(0)
	assert.Equal(t, 3, ended(w, got, b, a).N)
	assert.InDelta(t, float64(before+time.Second), float64(b.Now()), 100)
}

// Polling without ever sleeping lets time pass, too.
func TestWaitWithoutTimeoutTakesAMoment(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Latency: 10 * time.Microsecond})
	a, b := open(t, w), open(t, w)
	b.submit(transport.Op{Kind: transport.Accept, Handle: b.listen(transport.ListenConfig{})})
	a.dial()
	turns := 0
	for len(b.new) == 0 {
		require.Less(t, turns, 100)
		b.wait(0)
		turns++
	}
	assert.Equal(t, 10, turns)
}

func TestIdleCountsWaitsThatNothingCanEnd(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	b.recv(s, 10)
	for range 3 {
		a.wait(0)
		b.wait(0)
	}
	require.Zero(t, w.Idle())
	b.wait(-1) // a may still have something to do: it polled just now
	require.Zero(t, w.Idle())
	assert.Empty(t, a.wait(-1))
	assert.Empty(t, b.wait(-1))
	assert.Positive(t, w.Idle())
	idle := w.Idle()
	a.send(c, []byte("x"))
	require.True(t, run(w, func() bool { return len(b.data) > 0 }, a, b))
	assert.Equal(t, idle, w.Idle(), "a segment was on its way")
}

func TestIdleDoesNotCountWhileAnotherHasWork(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	for range 5 {
		a.wait(-1)
	}
	require.Zero(t, w.Idle(), "the other has not waited yet")
	b.submit(transport.Op{Kind: transport.Cancel})
	for range 5 {
		a.wait(-1)
	}
	require.Zero(t, w.Idle(), "the other has a completion")
	require.Len(t, b.wait(-1), 1)
	require.False(t, run(w, func() bool { return false }, a, b))
	assert.Positive(t, w.Idle())
}

func TestIdleSeesAReceiveThatWaitsForABlock(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Blocks: 1, BlockBytes: 256})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	b.hold = true
	b.recv(s, 1000)
	a.send(c, bytesOf(1000))
	require.False(t, run(w, func() bool { return false }, a, b))
	assert.Equal(t, 1, b.Parked())
	assert.Len(t, b.held, 1)
	for len(b.held) > 0 {
		b.held[0].Release()
		b.held = b.held[1:]
		b.wait(0)
	}
	assert.Len(t, b.data[b.next], 1000)
}

// A jump goes no further than the moment for which another loop has set its timer.
func TestWaitDoesNotJumpOverTheTimersOfOthers(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{TurnTime: 1})
	nodes := []*node{open(t, w), open(t, w), open(t, w)}
	every := []time.Duration{10 * time.Millisecond, 3 * time.Millisecond, 7 * time.Millisecond}
	due := append([]time.Duration(nil), every...)
	fired := make([]int, len(nodes))
	for w.Now() < 2*time.Second {
		for i, n := range nodes {
			n.wait(due[i] - n.Now())
			for n.Now() >= due[i] {
				require.Less(t, n.Now()-due[i], 100*time.Nanosecond, "loop %d is late", i)
				if due[i] <= time.Second {
					fired[i]++
				}
				due[i] += every[i]
			}
		}
	}
	assert.Equal(t, []int{100, 333, 142}, fired)
}

// A loop that got something to do is asked before time passes, even by one that nobody told of it.
func TestWaitGivesWayToWhoHasWork(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	c, s := connect(w, a, b)
	b.recv(s, 1)
	require.False(t, run(w, func() bool { return false }, a, b))
	a.send(c, []byte("x"))
	before := w.Now()
	a.wait(time.Hour) // its own Send
	a.wait(time.Hour) // until the byte arrives for b
	assert.Less(t, w.Now()-before, time.Millisecond)
	require.NoError(t, b.Wake())
	b.wait(time.Hour)
	assert.Equal(t, []byte("x"), b.data[b.next])
}

func TestNewWorldPanicsOnBlockSize(t *testing.T) {
	for _, size := range []int{255, 257, 300, 1<<20 + 1, 1 << 21, -1} {
		assert.Panics(t, func() { sim.NewWorld(1, sim.Config{BlockBytes: size}) }, "%d", size)
	}
	for _, size := range []int{256, 1 << 20} {
		assert.NotPanics(t, func() { sim.NewWorld(1, sim.Config{BlockBytes: size}) }, "%d", size)
	}
}

func TestSubmitPanicsOnNoKind(t *testing.T) {
	n := open(t, sim.NewWorld(1, sim.Config{}))
	for _, kind := range []transport.Kind{transport.KindNone, transport.Cancel + 1} {
		assert.Panics(t, func() { n.Submit(transport.Op{Kind: kind}) }, fmt.Sprint(kind))
	}
}

func TestDescriptorsAreNotSupported(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{})
	a, b := open(t, w), open(t, w)
	c, _ := connect(w, a, b)
	require.ErrorIs(t, a.Control(c, func(uintptr) error { return nil }), transport.ErrNotSupported)
}
