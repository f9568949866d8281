package loop_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

func explode() { panic("boom") }

func TestPanicClosesItsCompleterAndTheTurnGoesOn(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(l *testLoop, bad, good *probe)
		want []string
	}{
		{"complete", func(l *testLoop, bad, good *probe) {
			bad.complete = explode
			l.tr.deliver(good.data(), bad.data(), good.data())
		}, []string{"good.complete", "bad.complete", "bad.panicked", "good.complete", "task"}},
		{"complete last in its batch", func(l *testLoop, bad, _ *probe) {
			bad.complete = explode
			l.tr.deliver(bad.data())
		}, []string{"bad.complete", "bad.panicked", "task"}},
		{"complete after it unregistered itself", func(l *testLoop, bad, good *probe) {
			bad.complete = func() { l.Unregister(bad.reg); explode() }
			l.tr.deliver(bad.data(), good.data())
		}, []string{"bad.complete", "bad.panicked", "good.complete", "task"}},
		{"timer", func(l *testLoop, bad, good *probe) {
			l.NewTimer(bad, explode).Reset(0)
			l.NewTimer(good, l.log.does("timer")).Reset(0)
		}, []string{"bad.panicked", "timer", "task"}},
		{"node", func(l *testLoop, bad, good *probe) {
			bad.runNode = explode
			l.Post(&bad.node)
			l.Post(&good.node)
		}, []string{"bad.node", "bad.panicked", "good.node", "task"}},
		{"end of turn", func(l *testLoop, bad, good *probe) {
			bad.endTurn = explode
			l.Dirty(good)
			l.Dirty(bad)
			l.Dirty(good)
		}, []string{"task", "good.end", "bad.end", "bad.panicked", "good.end"}},
		{"runtime error", func(l *testLoop, bad, _ *probe) {
			bad.complete = func() { var none []int; none[len(l.tr.submitted)] = 1 }
			l.tr.deliver(bad.data())
		}, []string{"bad.complete", "bad.panicked", "task"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openLoop(t)
			bad, good := l.probe(t, "bad"), l.probe(t, "good")
			c.do(l, bad, good)
			require.NoError(t, l.Execute(l.log.does("task")))
			l.once(t)
			assert.Equal(t, c.want, l.log.take(), "in one turn")
			assert.Equal(t, uint64(1), l.Stats().Panics)
			require.Len(t, bad.panics, 1)
			assert.Empty(t, good.panics)
			assert.Contains(t, bad.stacks[0], "loop_test.", "the stack shows who panicked")
			assert.Empty(t, l.out.told(), "the completer logs it, with the handler's name")
		})
	}
}

func TestPanicReleasesTheBufferFirst(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	p.complete = explode
	left := -1
	p.panicked = func() { left = l.Pool().Outstanding() }
	c := p.data()
	c.Buf = l.Pool().Get(1)
	l.tr.deliver(c)
	l.once(t)
	assert.Zero(t, left)
}

func TestPanicWithoutAnOwnerIsCountedAndLogged(t *testing.T) {
	l := openLoop(t)
	require.NoError(t, l.Execute(explode))
	require.NoError(t, l.Execute(l.log.does("next task")))
	l.NewTimer(nil, explode).Reset(0)
	l.once(t)
	assert.Equal(t, []string{"next task"}, l.log.take())
	assert.Equal(t, uint64(2), l.Stats().Panics)
	lines := l.out.told()
	require.Len(t, lines, 2)
	for _, line := range lines {
		assert.Contains(t, line, "ERROR panic in a callback without an owner loop=test panic=boom")
		assert.Contains(t, line, "loop_test.explode")
	}
}

func TestPanicOfPanickedAborts(t *testing.T) {
	l := openLoop(t)
	p, q := l.probe(t, "p"), l.probe(t, "q")
	p.complete, p.panicked = explode, explode
	l.tr.deliver(p.data(), q.data())
	l.once(t)
	assert.Equal(t, []string{"p.complete", "p.panicked", "p.abort", "q.complete"}, l.log.take())
	require.Len(t, p.causes, 1)
	require.ErrorContains(t, p.causes[0], "boom")
	assert.Equal(t, uint64(2), l.Stats().Panics)
	assert.Equal(t, 2, l.Stats().Registered)
	l.once(t)
	assert.Equal(t, []string{"p.closed"}, l.log.take(), "its close completes like any other")
}

