package watermark_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// crowd is a fleet whose peers never stop sending, each in pieces of its own size.
type crowd struct {
	*fleet
	piece []int
	rng   *rand.Rand
}

func newCrowd(t testing.TB, seed uint64, loops, n int) *crowd {
	rng := rand.New(rand.NewPCG(seed, 3))
	cfg := watermark.SharedConfig{
		HighBytes: int64(n) * 4 << 10, FloorBytes: 1 << 10, ResumesPerTurn: 1 + rng.IntN(8),
	}
	cfg.LowBytes = cfg.HighBytes - 1 - rng.Int64N(cfg.HighBytes/2)
	c := &crowd{rng: rng, piece: make([]int, n)}
	c.fleet = newFleetOn(t, cfg, watermark.Config{BudgetBytes: 4 << 10}, loops, n, func(i int) int {
		if i < loops {
			return i
		}
		return rng.IntN(1 + rng.IntN(loops)) // the first loops have most of them
	})
	for i := range c.piece {
		c.piece[i] = 256 << rng.IntN(6)
	}
	return c
}

// send makes all peers have something to read.
func (c *crowd) send() {
	for i, ch := range c.channels {
		for ch.Open() && ch.Stashed()*c.piece[i] < 16<<10 {
			ch.WriteInbound(make([]byte, c.piece[i]))
		}
	}
}

// round lets the sink take some and loops turn, not all of them each time and not in the same order.
func (c *crowd) round() {
	c.send()
	if v := c.shared.Value(); v > 0 {
		c.shared.Add(-1 - c.rng.Int64N(min(v, 64<<10)))
	}
	for range 1 + c.rng.IntN(len(c.loops)) {
		c.loops[c.rng.IntN(len(c.loops))].RunTasks()
	}
}

// Whoever sends without end gets as much of a shared level as the others, on whichever loop it is.
func TestASharedLevelGivesEveryChannelItsShare(t *testing.T) {
	seeds := uint64(24)
	if !testenv.Thorough() {
		seeds = 8
	}
	for seed := range seeds {
		loops := 1 + int(seed)%4
		n := loops + int(seed*7)%40
		c := newCrowd(t, seed, loops, n)
		for range 200 {
			c.round()
		}
		before := slices.Clone(c.read)
		sum := func() (all int) {
			for i := range c.read {
				all += c.read[i] - before[i]
			}
			return all
		}
		rounds := 0
		for ; sum() < n*128<<10; rounds++ { // 32 turns each
			require.Less(t, rounds, 1_000_000, "seed %d: nothing moves", seed)
			c.round()
		}
		got := make([]int, n)
		for i := range got {
			got[i] = c.read[i] - before[i]
		}
		least, most := slices.Min(got), slices.Max(got)
		require.LessOrEqual(t, most*2, least*3, "seed %d, %d loops: %v", seed, loops, got)
		for _, ch := range c.channels {
			ch.Abort(nil)
		}
		require.Zero(t, c.shared.ReservedBytes(), "seed %d", seed)
		require.Zero(t, c.shared.Waiting(), "seed %d", seed)
	}
}

// A channel that waits for its turn is not under pressure: its level stays normal and nothing pauses it.
func TestWaitingForATurnIsNotHigh(t *testing.T) {
	f := newFleetOn(t, watermark.SharedConfig{HighBytes: 1 << 20, FloorBytes: 1 << 10},
		watermark.Config{BudgetBytes: 1 << 10},
		2, 8, func(i int) int { return i % 2 })
	f.shared.Add(1 << 20)
	for i, ch := range f.channels {
		for range 4 {
			ch.WriteInbound(make([]byte, 1<<10))
		}
		require.Equal(t, watermark.High, f.handlers[i].Level())
	}
	f.shared.Add(-f.shared.Value())
	f.loops[0].RunTasks() // the other one stands still, and it is not far behind that it may be left
	require.False(t, f.shared.High())
	waits := 0
	for i, ch := range f.channels {
		if f.read[i] > 1<<10 { // it has had its turn
			waits++
			assert.Equal(t, 2, ch.Stashed(), "channel %d", i)
			assert.Equal(t, watermark.Normal, f.handlers[i].Level(), "channel %d", i)
			assert.False(t, ch.Paused(), "channel %d", i)
		}
	}
	assert.Equal(t, 2, waits)
	assert.Equal(t, 8, f.shared.Waiting())
	assert.EqualValues(t, 4<<10, f.shared.ReservedBytes(), "who waits for a turn has given back what it had reserved")

	lossy := watermark.Config{KeepReading: true, Shared: []*watermark.Shared{f.shared}}
	ch := f.loops[0].New(newHandler(t, lossy))
	ch.WriteInbound("who drops what is too much", " stands in no line")
	assert.Zero(t, ch.Stashed())
}

// A loop that is stuck in a handler holds the others up for a moment, not for ever.
func TestALoopThatIsStuckDoesNotStopTheOthers(t *testing.T) {
	for _, stuck := range []int{0, 1} {
		t.Run(fmt.Sprint(stuck), func(t *testing.T) {
			c := newCrowd(t, 5, 2, 16)
			for range 100 {
				c.round()
			}
			runs := c.loops[1-stuck]
			before := slices.Clone(c.read)
			for range 200 {
				c.send() // only the loop that runs turns with it
				c.shared.Add(-c.shared.Value())
				runs.Advance(20 * time.Millisecond)
			}
			for i, ch := range c.channels {
				if ch.Loop() == runs {
					assert.Greater(t, c.read[i]-before[i], 100<<10, "channel %d", i)
				}
			}
		})
	}
}

