package loop_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

func TestStopRunsWhatWasAcceptedThenAbortsThenCloses(t *testing.T) {
	l := newTestLoop(t, func(c *loop.Config) { c.TasksPerTurn = 2 })
	var a, b *probe
	require.NoError(t, l.Execute(func() {
		a, b = l.probe(t, "a"), l.probe(t, "b")
		l.Stop()
		for i := range 5 {
			_ = l.Execute(l.log.does(fmt.Sprint("task ", i)))
		}
		l.Post(&a.node)
		b.abort = func() {
			l.log.add(fmt.Sprint("execute: ", errors.Is(l.Execute(func() {}), loop.ErrStopped)))
			_, err := l.Register(&probe{})
			l.log.add(fmt.Sprint("register: ", errors.Is(err, loop.ErrStopped)))
			l.log.add(fmt.Sprint("post: ", l.Post(&b.node)))
			l.Dirty(b)
		}
	}))
	require.NoError(t, l.Run())
	assert.Equal(t, []string{
		"a.node", "task 0", "task 1", "task 2", "task 3", "task 4",
		"a.abort", "b.abort", "execute: true", "register: true", "post: true",
		"a.closed", "b.closed", "b.node", "b.end", "transport closed",
	}, l.log.take())
	assert.Equal(t, []error{loop.ErrStopped}, a.causes)
	assert.False(t, l.Post(&a.node))
	require.ErrorIs(t, l.Execute(func() {}), loop.ErrStopped)
	closesInTime(t, l.Done(), "Done")
	assert.False(t, loop.OnThread())
}

func TestStopWaitsForStubbornCompletersOneSecond(t *testing.T) {
	l := openLoop(t)
	p, q := l.probe(t, "p"), l.probe(t, "q")
	p.stubborn = true
	p.abort = func() { l.log.add(fmt.Sprint("at ", l.Now())) }
	late := l.NewTimer(q, l.log.does("timer"))
	late.Reset(600 * time.Millisecond)
	never := l.NewTimer(q, l.log.does("never"))
	never.Reset(2 * time.Second)
	require.NoError(t, l.Close())
	assert.Equal(t, []string{
		"p.abort", "at 0s", "q.abort", "q.closed", "timer", "p.abort", "at 1s", "transport closed",
	}, l.log.take())
	assert.Equal(t, []error{loop.ErrStopped, loop.ErrStopped}, p.causes)
	assert.Zero(t, l.Stats().Registered)
	assert.Contains(t, l.out.told()[len(l.out.told())-1], "did not close when the loop stopped loop=test count=1")
}

func TestStopEndsWhenACallbackOutlastsTheSecond(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	p.stubborn = true
	l.NewTimer(p, func() { l.tr.advance(5 * time.Second) }).Reset(500 * time.Millisecond)
	require.NoError(t, l.Close())
	assert.Len(t, p.causes, 2)
	assert.Equal(t, 5500*time.Millisecond, l.tr.Now())
}

func TestStopIsBoundedOnAClockThatStandsStill(t *testing.T) {
	l := openLoop(t)
	l.probe(t, "p").stubborn = true
	l.tr.frozen = true
	require.NoError(t, l.Close())
	assert.True(t, l.tr.closed)
	assert.Less(t, len(l.tr.timeouts), 2000)
}

func TestStopKeepsACompleterThatClosesAtTheLastMoment(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	p.stubborn = true
	done := l.NewTimer(p, func() { l.Unregister(p.reg) })
	p.abort = func() { done.Reset(time.Second - time.Nanosecond) }
	require.NoError(t, l.Close())
	assert.Len(t, p.causes, 1, "it had gone by itself")
}