func TestPanicOfAbortAfterPanickedUnregisters(t *testing.T) {
	l := openLoop(t)
	p, q := l.probe(t, "p"), l.probe(t, "q")
	p.runNode, p.panicked, p.abort = explode, explode, explode
	l.Post(&p.node)
	l.Post(&q.node)
	l.once(t)
	assert.Equal(t, []string{"p.node", "p.panicked", "p.abort", "q.node"}, l.log.take())
	assert.Equal(t, uint64(3), l.Stats().Panics)
	assert.Equal(t, 1, l.Stats().Registered)
	l.tr.deliver(p.data())
	l.once(t)
	assert.Empty(t, l.log.take())
}

func TestManyPanicsInOneBatch(t *testing.T) {
	l := openLoop(t)
	p, q := l.probe(t, "p"), l.probe(t, "q")
	p.complete = explode
	for range 100 {
		c := p.data()
		c.Buf = l.Pool().Get(1)
		l.tr.deliver(c, q.data())
	}
	assert.Equal(t, 200, l.once(t))
	assert.Len(t, p.panics, 100)
	assert.Zero(t, l.Pool().Outstanding())
}

func TestGoexitEndsTheLoopAndSurfacesFromWait(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(l *testLoop, bad *probe)
	}{
		{"complete", func(l *testLoop, bad *probe) {
			bad.complete = runtime.Goexit
			c := bad.data()
			c.Buf = l.Pool().Get(1)
			l.tr.deliver(c)
		}},
		{"node", func(l *testLoop, bad *probe) { bad.runNode = runtime.Goexit; l.Post(&bad.node) }},
		{"task", func(l *testLoop, _ *probe) { _ = l.Execute(runtime.Goexit) }},
		{"timer", func(l *testLoop, bad *probe) { l.NewTimer(bad, runtime.Goexit).Reset(0) }},
		{"end of turn", func(l *testLoop, bad *probe) { bad.endTurn = runtime.Goexit; l.Dirty(bad) }},
		{"panicked", func(l *testLoop, bad *probe) {
			bad.complete, bad.panicked = explode, runtime.Goexit
			l.tr.deliver(bad.data())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			loops := make([]*testLoop, 2)
			g, err := loop.NewGroup(2, func(i int) loop.Config {
				l := &testLoop{tr: newFake(), log: &journal{}, out: &logCatcher{}}
				loops[i] = l
				return groupConfig(l)
			})
			require.NoError(t, err)
			for i, l := range loops {
				l.Loop = g.Loop(i)
			}
			require.NoError(t, g.Start())

			l := loops[0]
			ready := make(chan struct{})
			var bad, good *probe
			require.NoError(t, l.Execute(func() {
				bad, good = l.probe(t, "bad"), l.probe(t, "good")
				close(ready)
			}))
			closesInTime(t, ready, "the first task")
			require.NoError(t, l.Execute(func() {
				c.do(l, bad)
				l.tr.deliver(good.data())
				_ = l.Execute(l.log.does("accepted"))
			}))
			closesInTime(t, l.Done(), "the end of the loop")
			assert.Zero(t, l.Pool().Outstanding())
			assert.Equal(t, []error{loop.ErrGoexit}, bad.causes)
			assert.Equal(t, []error{loop.ErrGoexit}, good.causes)
			lines := l.log.take()
			assert.Contains(t, lines, "good.complete", "what had come was still delivered")
			assert.Contains(t, lines, "accepted")
			assert.Equal(t, "transport closed", lines[len(lines)-1])
			assert.Subset(t, lines, []string{"bad.closed", "good.closed"})
			require.ErrorIs(t, l.Execute(func() {}), loop.ErrStopped)
			assert.False(t, l.Post(&good.node))
			assert.Same(t, g.Loop(1), g.Next(), "a loop that has ended gets no more work")
			assert.Same(t, g.Loop(1), g.Next())

			other := make(chan struct{})
			require.NoError(t, loops[1].Execute(func() { close(other) }))
			closesInTime(t, other, "a task of the other loop")
			g.Stop()
			err = g.Wait(context.Background())
			require.ErrorIs(t, err, loop.ErrGoexit)
			require.ErrorContains(t, err, "name-0")
			logged := l.out.told()
			require.NotEmpty(t, logged)
			assert.Contains(t, logged[len(logged)-1], "ERROR the loop ends: a callback called runtime.Goexit")
			assert.Contains(t, logged[len(logged)-1], "runtime.Goexit()\n", "the stack shows who called it")
		})
	}
}