// Who comes last stands behind those who wait already, and who was closed is not waited for.
func TestTurnsAreInTheOrderOfWaiting(t *testing.T) {
	f := newFleetOn(t, watermark.SharedConfig{
		HighBytes: 8 << 10, LowBytes: 7 << 10, FloorBytes: 1 << 10,
		ResumesPerTurn: 1,
	},
		watermark.Config{BudgetBytes: 1 << 10}, 1, 6, func(int) int { return 0 })
	f.shared.Add(8 << 10)
	for _, i := range []int{4, 1, 0, 5, 3, 2} {
		for range 4 {
			f.channels[i].WriteInbound(make([]byte, 1<<10))
		}
	}
	f.order = nil
	f.channels[0].Abort(nil)
	require.Equal(t, 5, f.shared.Waiting())
	for range 20 {
		f.shared.Add(7<<10 - f.shared.Value()) // room for one
		f.turn()
	}
	require.Len(t, f.order, 15)
	assert.Equal(t, []int{4, 1, 5, 3, 2}, f.order[:5])
	assert.Equal(t, []int{4, 1, 5, 3, 2}, f.order[5:10])
	assert.Equal(t, []int{4, 1, 5, 3, 2}, f.order[10:])
}

// Who would be waited for has gone, and on its loop nobody else waits: the other loop goes on, and no clock helps.
func TestALoopOnWhichNobodyWaitsHoldsNobodyUp(t *testing.T) {
	f := newFleetOn(t, watermark.SharedConfig{HighBytes: 1 << 20, FloorBytes: 1 << 10, ResumesPerTurn: 1},
		watermark.Config{BudgetBytes: 1 << 10}, 2, 10, func(i int) int { return min(i/2, 1) })
	f.shared.Add(1 << 20)
	for _, ch := range f.channels[1:] { // the first one is silent and keeps its loop among those that are asked
		for range 4 {
			ch.WriteInbound(make([]byte, 1<<10))
		}
		require.True(t, ch.Paused())
	}
	f.channels[1].Abort(nil)
	f.shared.Add(-f.shared.Value())
	f.loops[1].RunTasks() // and the other one is busy
	for i, ch := range f.channels[2:] {
		assert.Zero(t, ch.Stashed(), "channel %d", i+2)
	}
}

// Those who wait longest are the first to give up. That must not put off for ever what is done about a stuck loop.
func TestChurnDoesNotPutOffWhatIsDoneAboutAStuckLoop(t *testing.T) {
	const n = 101
	f := newFleetOn(t, watermark.SharedConfig{HighBytes: 8 << 10, LowBytes: 7 << 10, FloorBytes: 1 << 10},
		watermark.Config{BudgetBytes: 1 << 10}, 2, n, func(i int) int {
			if i == 0 {
				return 1 // the loop that is stuck, with the oldest ticket
			}
			return 0
		})
	f.shared.Add(8 << 10)
	for _, ch := range f.channels {
		ch.WriteInbound(make([]byte, 1<<10))
		ch.WriteInbound(make([]byte, 1<<10))
	}
	require.Equal(t, n, f.shared.Waiting())
	f.order = nil
	for next := 1; next < 20; next++ { // 190 ms
		f.shared.Add(-f.shared.Value())
		f.channels[next].Abort(nil)
		f.loops[0].Advance(10 * time.Millisecond)
	}
	f.shared.Add(-f.shared.Value())
	f.loops[0].RunTasks()
	assert.Greater(t, len(f.order), n/2)
}

// Who drops frames instead of waiting drops none when the level has fallen, also before its loop tells it.
func TestWhoKeepsReadingGoesByTheLevelItself(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	shared := newShared(t, watermark.SharedConfig{HighBytes: 8 << 10, LowBytes: 4 << 10, ResumesPerTurn: 1})
	h := newHandler(t, watermark.Config{KeepReading: true, Shared: []*watermark.Shared{shared}})
	got := 0
	ch := l.NewConfig(pipelinetest.Config{Manual: true}, h, watermark.NewDropGate(h),
		onRead(func(_ *pipeline.Context, msg any) error { got += bytesOf(msg); return nil }))
	l.RunTasks()
	shared.Add(8 << 10)
	ch.WriteInbound("x")
	l.RunTasks()
	require.Equal(t, watermark.High, h.Level())
	require.Zero(t, got)
	assert.Zero(t, shared.Waiting(), "it does not wait")
	shared.Add(-8 << 10)
	ch.WriteInbound("y")
	l.RunTasks() // what has come before what was signalled
	assert.Equal(t, 1, got)

	shared.Add(8 << 10)
	ch.WriteInbound("z")
	l.RunTasks()
	require.Equal(t, watermark.High, h.Level())
	shared.Add(-8 << 10)
	l.RunTasks()
	assert.Equal(t, watermark.Normal, h.Level(), "also when it is silent")
}

// A level that rose elsewhere stops what decodes before the next message, not after all of what was read.
func TestAHighLevelIsSeenBeforeWhatWasReadIsPassedOn(t *testing.T) {
	shared := newShared(t, watermark.SharedConfig{HighBytes: 8 << 10, LowBytes: 4 << 10})
	h := newHandler(t, watermark.Config{Shared: []*watermark.Shared{shared}})
	reading := true
	ch, _ := channel(t, h, onRead(func(ctx *pipeline.Context, _ any) error { reading = ctx.Reading(); return nil }))
	shared.Add(8 << 10)
	ch.WriteInbound("a batch of frames")
	assert.False(t, reading)
}