func TestAbortThatPanicsIsToldAndTheOthersAreAborted(t *testing.T) {
	l := openLoop(t)
	a, b, c := l.probe(t, "a"), l.probe(t, "b"), l.probe(t, "c")
	a.abort = explode
	b.abort, b.panicked = explode, explode
	require.NoError(t, l.Close())
	assert.Equal(t, []string{
		"a.abort", "a.panicked", "b.abort", "b.panicked", "c.abort", "c.closed", "a.abort", "a.panicked", "transport closed",
	}, l.log.take())
	assert.Empty(t, c.panics)
	assert.Zero(t, l.Stats().Registered)
}

func TestNodesOfTheLastCallRun(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	p.stubborn = true
	calls := 0
	p.abort = func() {
		if calls++; calls == 2 {
			l.log.add(fmt.Sprint("post: ", l.Post(&p.node)))
			l.Dirty(p)
		}
	}
	p.runNode = func() { l.log.add(fmt.Sprint("post: ", l.Post(&p.node))) }
	require.NoError(t, l.Close())
	assert.Equal(t, []string{
		"p.abort", "p.abort", "post: true", "p.node", "post: false", "p.end", "transport closed",
	}, l.log.take())
}

func TestCloseReleasesWhatWasNotDispatched(t *testing.T) {
	l := newTestLoop(t)
	require.NoError(t, l.Open())
	p := l.probe(t, "p")
	p.complete = func() { l.tr.waitErr = errors.New("broken") }
	for range 3 {
		c := p.data()
		c.Buf = l.Pool().Get(1)
		l.tr.deliver(c)
	}
	l.once(t)
	_, err := l.RunOnce(0)
	require.Error(t, err)
	require.NoError(t, l.Close())
	assert.Zero(t, l.Pool().Outstanding())
}

func TestCloseReleasesWhatTurnTimeHasLeft(t *testing.T) {
	clocked := &clockedTransport{fakeTransport: newFake(), passed: time.Hour}
	l := openLoop(t, func(c *loop.Config) {
		c.Open = func(bool) (transport.Transport, error) { return clocked, nil }
	})
	p := l.probe(t, "p")
	for range 60 { // three turns and some
		c := p.data()
		c.Buf = l.Pool().Get(1)
		clocked.deliver(c)
	}
	l.once(t)
	require.Equal(t, 44, l.Pool().Outstanding())
	l.Unregister(p.reg)
	require.NoError(t, l.Close())
	assert.Zero(t, l.Pool().Outstanding())
}

func TestCloseAnswersTheTransportsError(t *testing.T) {
	l := openLoop(t)
	l.tr.closeErr = errors.New("close failed")
	require.ErrorIs(t, l.Close(), l.tr.closeErr)
	require.NoError(t, l.Close(), "a second Close does nothing")
}

func TestOpenFailureRunsWhatWasAccepted(t *testing.T) {
	refused := errors.New("refused")
	l := newTestLoop(t, func(c *loop.Config) {
		c.Open = func(bool) (transport.Transport, error) { return nil, refused }
	})
	p := l.probe(t, "p") // before Run: nobody else uses the loop yet
	require.True(t, l.Post(&p.node))
	require.NoError(t, l.Execute(func() {
		l.Submit(transport.Op{Kind: transport.Close})
		l.log.add(fmt.Sprint("task at ", l.Now(), " ", l.Pool() == nil))
	}))
	require.ErrorIs(t, l.Run(), refused)
	assert.Equal(t, []string{"p.node", "task at 0s true", "p.abort", "p.abort"}, l.log.take())
	require.ErrorIs(t, l.Execute(func() {}), loop.ErrStopped)
	assert.False(t, l.Post(&p.node))
	assert.Empty(t, l.out.told(), "Run has told it")
}

func TestCloseOfALoopThatNeverRan(t *testing.T) {
	l := newTestLoop(t)
	require.NoError(t, l.Execute(l.log.does("task")))
	require.NoError(t, l.Close())
	assert.Equal(t, []string{"task"}, l.log.take())
	require.ErrorIs(t, l.Run(), loop.ErrState)
	require.ErrorIs(t, l.Open(), loop.ErrState)
}