// During the end of the loop as well, Goexit ends only the callback that called it.
func TestGoexitWhileTheLoopEndsHangsNothing(t *testing.T) {
	l := newTestLoop(t)
	probes := make([]*probe, 5)
	require.NoError(t, l.Execute(func() {
		for i := range probes {
			probes[i] = l.probe(t, fmt.Sprint(i))
		}
		probes[1].abort = runtime.Goexit
		probes[2].abort = func() { l.Post(&probes[2].node) }
		probes[2].runNode = runtime.Goexit
		probes[3].stubborn = true
		l.Stop()
		_ = l.Execute(runtime.Goexit)
		_ = l.Execute(l.log.does("task"))
	}))
	returned := false
	go func() {
		_ = l.Run()
		returned = true
	}()
	closesInTime(t, l.Done(), "the end of the loop")
	assert.False(t, returned)
	lines := l.log.take()
	assert.Equal(t, []string{"task", "0.abort", "1.abort", "2.abort", "3.abort", "4.abort"}, lines[:6])
	assert.Subset(t, lines, []string{"0.closed", "2.node", "2.closed", "4.closed"})
	assert.Equal(t, []error{loop.ErrStopped, loop.ErrStopped}, probes[3].causes)
	assert.Equal(t, "transport closed", lines[len(lines)-1])
	assert.Zero(t, l.Stats().Registered)
}

func TestGoexitOfRunOnceLeavesALoopThatCloses(t *testing.T) {
	l := newTestLoop(t)
	require.NoError(t, l.Open())
	p, q := l.probe(t, "p"), l.probe(t, "q")
	p.complete = runtime.Goexit
	c := p.data()
	c.Buf = l.Pool().Get(1)
	l.tr.deliver(c, q.data())
	var closeErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { closeErr = l.Close() }()
		_, _ = l.RunOnce(0)
	}()
	closesInTime(t, done, "the goroutine")
	require.NoError(t, closeErr)
	assert.Equal(t, []string{
		"p.complete", "q.complete", "p.abort", "q.abort", "p.closed", "q.closed", "transport closed",
	}, l.log.take())
	assert.Equal(t, []error{loop.ErrStopped}, q.causes)
	assert.Zero(t, l.Pool().Outstanding())
	assert.False(t, loop.OnThread())
}

func TestPanicOfTheTransportEndsTheLoop(t *testing.T) {
	l := newTestLoop(t)
	require.NoError(t, l.Execute(func() {
		l.probe(t, "p")
		l.tr.waitHook = explode
	}))
	err := l.Run()
	require.ErrorIs(t, err, loop.ErrPanic)
	require.ErrorContains(t, err, "boom")
	assert.Equal(t, []string{"p.abort", "p.abort", "transport closed"}, l.log.take())
	closesInTime(t, l.Done(), "Done")

	o := openLoop(t)
	o.tr.waitHook = explode
	_, err = o.RunOnce(0)
	require.ErrorIs(t, err, loop.ErrPanic)
	require.NoError(t, o.Close())
}

func TestPanicOfTheTransportWhileTheLoopEnds(t *testing.T) {
	l := newTestLoop(t)
	require.NoError(t, l.Execute(func() {
		p := l.probe(t, "p")
		p.abort = func() { l.tr.waitHook = explode }
		l.Stop()
	}))
	require.NoError(t, l.Run())
	closesInTime(t, l.Done(), "Done")
	assert.True(t, l.tr.closed)
}

func TestPanicOfOpenIsAnError(t *testing.T) {
	g, err := loop.NewGroup(1, func(int) loop.Config {
		c := groupConfig(&testLoop{out: &logCatcher{}})
		c.Open = func(bool) (transport.Transport, error) { panic(errors.New("boom")) }
		return c
	})
	require.NoError(t, err)
	require.ErrorIs(t, g.Start(), loop.ErrPanic)
}

func TestTimerOfAPanickedTurnStillFires(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	var timer *loop.Timer
	n := 0
	timer = l.NewTimer(p, func() {
		n++
		timer.Reset(time.Second)
		explode()
	})
	timer.Reset(time.Second)
	for range 6 {
		_, err := l.RunOnce(forever)
		require.NoError(t, err)
	}
	assert.Greater(t, n, 1)
	assert.Len(t, p.panics, n)
}
