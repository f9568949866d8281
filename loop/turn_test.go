package loop_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

const forever = time.Duration(-1)

func TestTurnGoesFromCompletionsToTimersToNodesToTasksToTheEnd(t *testing.T) {
	l := openLoop(t)
	a, b := l.probe(t, "a"), l.probe(t, "b")
	require.NoError(t, l.Execute(l.log.does("task")))
	require.True(t, l.Post(&b.node))
	l.NewTimer(a, l.log.does("timer")).Reset(0)
	a.complete = func() { l.Dirty(a) }
	l.tr.deliver(a.data(), b.data())

	assert.Equal(t, 6, l.once(t))
	assert.Equal(t, []string{"a.complete", "b.complete", "timer", "b.node", "task", "a.end"}, l.log.take())
	s := l.Stats()
	assert.Equal(t, uint64(1), s.Turns)
	assert.Equal(t, uint64(2), s.Completions)
	assert.Equal(t, []uint64{1, 1, 1, 1}, []uint64{s.Timers, s.Nodes, s.Tasks, s.EndTurns})
	assert.Equal(t, 2, s.Registered)
}

func TestTurnDispatchesAtMostCompletionsPerTurn(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := openLoop(t, func(c *loop.Config) { c.CompletionsPerTurn = 4 })
			p := l.probe(t, "p")
			for range n {
				l.tr.deliver(p.data())
			}
			assert.Equal(t, min(n, 4), l.once(t))
			assert.Equal(t, n-min(n, 4), l.once(t))
		})
	}
}

func TestTurnRunsAtMostTasksPerTurnOfEachKind(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		for kind, queue := range map[string]func(l *testLoop, p *probe){
			"tasks": func(l *testLoop, _ *probe) { _ = l.Execute(func() {}) },
			"nodes": func(l *testLoop, p *probe) {
				node := new(loop.Node)
				node.Init(p)
				l.Post(node)
			},
			"timers": func(l *testLoop, p *probe) { l.NewTimer(p, func() {}).Reset(0) },
		} {
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				l := openLoop(t, func(c *loop.Config) { c.TasksPerTurn = 4 })
				p := l.probe(t, "p")
				for range n {
					queue(l, p)
				}
				done, err := l.RunOnce(forever)
				require.NoError(t, err)
				assert.Equal(t, min(n, 4), done)
				done, err = l.RunOnce(time.Hour)
				require.NoError(t, err)
				assert.Equal(t, n-min(n, 4), done)
				want := []time.Duration{0, 0}
				if n <= 4 {
					want[1] = time.Hour
				}
				assert.Equal(t, want, l.tr.timeouts, "what is left must not wait, and nothing else must hurry")
			})
		}
	}
}

func TestTurnTimeCutsDispatchAndKeepsTheOrder(t *testing.T) {
	var clocked *clockedTransport
	l := newTestLoop(t, func(c *loop.Config) { c.TurnTime = time.Millisecond })
	l.tr.record = nil
	l = openLoop(t, func(c *loop.Config) {
		c.TurnTime = time.Millisecond
		c.Open = func(bool) (transport.Transport, error) {
			clocked = &clockedTransport{fakeTransport: l.tr}
			return clocked, nil
		}
	})
	tr := clocked.fakeTransport
	p := l.probe(t, "p")
	var got []int
	p.completed = func(c *transport.Completion) {
		got = append(got, c.N)
		clocked.passed += 50 * time.Microsecond // 1 ms after 20
	}
	var timerAfter int
	l.NewTimer(p, func() { timerAfter = len(got) }).Reset(0)
	send := func(from, to int) {
		for i := from; i < to; i++ {
			c := p.data()
			c.N = i
			tr.deliver(c)
		}
	}
	send(0, 40)
	assert.Equal(t, 33, l.once(t), "32 completions, looked at after each 16, and the timer")
	assert.Equal(t, 32, timerAfter)

	clocked.passed = 0
	send(40, 45)
	done, err := l.RunOnce(forever)
	require.NoError(t, err)
	assert.Equal(t, 13, done)
	assert.Equal(t, []time.Duration{0, 0}, tr.timeouts, "the rest must not wait")
	for i, n := range got {
		require.Equal(t, i, n)
	}
	assert.Len(t, got, 45)
}

func TestLoopReleasesTheBufferOfACompletion(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	var seen string
	p.completed = func(c *transport.Completion) { seen = string(c.Buf.Bytes()) }
	c := p.data()
	c.Buf = l.Pool().Get(10)
	c.Buf.AppendString("hello")
	l.tr.deliver(c)
	l.once(t)
	assert.Equal(t, "hello", seen)
	assert.Zero(t, l.Pool().Outstanding())
}

