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
	if testing.Short() {
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

// A channel that waits for its turn is not under pressure: nothing tells it to slow down, and its level stays normal.
func TestWaitingForATurnIsNotHigh(t *testing.T) {
	c := newCrowd(t, 1, 1, 20)
	for range 50 {
		c.round()
	}
	stats := uint64(0)
	for _, h := range c.handlers {
		stats += h.Stats().Snapshot().Pauses
	}
	require.Positive(t, stats)
	c.shared.Add(-c.shared.Value())
	c.loops[0].RunTasks()
	c.shared.Add(-c.shared.Value())
	require.False(t, c.shared.High())
	for i, h := range c.handlers {
		if !c.channels[i].Paused() {
			assert.Equal(t, watermark.Normal, h.Level())
		}
	}
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
	f := newFleetOn(t, watermark.SharedConfig{HighBytes: 8 << 10, LowBytes: 7 << 10, FloorBytes: 1 << 10, ResumesPerTurn: 1},
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
