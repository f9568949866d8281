package loop_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/loop"
)

func TestExecuteIsBounded(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := openLoop(t, func(c *loop.Config) { c.MaxTasks = 3 })
			for i := range n {
				err := l.Execute(l.log.does(fmt.Sprint(i)))
				if i < 3 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, loop.ErrFull)
				}
			}
			s := l.Stats()
			assert.Equal(t, min(n, 3), s.Queued)
			assert.Equal(t, min(n, 3), s.MaxQueued)
			assert.Equal(t, uint64(n-min(n, 3)), s.Refused)
			assert.Equal(t, min(n, 3), l.once(t))
			assert.Len(t, l.log.take(), min(n, 3))
			require.NoError(t, l.Execute(func() {}), "there is room again")
			assert.Equal(t, 1, l.Stats().Queued)
		})
	}
}

func TestExecuteKeepsTheOrderWhileTheQueueGrowsAndWraps(t *testing.T) {
	l := openLoop(t, func(c *loop.Config) { c.MaxTasks, c.TasksPerTurn = 1000, 37 })
	var got []int
	sent := 0
	send := func(n int) {
		for range n {
			i := sent
			sent++
			require.NoError(t, l.Execute(func() { got = append(got, i) }))
		}
	}
	for round := range 60 { // 37 of up to 59 a turn
		send(round)
		l.once(t)
	}
	for len(got) < sent {
		require.NotZero(t, l.once(t))
	}
	send(1000)
	require.ErrorIs(t, l.Execute(func() {}), loop.ErrFull)
	for len(got) < sent {
		require.NotZero(t, l.once(t))
	}
	for i, n := range got {
		require.Equal(t, i, n)
	}
}

func TestPostOfAQueuedNodeRunsItOnce(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	for range 3 {
		assert.True(t, l.Post(&p.node))
	}
	assert.Equal(t, 1, l.once(t))
	assert.Equal(t, 0, l.once(t))
	assert.True(t, l.Post(&p.node))
	assert.Equal(t, 1, l.once(t))
}

func TestPostFromRunNodeRunsInTheNextTurn(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	p.runNode = func() { l.Post(&p.node) }
	l.Post(&p.node)
	for range 3 {
		assert.Equal(t, 1, l.once(t))
	}
}

func TestNodesLeftByATurnRunBeforeNewOnes(t *testing.T) {
	l := openLoop(t, func(c *loop.Config) { c.TasksPerTurn = 2 })
	var ps []*probe
	for i := range 5 {
		ps = append(ps, l.probe(t, fmt.Sprint(i)))
	}
	for _, p := range ps[:3] {
		l.Post(&p.node)
	}
	l.once(t)
	l.Post(&ps[3].node)
	l.Post(&ps[4].node)
	l.once(t)
	l.once(t)
	assert.Equal(t, []string{"0.node", "1.node", "2.node", "3.node", "4.node"}, l.log.take())
}

func TestPostAllocatesNothing(t *testing.T) {
	l := openLoop(t)
	s := &silent{l: l.Loop}
	s.node.Init(s)
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Post(&s.node) }))
}

func TestMisuseOfTheQueuesPanicsAtTheCaller(t *testing.T) {
	l := openLoop(t)
	assert.Panics(t, func() { l.Post(new(loop.Node)) })
	assert.Panics(t, func() { _ = l.Execute(nil) })
}

func TestWakeUpsAreCoalesced(t *testing.T) {
	l := newTestLoop(t)
	ran := make(chan error, 1)
	go func() { ran <- l.Run() }()

	busy, release := make(chan struct{}), make(chan struct{})
	require.NoError(t, l.Execute(func() { close(busy); <-release }))
	closesInTime(t, busy, "the first task")
	before := l.tr.wakeCount()
	var last sync.WaitGroup
	last.Add(100)
	for range 100 {
		require.NoError(t, l.Execute(last.Done))
	}
	assert.Equal(t, before, l.tr.wakeCount(), "a loop that is awake is not woken")
	close(release)
	last.Wait()
	l.Stop()
	require.NoError(t, <-ran)
}

func TestSleepingLoopIsWokenOnce(t *testing.T) {
	l := openLoop(t)
	// From inside the transport's Wait, that is while the loop counts as asleep.
	l.tr.waitHook = func() {
		for range 10 {
			_ = l.Execute(func() {})
		}
		l.tr.waitHook = nil
	}
	_, err := l.RunOnce(forever)
	require.NoError(t, err)
	assert.Equal(t, 1, l.tr.wakeCount())
	assert.Equal(t, uint64(10), l.Stats().Tasks)
}

// What is queued after the loop has looked at its queues, but before it is asleep, wakes nobody: the loop must look
// again. With a timer set it asks for the time just in between.
func TestWhatComesJustBeforeTheLoopSleepsIsSeen(t *testing.T) {
	for name, come := range map[string]func(l *testLoop, p *probe){
		"task": func(l *testLoop, _ *probe) { _ = l.Execute(l.log.does("it")) },
		"node": func(l *testLoop, p *probe) { l.Post(&p.node) },
		"stop": func(l *testLoop, _ *probe) { l.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			l := openLoop(t)
			p := l.probe(t, "p")
			l.NewTimer(p, func() {}).Reset(time.Hour)
			l.tr.nowHook = func() {
				l.tr.nowHook = nil
				come(l, p)
			}
			_, err := l.RunOnce(forever)
			require.NoError(t, err)
			assert.Equal(t, []time.Duration{0}, l.tr.timeouts)
			assert.Zero(t, l.tr.wakeCount())
		})
	}
}

// item is a node that knows its place in the order of its poster.
type item struct {
	silent
	poster, n int
	run       func(poster, n int)
}

func (i *item) RunNode(*loop.Node) { i.run(i.poster, i.n) }

func TestPostsOfManyGoroutinesAreAllRunInTheirOrder(t *testing.T) {
	const posters, each = 8, 100_000
	l := newTestLoop(t)
	l.tr.quiet = true
	ran := make(chan error, 1)
	go func() { ran <- l.Run() }()

	var next [posters]int
	disorder, total := 0, 0
	all := make(chan struct{})
	run := func(poster, n int) {
		if n != next[poster] {
			disorder++
		}
		next[poster] = n + 1
		if total++; total == posters*each {
			close(all)
		}
	}
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			items := make([]item, each)
			for n := range items {
				i := &items[n]
				i.poster, i.n, i.run = p, n, run
				i.node.Init(i)
				if !l.Post(&i.node) {
					return
				}
				if n%1000 == 0 {
					runtime.Gosched() // lets the loop fall asleep now and then
				}
			}
		})
	}
	wg.Wait()
	closesInTime(t, all, "the nodes")
	l.Stop()
	require.NoError(t, <-ran)
	assert.Zero(t, disorder)
	assert.Equal(t, uint64(posters*each), l.Stats().Nodes)
}

func TestTasksOfManyGoroutinesAreAllRunInTheirOrder(t *testing.T) {
	const posters, each = 8, 20_000
	l := newTestLoop(t)
	l.tr.quiet = true
	ran := make(chan error, 1)
	go func() { ran <- l.Run() }()

	var next [posters]int
	disorder := 0
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for n := 0; n < each; {
				place := n
				err := l.Execute(func() {
					if place != next[p] {
						disorder++
					}
					next[p]++
				})
				if err == nil {
					n++
				} else {
					runtime.Gosched() // full
				}
			}
		})
	}
	wg.Wait()
	l.Stop()
	require.NoError(t, <-ran)
	assert.Zero(t, disorder)
	assert.Equal(t, uint64(posters*each), l.Stats().Tasks)
}