func TestStaleCompletionIsCountedAndWhatItCarriesGivenBack(t *testing.T) {
	l := openLoop(t)
	p := l.probe(t, "p")
	old := p.reg.Token(tagData)
	l.Unregister(p.reg)
	q := l.probe(t, "q") // in the same slot
	require.Equal(t, old.Slot(), q.reg.Token(0).Slot())

	buf := l.Pool().Get(1)
	l.tr.deliver(
		transport.Completion{Token: old, Buf: buf, N: 1},
		transport.Completion{Token: old, Handle: 77, More: true},
		transport.Completion{Token: transport.MakeToken(99, 0, 1)},
		transport.Completion{Token: transport.MakeToken(transport.SlotReserved-1, 0, 1)},
	)
	l.once(t)
	assert.Empty(t, l.log.take())
	assert.Equal(t, uint64(4), l.Stats().Stale)
	assert.Zero(t, l.Stats().Completions)
	assert.Zero(t, l.Pool().Outstanding())
	require.Len(t, l.tr.submitted, 1)
	op := l.tr.submitted[0]
	assert.Equal(t, transport.Close, op.Kind)
	assert.Equal(t, transport.Handle(77), op.Handle)
	assert.True(t, op.Reset)

	l.once(t) // the completion of that close
	assert.Equal(t, uint64(4), l.Stats().Stale, "the loop's own completion is not a stale one")
}

func TestEndTurnGoesRoundTwiceInOneTurn(t *testing.T) {
	l := openLoop(t)
	a, b := l.probe(t, "a"), l.probe(t, "b")
	again := true
	a.endTurn = func() {
		if again {
			again = false
			l.Dirty(b)
			l.Dirty(a)
		}
	}
	l.Dirty(a)
	assert.Equal(t, 3, l.once(t))
	assert.Equal(t, []string{"a.end", "b.end", "a.end"}, l.log.take())
}

func TestEndTurnIsBoundedAndGoesOnInTheNextTurnWithoutSleeping(t *testing.T) {
	l := openLoop(t)
	a := l.probe(t, "a")
	a.endTurn = func() { l.Dirty(a) }
	l.Dirty(a)
	for range 3 {
		done, err := l.RunOnce(forever)
		require.NoError(t, err)
		assert.Equal(t, 4, done)
	}
	assert.Equal(t, []time.Duration{0, 0, 0}, l.tr.timeouts)
	a.endTurn = nil
	assert.Equal(t, 1, l.once(t))
	assert.Equal(t, 0, l.once(t))
}

func TestEndTurnRunsForACompleterThatIsUnregistered(t *testing.T) {
	l := openLoop(t)
	a := l.probe(t, "a")
	l.Dirty(a)
	l.Unregister(a.reg)
	l.once(t)
	assert.Equal(t, []string{"a.end"}, l.log.take())
}

func TestWaitTimeout(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit time.Duration
		do    func(l *testLoop, p *probe)
		want  time.Duration
	}{
		{"until something happens", forever, func(l *testLoop, _ *probe) { l.tr.signal() }, forever},
		{"the limit", time.Second, func(*testLoop, *probe) {}, time.Second},
		{"until the timer", forever, func(l *testLoop, p *probe) { l.NewTimer(p, func() {}).Reset(1234567) }, 1234567},
		{"until the timer before the limit", time.Second, func(l *testLoop, p *probe) { l.NewTimer(p, func() {}).Reset(time.Second - 1) }, time.Second - 1},
		{"until the limit before the timer", time.Second, func(l *testLoop, p *probe) { l.NewTimer(p, func() {}).Reset(time.Second + 1) }, time.Second},
		{"none for a due timer", forever, func(l *testLoop, p *probe) { l.NewTimer(p, func() {}).Reset(0) }, 0},
		{"none for a task", forever, func(l *testLoop, _ *probe) { _ = l.Execute(func() {}) }, 0},
		{"none for a node", forever, func(l *testLoop, p *probe) { l.Post(&p.node) }, 0},
		{"none for the dirty", forever, func(l *testLoop, p *probe) { l.Dirty(p) }, 0},
		{"until the earliest timer that is left", forever, func(l *testLoop, p *probe) {
			first, second := l.NewTimer(p, func() {}), l.NewTimer(p, func() {})
			first.Reset(time.Second)
			second.Reset(2 * time.Second)
			first.Stop()
		}, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openLoop(t)
			c.do(l, l.probe(t, "p"))
			_, err := l.RunOnce(c.limit)
			require.NoError(t, err)
			assert.Equal(t, []time.Duration{c.want}, l.tr.timeouts)
		})
	}
}

