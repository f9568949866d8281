package loop

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
)

// clockOnly is a transport that has a time and nothing else.
type clockOnly struct {
	transport.Transport
	now time.Duration
}

func (c *clockOnly) Now() time.Duration { return c.now }
func (c *clockOnly) Close() error       { return nil }

func (c *clockOnly) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	c.now += max(timeout, 0)
	return dst, nil
}

func clockLoop(t testing.TB) (*Loop, *clockOnly) {
	t.Helper()
	tr := &clockOnly{}
	l, err := New(Config{
		Open:         func(bool) (transport.Transport, error) { return tr, nil },
		Logger:       slog.New(slog.DiscardHandler),
		TasksPerTurn: 1 << 20,
	})
	require.NoError(t, err)
	require.NoError(t, l.Open())
	t.Cleanup(func() { _ = l.Close() })
	return l, tr
}

func onceAt(t testing.TB, l *Loop, tr *clockOnly, now time.Duration) {
	t.Helper()
	tr.now = now
	_, err := l.RunOnce(0)
	require.NoError(t, err)
}

func TestTimerFiresOnceAtItsDeadline(t *testing.T) {
	l, tr := clockLoop(t)
	n := 0
	timer := l.NewTimer(nil, func() { n++ })
	timer.Reset(time.Second)
	onceAt(t, l, tr, time.Second-1)
	assert.Equal(t, 0, n)
	onceAt(t, l, tr, time.Second)
	assert.Equal(t, 1, n)
	onceAt(t, l, tr, time.Hour)
	assert.Equal(t, 1, n)
	assert.False(t, timer.Stop(), "it has fired")
}

func TestTimerStop(t *testing.T) {
	l, tr := clockLoop(t)
	timer := l.NewTimer(nil, func() { t.Error("fired") })
	assert.False(t, timer.Stop(), "it was never set")
	timer.Reset(time.Second)
	assert.True(t, timer.Stop())
	assert.False(t, timer.Stop())
	onceAt(t, l, tr, time.Hour)
}

func TestTimerResetForgetsTheDeadlineBefore(t *testing.T) {
	l, tr := clockLoop(t)
	var at []time.Duration
	timer := l.NewTimer(nil, func() { at = append(at, tr.now) })
	timer.Reset(time.Second)
	timer.Reset(3 * time.Second) // later
	onceAt(t, l, tr, 2*time.Second)
	timer.Reset(0) // earlier
	onceAt(t, l, tr, 2*time.Second)
	assert.Equal(t, []time.Duration{2 * time.Second}, at)
	onceAt(t, l, tr, time.Hour)
	assert.Len(t, at, 1)
}

func TestTimersFireByDeadlineThenByReset(t *testing.T) {
	l, tr := clockLoop(t)
	var got []int
	timers := make([]*Timer, 5)
	for i := range timers {
		timers[i] = l.NewTimer(nil, func() { got = append(got, i) })
	}
	timers[3].Reset(2 * time.Second)
	timers[1].Reset(time.Second)
	timers[4].Reset(time.Second)
	timers[0].Reset(time.Second)
	timers[2].Reset(time.Second - 1)
	timers[1].Reset(time.Second) // again: now behind 0
	onceAt(t, l, tr, 2*time.Second)
	assert.Equal(t, []int{2, 4, 0, 1, 3}, got)
}

func TestTimerFuncMayResetAndStopItselfAndOthers(t *testing.T) {
	l, tr := clockLoop(t)
	var got []string
	var self, other, victim *Timer
	self = l.NewTimer(nil, func() {
		got = append(got, fmt.Sprint("self ", tr.now))
		if len(got) > 1 {
			return
		}
		assert.False(t, self.Stop(), "a timer that fires is not set any more")
		assert.True(t, victim.Stop())
		self.Reset(0)
		other.Reset(-time.Hour)
	})
	other = l.NewTimer(nil, func() { got = append(got, fmt.Sprint("other ", tr.now)) })
	victim = l.NewTimer(nil, func() { got = append(got, "victim") })
	self.Reset(time.Second)
	victim.Reset(time.Second)
	onceAt(t, l, tr, 2*time.Second)
	assert.Equal(t, []string{"self 2s"}, got, "what a timer sets runs in the next turn")
	onceAt(t, l, tr, 2*time.Second)
	onceAt(t, l, tr, time.Hour)
	assert.Equal(t, []string{"self 2s", "self 2s", "other 2s"}, got)
}

