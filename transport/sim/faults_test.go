package sim_test

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// pair is a world with one fault and a connection.
func pair(t *testing.T, seed uint64, cfg sim.Config) (w *sim.World, a, b *node, c, s transport.Handle) {
	w = sim.NewWorld(seed, cfg)
	a, b = open(t, w), open(t, w)
	c, s = connect(w, a, b)
	return w, a, b, c, s
}

// stream sends n bytes and returns the sizes of what is received.
func stream(t *testing.T, cfg sim.Config, n, limit int) (sizes []int) {
	w, a, b, c, s := pair(t, 1, cfg)
	got := b.recv(s, limit)
	send := a.send(c, bytesOf(n))
	b.seen = func(comp transport.Completion) {
		if comp.N > 0 {
			sizes = append(sizes, comp.N)
		}
	}
	ended(w, got, b, a)
	ended(w, send, a, b)
	require.NoError(t, w.Check())
	return sizes
}

func sum(sizes []int) (n int) {
	for _, size := range sizes {
		n += size
	}
	return n
}

func TestSplitCutsSegments(t *testing.T) {
	assert.Len(t, stream(t, sim.Config{}, 64<<10, 64<<10), 4)
	assert.Greater(t, len(stream(t, sim.Config{Faults: sim.Faults{Split: 1}}, 64<<10, 64<<10)), 8)
}

func TestShortReadTakesLess(t *testing.T) {
	assert.Greater(t, len(stream(t, sim.Config{Faults: sim.Faults{ShortRead: 1}}, 64<<10, 64<<10)), 8)
}

func TestOvershootStaysBelowABlock(t *testing.T) {
	beyond := 0
	for limit := 1; limit < 3000; limit += 50 {
		for _, rate := range []float64{0, 1} {
			cfg := sim.Config{BlockBytes: 512, Faults: sim.Faults{Overshoot: rate}}
			n := sum(stream(t, cfg, 10_000, limit))
			if rate == 0 {
				require.Equal(t, limit, n)
			}
			require.Less(t, n, limit+512)
			if n > limit {
				beyond++
			}
		}
	}
	assert.Positive(t, beyond)
}

func TestNoBlockDelaysButDelivers(t *testing.T) {
	assert.Equal(t, 100_000, sum(stream(t, sim.Config{Faults: sim.Faults{NoBlock: 1}}, 100_000, 100_000)))
}

func TestShortWriteReportsProgress(t *testing.T) {
	for _, quiet := range []float64{0, 1} {
		w, a, b, c, s := pair(t, 1, sim.Config{Faults: sim.Faults{ShortWrite: 1, QuietProgress: quiet}})
		b.recv(s, 50_000)
		a.send(c, bytesOf(50_000))
		told := 0
		a.seen = func(comp transport.Completion) {
			if comp.N > 0 && comp.More {
				told++
			}
		}
		ended(w, a.next, a, b)
		assert.Equal(t, quiet == 0, told > 0)
	}
}

func TestEarlyReturnTakesNoTime(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Faults: sim.Faults{EarlyReturn: 1}})
	n := open(t, w)
	assert.Empty(t, n.wait(time.Hour))
	assert.Equal(t, time.Microsecond, w.Now())
}

func TestBatchBoundsWhatAWaitHandsOut(t *testing.T) {
	for _, batch := range []int{1, 7, 0} {
		n := open(t, sim.NewWorld(1, sim.Config{Batch: batch}))
		for range 300 {
			n.submit(transport.Op{Kind: transport.Cancel})
		}
		want := batch
		if want == 0 {
			want = 256
		}
		assert.Len(t, n.wait(0), want)
		out, err := n.Wait(make([]transport.Completion, 0, 1000), 0)
		require.NoError(t, err)
		assert.Len(t, out, min(want, 300-want), "although there is room for more")
	}
	n := open(t, sim.NewWorld(1, sim.Config{Faults: sim.Faults{ShortBatch: 1}}))
	for range 200 {
		n.submit(transport.Op{Kind: transport.Cancel})
	}
	assert.Less(t, len(n.wait(0)), 200)
}

// Late and reordered completions change places across sockets only.
func TestLateAndReorderKeepTheOrderOfASocket(t *testing.T) {
	for _, f := range []sim.Faults{{Late: 0.5}, {Reorder: 0.7}} {
		w := sim.NewWorld(1, sim.Config{SegmentBytes: 100, Faults: f})
		a, b := open(t, w), open(t, w)
		ln := b.listen(transport.ListenConfig{})
		b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
		var socks []transport.Handle
		for range 4 {
			socks = append(socks, ended(w, a.dial(), a, b).Handle)
		}
		require.True(t, run(w, func() bool { return len(b.new) == 4 }, a, b))
		recvs := map[transport.Token]int{}
		for i, h := range b.new {
			recvs[b.recv(h, 1000)] = i
			a.send(socks[i], bytesOf(1000))
		}
		var order []int
		b.seen = func(c transport.Completion) {
			if c.N > 0 {
				order = append(order, recvs[c.Token])
			}
		}
		require.True(t, run(w, func() bool { return len(order) == 40 }, a, b))
		swapped := 0
		for i, sock := range order {
			if sock != i/10 { // in a perfect world segments come socket after socket
				swapped++
			}
		}
		assert.Positive(t, swapped)
		for token := range recvs {
			assert.Equal(t, bytesOf(1000), b.data[token])
		}
	}
}

