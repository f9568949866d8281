package loop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

func groupConfig(l *testLoop) loop.Config {
	return loop.Config{
		Open:   func(bool) (transport.Transport, error) { l.tr.record = l.log.add; return l.tr, nil },
		Logger: slog.New(l.out),
		Name:   "name-0",
	}
}

// testGroup returns a group on fake transports, whose loops all log to out.
func testGroup(t *testing.T, n int, change func(i int, c *loop.Config)) (*loop.Group, []*fakeTransport, *logCatcher) {
	t.Helper()
	out := &logCatcher{}
	trs := make([]*fakeTransport, n)
	g, err := loop.NewGroup(n, func(i int) loop.Config {
		trs[i] = newFake()
		c := loop.Config{
			Open:          func(bool) (transport.Transport, error) { return trs[i], nil },
			Logger:        slog.New(out),
			WatchdogAfter: -1,
		}
		if change != nil {
			change(i, &c)
		}
		return c
	})
	require.NoError(t, err)
	return g, trs, out
}

func TestGroupStartsAndStopsItsLoops(t *testing.T) {
	g, trs, _ := testGroup(t, 3, nil)
	require.NoError(t, g.Start())
	require.ErrorIs(t, g.Start(), loop.ErrState)
	require.Equal(t, 3, g.Len())
	var wg sync.WaitGroup
	for i := range g.Len() {
		l := g.Loop(i)
		assert.Equal(t, i, l.Index())
		assert.Equal(t, fmt.Sprintf("loop-%d", i), l.Name())
		wg.Add(1)
		require.NoError(t, l.Execute(wg.Done))
	}
	wg.Wait()
	g.Stop()
	require.NoError(t, g.Wait(context.Background()))
	require.NoError(t, g.Wait(context.Background()), "again")
	for _, tr := range trs {
		assert.True(t, tr.closed)
	}
}

func TestGroupOpensAllTransportsOrNone(t *testing.T) {
	refused := errors.New("refused")
	g, trs, _ := testGroup(t, 3, func(i int, c *loop.Config) {
		if i == 1 {
			c.Open = func(bool) (transport.Transport, error) { return nil, refused }
		}
	})
	err := g.Start()
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "loop-1: ")
	assert.True(t, trs[0].closed)
	assert.True(t, trs[2].closed)
	require.ErrorIs(t, g.Wait(context.Background()), refused)
}

func TestGroupTellsTheErrorOfALoop(t *testing.T) {
	g, trs, out := testGroup(t, 2, nil)
	require.NoError(t, g.Start())
	broken := errors.New("broken")
	require.NoError(t, g.Loop(1).Execute(func() { trs[1].waitErr = broken }))
	closesInTime(t, g.Loop(1).Done(), "loop 1")
	assert.Contains(t, strings.Join(out.all(), "\n"), "ERROR the loop ends loop=loop-1 error=broken", "at once")
	g.Stop()
	err := g.Wait(context.Background())
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "loop-1: ")
}

func TestGroupNextGoesRound(t *testing.T) {
	g, _, _ := testGroup(t, 3, nil)
	for i := range 7 {
		assert.Same(t, g.Loop(i%3), g.Next())
	}
	g.Loop(1).Stop()
	for range 6 {
		assert.NotSame(t, g.Loop(1), g.Next())
	}
	g.Stop()
	assert.NotNil(t, g.Next(), "somebody has to answer ErrStopped")
}

func TestGroupOfLoopsAsManyAsGOMAXPROCS(t *testing.T) {
	g, err := loop.NewGroup(0, func(int) loop.Config {
		return loop.Config{Open: func(bool) (transport.Transport, error) { return newFake(), nil }}
	})
	require.NoError(t, err)
	assert.Equal(t, runtime.GOMAXPROCS(0), g.Len())
}

func TestBadConfigIsRefused(t *testing.T) {
	open := func(bool) (transport.Transport, error) { return newFake(), nil }
	for name, c := range map[string]loop.Config{
		"Open":               {},
		"MaxTasks":           {Open: open, MaxTasks: -1},
		"TasksPerTurn":       {Open: open, TasksPerTurn: -1},
		"CompletionsPerTurn": {Open: open, CompletionsPerTurn: -1},
		"TurnTime":           {Open: open, TurnTime: -1},
	} {
		_, err := loop.New(c)
		require.ErrorContains(t, err, "Config."+name)
		_, err = loop.NewGroup(2, func(int) loop.Config { return c })
		require.ErrorContains(t, err, "loop 0: loop: Config."+name)
	}
	_, err := loop.NewGroup(-1, nil)
	require.Error(t, err)
	_, err = loop.New(loop.Config{Open: open})
	require.NoError(t, err, "the zero value of the rest works")
}