func TestTimerDeadlineDoesNotOverflow(t *testing.T) {
	l, tr := clockLoop(t)
	onceAt(t, l, tr, time.Hour)
	n := 0
	l.NewTimer(nil, func() { n++ }).Reset(math.MaxInt64)
	onceAt(t, l, tr, 2*time.Hour)
	assert.Zero(t, n)
	timeout, _ := l.timeout(-1)
	assert.Equal(t, math.MaxInt64-2*time.Hour, timeout)
}

func TestTimersOfAnUnregisteredCompleterAreItsOwnToStop(t *testing.T) {
	l, tr := clockLoop(t)
	n := 0
	c := &nobody{}
	reg, err := l.Register(c)
	require.NoError(t, err)
	var timer Timer
	timer.Init(l, c, func() { n++ })
	timer.Reset(time.Second)
	l.Unregister(reg)
	onceAt(t, l, tr, time.Second)
	assert.Equal(t, 1, n)
}

// The heap against a sorted list, over random operations.
func TestTimerHeapFiresWhatASortedListFires(t *testing.T) {
	for seed := range int64(20) {
		l, tr := clockLoop(t)
		r := rand.New(rand.NewSource(seed))
		type entry struct {
			deadline time.Duration
			order    int
		}
		want := map[int]entry{}
		var got []int
		timers := make([]*Timer, 300)
		for i := range timers {
			timers[i] = l.NewTimer(nil, func() { got = append(got, i) })
		}
		for step := range 4000 {
			i := r.Intn(len(timers))
			switch r.Intn(8) {
			case 0:
				_, set := want[i]
				require.Equal(t, set, timers[i].Stop())
				delete(want, i)
			case 1:
				got = got[:0]
				onceAt(t, l, tr, tr.now+time.Duration(r.Intn(20)))
				var due []int
				for k, e := range want {
					if e.deadline <= tr.now {
						due = append(due, k)
					}
				}
				sort.Slice(due, func(a, b int) bool {
					x, y := want[due[a]], want[due[b]]
					if x.deadline != y.deadline {
						return x.deadline < y.deadline
					}
					return x.order < y.order
				})
				require.Equal(t, fmt.Sprint(due), fmt.Sprint(got), "seed %d step %d", seed, step)
				for _, k := range due {
					delete(want, k)
				}
			default:
				d := time.Duration(r.Intn(200))
				timers[i].Reset(d)
				want[i] = entry{tr.now + d, step}
			}
			require.Equal(t, len(want), l.Stats().TimersSet)
		}
	}
}

func TestAMillionTimers(t *testing.T) {
	const n = 1_000_000
	l, tr := clockLoop(t)
	timers := make([]Timer, n)
	last, fired := time.Duration(-1), 0
	for i := range timers {
		due := time.Duration(i*7919%n) * time.Microsecond // all different
		timers[i].Init(l, nil, func() {
			if due <= last {
				t.Errorf("%v after %v", due, last)
			}
			last = due
			fired++
		})
		timers[i].Reset(time.Hour)
		timers[i].Reset(due)
	}
	stopped := 0
	for i := 0; i < n; i += 3 {
		if timers[i].Stop() {
			stopped++
		}
	}
	onceAt(t, l, tr, n*time.Microsecond)
	assert.Equal(t, n, fired+stopped)
	assert.Zero(t, l.timers.len())
	assert.LessOrEqual(t, cap(l.timers.entries), 2*heapMinimum, "the memory is given back")
}

func TestTimersInALoopWaitExactlyAsLongAsNeeded(t *testing.T) {
	l, tr := clockLoop(t)
	var at []time.Duration
	var timer *Timer
	timer = l.NewTimer(nil, func() {
		at = append(at, tr.now)
		timer.Reset(1500 * time.Microsecond)
	})
	timer.Reset(1500 * time.Microsecond)
	for range 3 {
		done, err := l.RunOnce(-1)
		require.NoError(t, err)
		require.Equal(t, 1, done)
	}
	assert.Equal(t, []time.Duration{1500 * time.Microsecond, 3 * time.Millisecond, 4500 * time.Microsecond}, at)
}
