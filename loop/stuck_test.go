package loop_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/loop"
)

// A loop whose callback does not return costs the others nothing: they end, and whoever waits learns who it is.
func TestWaitEndsAtItsBoundAndNamesWhoIsStuck(t *testing.T) {
	g, _, _ := testGroup(t, 3, func(_ int, c *loop.Config) {
		c.Culprit = func(stack []byte) string {
			if strings.Contains(string(stack), "blockHere") {
				return "the blocker"
			}
			return "somebody else"
		}
	})
	require.NoError(t, g.Start())
	release, begun := make(chan struct{}), make(chan struct{})
	require.NoError(t, g.Loop(1).Execute(func() { blockHereFrom(begun, release) }))
	<-begun
	g.Stop()
	closesInTime(t, g.Loop(0).Done(), "the loop before it")
	closesInTime(t, g.Loop(2).Done(), "the loop behind it")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := g.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, loop.ErrStuck)
	var stuck *loop.StuckError
	require.ErrorAs(t, err, &stuck)
	assert.Equal(t, "loop-1", stuck.Loop)
	assert.Equal(t, "the blocker", stuck.Handler)
	assert.Contains(t, stuck.Stack, "blockHere")
	assert.Equal(t, 1, strings.Count(err.Error(), "loop-"), "only one is: %v", err)
	assert.ErrorContains(t, err, "on loop-1: the blocker")

	close(release)
	require.NoError(t, g.Wait(context.Background()))
	require.NoError(t, g.Wait(ctx), "all have ended")
}

func TestWaitDoesNotCallALoopStuckThatSleeps(t *testing.T) {
	g, _, _ := testGroup(t, 1, nil)
	require.NoError(t, g.Start())
	eventually(t, func() bool { return g.Loop(0).StuckError() == nil }, "the loop to sleep")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := g.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, loop.ErrStuck)
	require.ErrorContains(t, err, "loop-0: has not ended")
	g.Stop()
	require.NoError(t, g.Wait(context.Background()))
}

func TestNextPassesOverALoopThatIsStuck(t *testing.T) {
	g, _, _ := testGroup(t, 3, func(i int, c *loop.Config) { c.WatchdogAfter = 2 * time.Millisecond })
	require.NoError(t, g.Start())
	release := make(chan struct{})
	require.NoError(t, g.Loop(1).Execute(func() { blockHere(release) }))
	eventually(t, g.Loop(1).Stuck, "the watchdog's finding")
	for range 6 {
		assert.NotSame(t, g.Loop(1), g.Next())
	}
	close(release)
	eventually(t, func() bool { return !g.Loop(1).Stuck() }, "the end of it")
	eventually(t, func() bool { return g.Next() == g.Loop(1) }, "its turn comes again")
	g.Stop()
	require.NoError(t, g.Wait(context.Background()))
}