// A transport that rounds timeouts down to its clock's tick must not make the loop spin until the deadline.
func TestWaitThatEndsEarlyIsNotRepeatedInShortSteps(t *testing.T) {
	l := openLoop(t)
	l.tr.early = 1 // a nanosecond
	fired := false
	l.NewTimer(nil, func() { fired = true }).Reset(300 * time.Microsecond)
	for range 3 {
		_, err := l.RunOnce(forever)
		require.NoError(t, err)
	}
	assert.False(t, fired)
	assert.Equal(t, []time.Duration{300 * time.Microsecond, time.Millisecond, time.Millisecond}, l.tr.timeouts)
	l.tr.early = 0
	_, err := l.RunOnce(forever)
	require.NoError(t, err)
	assert.True(t, fired)

	l.NewTimer(nil, func() {}).Reset(300 * time.Microsecond)
	_, err = l.RunOnce(forever)
	require.NoError(t, err)
	last := l.tr.timeouts[len(l.tr.timeouts)-1]
	assert.Equal(t, 300*time.Microsecond, last, "a wait that came to its end is followed by exact ones")
}

func TestIdleLoopTakesNoTurns(t *testing.T) {
	l := newTestLoop(t)
	ran := make(chan error, 1)
	go func() { ran <- l.Run() }()
	var before, after uint64
	step := make(chan struct{})
	require.NoError(t, l.Execute(func() { before = l.Stats().Turns; close(step) }))
	closesInTime(t, step, "the first task")
	// The turn of the first task, perhaps one turn for its wake-up, and the turn of the second. A loop that polls would
	// have taken many more by the time that a hundred goroutine switches have passed.
	for range 100 {
		done := make(chan struct{})
		go close(done)
		<-done
	}
	step = make(chan struct{})
	require.NoError(t, l.Execute(func() { after = l.Stats().Turns; close(step) }))
	closesInTime(t, step, "the second task")
	assert.LessOrEqual(t, after-before, uint64(2))
	l.Stop()
	require.NoError(t, <-ran)
}

func TestTransportErrorEndsTheLoop(t *testing.T) {
	broken := errors.New("broken")
	l := newTestLoop(t)
	var p *probe
	require.NoError(t, l.Execute(func() {
		p = l.probe(t, "p")
		l.tr.waitErr = broken
	}))
	require.ErrorIs(t, l.Run(), broken)
	assert.Equal(t, []error{broken, broken}, p.causes, "the close can't complete: the second Abort is the last call")
	assert.Zero(t, l.Stats().Registered)
	assert.True(t, l.tr.closed)
	closesInTime(t, l.Done(), "Done")
}

func TestTransportErrorOfRunOnce(t *testing.T) {
	broken := errors.New("broken")
	l := openLoop(t)
	l.tr.waitErr = broken
	_, err := l.RunOnce(0)
	require.ErrorIs(t, err, broken)
	_, err = l.RunOnce(0)
	require.ErrorIs(t, err, loop.ErrState)
	require.NoError(t, l.Close())
	assert.True(t, l.tr.closed)
}

func TestTurnAllocatesNothing(t *testing.T) {
	l := openLoop(t)
	l.tr.quiet = true
	p := l.probe(t, "p")
	p.log = &journal{}
	s := &silent{l: l.Loop}
	s.node.Init(s)
	reg, err := l.Register(s)
	require.NoError(t, err)
	timer := l.NewTimer(s, func() {})
	task := func() {}
	cs := make([]transport.Completion, 16)
	for i := range cs {
		cs[i] = transport.Completion{Token: reg.Token(tagData), N: 1, More: true}
	}
	turn := func() {
		l.tr.deliver(cs...)
		_ = l.Execute(task)
		l.Post(&s.node)
		timer.Reset(0)
		if _, err := l.RunOnce(0); err != nil {
			panic(err)
		}
	}
	turn()
	assert.Zero(t, testing.AllocsPerRun(100, turn))
	assert.Zero(t, testing.AllocsPerRun(100, func() { timer.Reset(time.Hour); timer.Stop() }))
	st := l.Stats()
	assert.Equal(t, st.Nodes, st.Tasks, "all of it really ran")
	assert.Equal(t, st.Nodes, st.Timers)
	assert.Equal(t, 17*st.Nodes, st.Completions+st.EndTurns)
}

// silent is a Completer that records nothing.
type silent struct {
	l    *loop.Loop
	node loop.Node
	n    int
}

func (s *silent) Complete(*transport.Completion) { s.n++ }
func (s *silent) RunNode(*loop.Node)             { s.l.Dirty(s) }
func (s *silent) EndTurn()                       {}
func (s *silent) Panicked(any, []byte)           {}
func (s *silent) Abort(error)                    {}