// Two groups stand for two servers of a process: a loop of one that waits for one of the other may wait for ever, too.
func TestOnThreadKnowsTheLoopsOfTheWholeProcess(t *testing.T) {
	g, _, _ := testGroup(t, 2, nil)
	other, _, _ := testGroup(t, 1, nil)
	require.NoError(t, g.Start())
	require.NoError(t, other.Start())
	assert.False(t, loop.OnThread())
	type finding struct {
		on   bool
		wait error
	}
	found := make(chan finding)
	for _, l := range []*loop.Loop{g.Loop(0), g.Loop(1), other.Loop(0)} {
		require.NoError(t, l.Execute(func() { found <- finding{loop.OnThread(), g.Wait(context.Background())} }))
		f := <-found
		assert.True(t, f.on)
		require.ErrorIs(t, f.wait, loop.ErrState, "waiting there would wait for ever")
	}
	for _, group := range []*loop.Group{g, other} {
		group.Stop()
		require.NoError(t, group.Wait(context.Background()))
	}
	assert.False(t, loop.OnThread())
}

// A goroutine may move from one thread to the next at any moment, and a loop may begin on the one that it left.
func TestOnThreadIsFalseBesideLoopsThatBeginAndEnd(t *testing.T) {
	var ended atomic.Bool
	var wrong atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for !ended.Load() {
				if loop.OnThread() {
					wrong.Add(1)
				}
			}
		})
	}
	for range 300 {
		g, _, _ := testGroup(t, 4, nil)
		require.NoError(t, g.Start())
		g.Stop()
		require.NoError(t, g.Wait(context.Background()))
	}
	ended.Store(true)
	callers.Wait()
	assert.Zero(t, wrong.Load())
}

func TestOnThreadIsTrueInsideRunOnceAlone(t *testing.T) {
	l, inner := openLoop(t), openLoop(t)
	var inside, nested, elsewhere bool
	require.NoError(t, l.Execute(func() {
		inner.once(t) // its end must not end this one's
		inside = loop.OnThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			elsewhere = loop.OnThread()
		}()
		<-done
	}))
	require.NoError(t, inner.Execute(func() { nested = loop.OnThread() }))
	l.once(t)
	assert.True(t, inside)
	assert.True(t, nested)
	assert.False(t, elsewhere)
	assert.False(t, loop.OnThread(), "between the turns of RunOnce the loop has no thread")
}

func blockHere(release chan struct{}) { <-release }

func blockHereFrom(begun, release chan struct{}) {
	close(begun)
	<-release
}

func TestWatchdogLogsAStuckTurnOnceWithItsStack(t *testing.T) {
	const after = 200 * time.Millisecond // a busy machine may keep a loop from running for a while
	g, _, out := testGroup(t, 4, func(i int, c *loop.Config) {
		c.WatchdogAfter = []time.Duration{after, after, time.Hour, -1}[i]
	})
	require.NoError(t, g.Start())
	stuck := func(loop int) []string {
		var lines []string
		for _, line := range out.all() {
			if strings.Contains(line, fmt.Sprintf("lasts too long: a callback computes or blocks loop=loop-%d", loop)) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	for round := 1; round <= 2; round++ {
		release := make(chan struct{})
		block := func() { blockHere(release) }
		for _, i := range []int{0, 2, 3} {
			require.NoError(t, g.Loop(i).Execute(block))
		}
		eventually(t, func() bool { return len(stuck(0)) >= round }, "the watchdog's line")
		assert.Len(t, stuck(1), round-1, "a loop that sleeps is not stuck")
		// By the time that it has found loop 1 stuck too it has looked at loop 0 some times more.
		require.NoError(t, g.Loop(1).Execute(block))
		eventually(t, func() bool { return len(stuck(1)) >= round }, "the watchdog's line")
		close(release)
		done := make(chan uint64)
		require.NoError(t, g.Loop(0).Execute(func() { done <- g.Loop(0).Stats().Stuck }))
		assert.Equal(t, uint64(round), <-done)
	}
	assert.Len(t, stuck(1), 2)
	assert.Empty(t, stuck(2), "its limit is longer")
	assert.Empty(t, stuck(3), "it is not watched")
	lines := stuck(0)
	require.Len(t, lines, 2, "once for each stuck turn")
	for _, line := range lines {
		assert.Contains(t, line, "WARN ")
		assert.Contains(t, line, "loop=loop-0")
		assert.Contains(t, line, "at_least=200ms")
		assert.Contains(t, line, "loop_test.blockHere")
		heads := strings.Count(line, "\ngoroutine ") + strings.Count(line, "stack=goroutine ")
		assert.Equal(t, 1, heads, "one goroutine's stack")
	}
	g.Stop()
	require.NoError(t, g.Wait(context.Background()))
}