func TestStopBeforeRun(t *testing.T) {
	l := newTestLoop(t)
	require.NoError(t, l.Execute(l.log.does("task")))
	l.Stop()
	require.NoError(t, l.Run())
	assert.Equal(t, []string{"task", "transport closed"}, l.log.take())
}

func TestLoopRefusesWhatItsStateDoesNotAllow(t *testing.T) {
	l := newTestLoop(t)
	_, err := l.RunOnce(0)
	require.ErrorIs(t, err, loop.ErrState, "RunOnce before Open")
	var once, closing, again error
	require.NoError(t, l.Execute(func() {
		_, once = l.RunOnce(0)
		closing = l.Close()
		again = l.Run()
		l.Stop()
	}))
	require.NoError(t, l.Run())
	require.ErrorIs(t, once, loop.ErrState)
	require.ErrorIs(t, closing, loop.ErrState)
	require.ErrorIs(t, again, loop.ErrState)

	o := openLoop(t)
	require.ErrorIs(t, o.Open(), loop.ErrState)
	require.NoError(t, o.Execute(func() { closing = o.Close() }))
	o.once(t)
	require.ErrorIs(t, closing, loop.ErrState)
	o.Stop()
	_, err = o.RunOnce(0)
	require.ErrorIs(t, err, loop.ErrStopped)
}

func TestOnThreadStartRunsOnTheLoopsThread(t *testing.T) {
	var l *testLoop
	on := false
	l = newTestLoop(t, func(c *loop.Config) {
		c.OnThreadStart = func() error { on = loop.OnThread(); l.Stop(); return nil }
	})
	done := make(chan error)
	go func() { done <- l.Run() }()
	require.NoError(t, <-done)
	assert.True(t, on)

	refused := errors.New("refused")
	l = newTestLoop(t, func(c *loop.Config) {
		c.OnThreadStart = func() error { return refused }
		c.Open = func(bool) (transport.Transport, error) { panic("must not be opened") }
	})
	go func() { done <- l.Run() }()
	require.ErrorIs(t, <-done, refused)
}

// Every Post that returned true is followed by a RunNode, every accepted task runs once, whenever the loop stops.
func TestStopLosesNothingThatWasAccepted(t *testing.T) {
	const posters, rounds = 4, 40
	for range rounds {
		l := newTestLoop(t)
		shared := &counted{}
		shared.node.Init(shared)
		var accepted, ran, refused atomic.Int64
		var promised [posters]int64
		var own [posters]*counted
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = l.Run()
		}()
		var wg sync.WaitGroup
		for i := range posters {
			own[i] = &counted{}
			own[i].node.Init(own[i])
			wg.Go(func() {
				for n := int64(1); ; n++ {
					own[i].wanted.Store(n)
					shared.wantedBy[i].Store(n)
					first, second := l.Post(&own[i].node), l.Post(&shared.node)
					if first {
						own[i].promised = n
					}
					if second {
						promised[i] = n
					}
					if l.Execute(func() { ran.Add(1) }) == nil {
						accepted.Add(1)
					} else {
						refused.Add(1)
					}
					if !first && !second {
						return
					}
					if i == 0 && n == 50 {
						l.Stop()
					}
					if n%16 == 0 {
						runtime.Gosched()
					}
				}
			})
		}
		wg.Wait()
		closesInTime(t, ended, "Run")
		assert.Equal(t, accepted.Load(), ran.Load())
		assert.NotZero(t, refused.Load())
		for i := range posters {
			assert.GreaterOrEqual(t, own[i].seen, own[i].promised)
			assert.GreaterOrEqual(t, shared.seenBy[i], promised[i])
		}
	}
}

// counted is a Completer whose node carries numbers along.
type counted struct {
	silent
	wanted   atomic.Int64
	promised int64
	seen     int64
	wantedBy [4]atomic.Int64
	seenBy   [4]int64
}

func (c *counted) RunNode(*loop.Node) {
	c.seen = c.wanted.Load()
	for i := range c.wantedBy {
		c.seenBy[i] = c.wantedBy[i].Load()
	}
}