// A Cancel may find that the operation has ended by itself meanwhile; both outcomes come up.
func TestLateCancelLosesSometimes(t *testing.T) {
	won, lost := 0, 0
	for seed := range uint64(60) {
		w, a, b, c, s := pair(t, seed, sim.Config{Latency: 500 * time.Microsecond, Faults: sim.Faults{LateCancel: 1}})
		got := b.recv(s, 1)
		a.send(c, []byte("x"))
		cancel := b.cancel(got)
		end, verdict := ended(w, got, b, a), ended(w, cancel, b, a)
		if verdict.Err == nil {
			require.ErrorIs(t, end.Err, transport.ErrCanceled)
			won++
		} else {
			require.ErrorIs(t, verdict.Err, transport.ErrNotFound)
			require.NoError(t, end.Err)
			lost++
		}
	}
	assert.Positive(t, won)
	assert.Positive(t, lost)
}

// A Cancel is for the operation that there was when it was submitted, not for a later one of the same kind.
func TestLateCancelSparesASuccessor(t *testing.T) {
	for seed := range uint64(20) {
		w, a, b, c, s := pair(t, seed, sim.Config{Latency: time.Microsecond, Faults: sim.Faults{LateCancel: 1}})
		op := transport.Op{Kind: transport.Recv, Handle: s, Limit: 1, Token: 99}
		b.Submit(op)
		a.send(c, []byte("xy"))
		cancel := b.submit(transport.Op{Kind: transport.Cancel, Handle: s, Target: transport.Recv})
		if ended(w, 99, b, a).Err != nil {
			continue
		}
		delete(b.done, 99)
		op.Limit = 10
		b.Submit(op)
		require.ErrorIs(t, ended(w, cancel, b, a).Err, transport.ErrNotFound)
		run(w, func() bool { return false }, a, b)
		require.NotContains(t, b.done, transport.Token(99))
		require.Equal(t, "xy", string(b.data[99]))
		return
	}
	t.Fatal("the Cancel was never late")
}

func TestResetBreaksBothSides(t *testing.T) {
	w, a, b, c, s := pair(t, 1, sim.Config{Faults: sim.Faults{Reset: 1}})
	atA, atB := a.recv(c, 100), b.recv(s, 100)
	a.send(c, []byte("x"))
	assert.ErrorIs(t, ended(w, atA, a, b).Err, syscall.ECONNRESET)
	assert.ErrorIs(t, ended(w, atB, b, a).Err, syscall.ECONNRESET)
}

// With ErrorOnce the Send that is blocked is told, and Recv reads EOF.
func TestErrorOnceTellsTheSendOnly(t *testing.T) {
	for _, once := range []float64{0, 1} {
		w, a, b, c, s := pair(t, 1, sim.Config{Faults: sim.Faults{ErrorOnce: once}})
		recv, send := b.recv(s, 100), b.send(s, bytesOf(1<<20))
		run(w, func() bool { return false }, a, b)
		a.submit(transport.Op{Kind: transport.Close, Handle: c, Reset: true})
		assert.ErrorIs(t, ended(w, send, b, a).Err, syscall.ECONNRESET)
		want := error(syscall.ECONNRESET)
		if once > 0 {
			want = io.EOF
		}
		assert.ErrorIs(t, ended(w, recv, b, a).Err, want)
	}
}

func TestAcceptErrorsLoseNoConnection(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Faults: sim.Faults{AcceptError: 0.5}})
	a, b := open(t, w), open(t, w)
	ln := b.listen(transport.ListenConfig{})
	accept := b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	for range 100 {
		a.dial()
	}
	seen := map[error]bool{}
	require.True(t, run(w, func() bool {
		if c, over := b.done[accept]; over {
			seen[c.Err] = true
			accept = b.submit(transport.Op{Kind: transport.Accept, Handle: ln})
		}
		return len(b.new) == 100
	}, a, b))
	assert.Len(t, a.done, 100)
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		assert.True(t, seen[err], "%v", err)
	}
}

func TestConnectAndListenFaults(t *testing.T) {
	w := sim.NewWorld(1, sim.Config{Faults: sim.Faults{ConnectRefused: 1}})
	a := open(t, w)
	a.listen(transport.ListenConfig{})
	assert.ErrorIs(t, ended(w, a.dial(), a).Err, syscall.ECONNREFUSED)

	w = sim.NewWorld(1, sim.Config{Faults: sim.Faults{ConnectUnanswered: 1}})
	a = open(t, w)
	a.listen(transport.ListenConfig{})
	assert.ErrorIs(t, ended(w, a.dial(), a).Err, syscall.ETIMEDOUT)
	assert.Equal(t, 127*time.Second, w.Now())

	a = open(t, sim.NewWorld(1, sim.Config{Faults: sim.Faults{ListenError: 1}}))
	_, err := a.Listen(transport.ListenConfig{Network: "tcp", Address: address})
	assert.ErrorIs(t, err, syscall.EMFILE)
}

// Faults at their highest rates slow things down but never stop them.
func TestHighestRatesStillDeliver(t *testing.T) {
	f := sim.Faults{
		Split: 1, ShortRead: 1, ShortWrite: 1, QuietProgress: 1, Overshoot: 1, NoBlock: 1, Late: 1, Reorder: 1,
		LateCancel: 1, ShortBatch: 1,
	}
	w, a, b, c, s := pair(t, 1, sim.Config{Blocks: 1, Faults: f})
	got := b.recv(s, 1<<20)
	send := a.send(c, bytesOf(20_000))
	require.NoError(t, ended(w, send, a, b).Err)
	require.NoError(t, ended(w, a.close(c), a, b).Err)
	end := ended(w, got, b, a)
	require.True(t, errors.Is(end.Err, io.EOF), "%v", end.Err)
	assert.Equal(t, bytesOf(20_000), b.data[got])
}
