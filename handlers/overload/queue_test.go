package overload_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/handlers/overload"
)

const ms = time.Millisecond

func newQueue(t testing.TB, maxItems int) (*overload.Queue[string], *[]string) {
	t.Helper()
	var refused []string
	q, err := overload.NewQueue(overload.QueueConfig{Max: maxItems}, func(it overload.Item[string]) {
		refused = append(refused, it.Value)
	})
	require.NoError(t, err)
	return q, &refused
}

func pop(q *overload.Queue[string], now time.Duration) string {
	it, ok := q.Pop(now)
	if !ok {
		return "-"
	}
	return it.Value
}

func push(q *overload.Queue[string], now time.Duration, class flow.Class, values ...string) {
	for _, v := range values {
		q.Push(now, overload.Item[string]{Value: v, Class: class})
	}
}

func TestQueueServesImportantOnesFirst(t *testing.T) {
	q, refused := newQueue(t, 0)
	push(q, 0, 3, "d1", "d2")
	push(q, 0, 0, "a1", "a2")
	push(q, 0, flow.Exempt, "health")
	push(q, 0, 9, "d3")
	var got []string
	for range 7 {
		got = append(got, pop(q, ms))
	}
	assert.Equal(t, []string{"health", "a1", "a2", "d1", "d2", "d3", "-"}, got)
	assert.Empty(t, *refused)
}

func TestQueueMakesRoomForMoreImportantOnes(t *testing.T) {
	q, refused := newQueue(t, 3)
	push(q, 0, 2, "c1", "c2", "c3")
	assert.Empty(t, *refused, "at the bound")
	push(q, 0, 2, "c4")
	assert.Equal(t, []string{"c4"}, *refused, "its equals stay")
	push(q, 0, 1, "b1")
	push(q, 0, flow.Exempt, "health")
	push(q, 0, 3, "d1")
	assert.Equal(t, []string{"c4", "c1", "c2", "d1"}, *refused)
	assert.Equal(t, 3, q.Len())
}

func TestQueueServesTheNewestOfAStandingClass(t *testing.T) {
	q, refused := newQueue(t, 0)
	push(q, 0, 3, "old")
	for now := time.Duration(0); now < 100*ms; now += ms {
		push(q, now, 3, "x")
		pop(q, now)
	}
	assert.False(t, q.Standing(100*ms-1))
	assert.True(t, q.Standing(100*ms))
	push(q, 100*ms, 3, "y")
	push(q, 101*ms, 3, "newest")
	push(q, 101*ms, 0, "a1", "a2")
	*refused = nil
	assert.Equal(t, "a1", pop(q, 103*ms), "the class that does not stand is served in its order")
	assert.Equal(t, "a2", pop(q, 103*ms))
	assert.Equal(t, "newest", pop(q, 103*ms))
	assert.Equal(t, "y", pop(q, 105*ms), "5 ms are allowed")
	assert.NotContains(t, *refused, "y")
	push(q, 200*ms, 3, "again")
	assert.False(t, q.Standing(299*ms))
	assert.Equal(t, "again", pop(q, 299*ms), "100 ms are where the class does not stand")
	push(q, 300*ms, 3, "lost")
	assert.Equal(t, "-", pop(q, 401*ms))
}

func TestQueueRefusesWhatMissesItsDeadline(t *testing.T) {
	q, refused := newQueue(t, 0)
	for range 1000 {
		q.Served(10 * ms)
	}
	deadline := func(v string, at time.Duration) {
		q.Push(0, overload.Item[string]{Value: v, Deadline: at})
	}
	deadline("late", 29*ms)
	deadline("just", 31*ms)
	assert.Equal(t, "just", pop(q, 20*ms))
	assert.Equal(t, []string{"late"}, *refused)
	q.Push(0, overload.Item[string]{Value: "first", Class: 3})
	for now := time.Duration(0); now <= 100*ms; now += ms {
		push(q, now, 3, "x")
		pop(q, now)
	}
	push(q, 101*ms, 3, "patient")
	q.Push(101*ms, overload.Item[string]{Value: "hasty", Class: 3, Deadline: 110 * ms})
	assert.Equal(t, "patient", pop(q, 106*ms), "also behind one that has time, where the newest come first")
	assert.Equal(t, "hasty", (*refused)[len(*refused)-1])
	for range 1000 {
		q.Served(time.Hour)
	}
	for range 10_000 {
		q.Served(time.Minute)
	}
	deadline("fresh", 30*ms)
	assert.Equal(t, "fresh", pop(q, ms), "an estimate above all deadlines must not refuse all for good")
}

func TestQueueTellsItsRisk(t *testing.T) {
	q, _ := newQueue(t, 0)
	assert.Zero(t, q.Risk(0))
	push(q, 0, 3, "x")
	pop(q, 50*ms)
	assert.InDelta(t, 0.5, q.Risk(50*ms), 1e-9)
	for now := 100 * ms; now <= 200*ms; now += ms {
		push(q, now, 3, "x", "x", "x")
		pop(q, now)
	}
	assert.InDelta(t, 3/1.1, q.Risk(200*ms), 0.05, "three came for each that was served")
	q.Served(10 * ms)
	assert.Equal(t, time.Duration(q.Len())*5*ms, q.Drain(2))
}

func TestQueueConfigIsBounded(t *testing.T) {
	refuse := func(overload.Item[int]) {}
	for _, tc := range []struct {
		cfg overload.QueueConfig
		ok  bool
	}{
		{overload.QueueConfig{}, true},
		{overload.QueueConfig{Max: 1}, true},
		{overload.QueueConfig{Max: flow.MaxLimit}, true},
		{overload.QueueConfig{Max: flow.MaxLimit + 1}, false},
		{overload.QueueConfig{Max: -1}, false},
		{overload.QueueConfig{Classes: overload.MaxClasses + 1}, false},
		{overload.QueueConfig{Target: 2, Interval: 1}, false},
		{overload.QueueConfig{Target: 1, Interval: 1}, true},
	} {
		_, err := overload.NewQueue(tc.cfg, refuse)
		if tc.ok {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, overload.ErrConfig)
		}
	}
	_, err := overload.NewQueue[int](overload.QueueConfig{}, nil)
	assert.ErrorIs(t, err, overload.ErrConfig)
}

// A request is asked for admission, waits in the queue and is served.
func ExampleController() {
	queue, err := overload.NewQueue(overload.QueueConfig{}, func(it overload.Item[string]) {
		fmt.Println("refused", it.Value)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := overload.New(overload.Config{Classes: 2, Signals: []overload.Signal{{Name: "queue", Read: queue.Risk}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Duration(0)
	if busy := c.Busy(now, 1, 42, queue.Drain(8), 0.5); busy != nil {
		fmt.Println(busy)
		return
	}
	queue.Push(now, overload.Item[string]{Value: "GET /", Class: 1})
	it, _ := queue.Pop(now)
	fmt.Println("serves", it.Value)
	// Output: serves GET /
}
