package pipeline_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
)

// Whoever leaves from inside its own watch must not take the next one's turn.
func TestAWatcherThatLeavesInItsWatchKeepsNobodyElse(t *testing.T) {
	for name, leave := range map[string]func(ctx *pipeline.Context){
		"removes itself": func(ctx *pipeline.Context) { _, _ = ctx.Pipeline().Remove(ctx.Name()) },
		"ends its watch": func(ctx *pipeline.Context) { ctx.WatchPending(-1, math.MaxInt, nil) },
		"removes the one before": func(ctx *pipeline.Context) {
			_, _ = ctx.Pipeline().Remove("a")
		},
		"removes the one behind": func(ctx *pipeline.Context) {
			_, _ = ctx.Pipeline().Remove("c")
		},
	} {
		t.Run(name, func(t *testing.T) {
			ch := newBare()
			told := map[string]int{}
			for _, h := range []string{"a", "b", "c", "d"} {
				require.NoError(t, ch.pipe.AddLast(h, pass{}))
				ch.pipe.Context(h).WatchPending(0, math.MaxInt, func(ctx *pipeline.Context, _ int) error {
					told[h]++
					if h == "b" && told[h] == 1 {
						leave(ctx)
					}
					return nil
				})
			}
			ch.pipe.FirePending(0)
			assert.Equal(t, 1, told["a"])
			assert.Equal(t, 1, told["b"])
			assert.Equal(t, 1, told["d"], "behind the one who left")
			assert.Equal(t, map[bool]int{true: 0, false: 1}[name == "removes the one behind"], told["c"])
			ch.pipe.FirePending(0)
			assert.Equal(t, 2, told["d"])
			assert.True(t, ch.pipe.WatchesPending(0))
			assert.False(t, ch.pipe.WatchesPending(1))
			for _, h := range []string{"a", "b", "c", "d"} {
				if ctx := ch.pipe.Context(h); ctx != nil {
					ctx.WatchPending(-1, math.MaxInt, nil)
				}
			}
			assert.False(t, ch.pipe.WatchesPending(0))
		})
	}
}

func TestWhoBeginsToWatchInAWatchIsToldAtTheNextTurn(t *testing.T) {
	ch := newBare()
	require.NoError(t, ch.pipe.AddLast("a", pass{}))
	calls := 0
	var watch func(ctx *pipeline.Context, _ int) error
	watch = func(ctx *pipeline.Context, _ int) error {
		calls++
		ctx.WatchPending(-1, math.MaxInt, nil)
		ctx.WatchPending(0, math.MaxInt, watch)
		return nil
	}
	ch.pipe.Context("a").WatchPending(0, math.MaxInt, watch)
	ch.pipe.FirePending(0)
	assert.Equal(t, 1, calls)
	ch.pipe.FirePending(0)
	assert.Equal(t, 2, calls)
}

func TestNobodyIsToldOfPendingBehindTheOneWhoCloses(t *testing.T) {
	ch := newBare()
	ch.ends = true
	calls := 0
	for _, h := range []string{"a", "b"} {
		require.NoError(t, ch.pipe.AddLast(h, pass{}))
		ch.pipe.Context(h).WatchPending(0, math.MaxInt, func(ctx *pipeline.Context, _ int) error {
			calls++
			return ctx.Close()
		})
	}
	ch.pipe.FirePending(0)
	assert.Equal(t, 1, calls)
}
