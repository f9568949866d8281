package overload

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/flow"
)

// QueueConfig configures a Queue. The zero value works.
type QueueConfig struct {
	// Max is how many wait at most. Zero means 1024; at most flow.MaxLimit.
	Max int
	// Classes is how many classes there are, as in Config. Zero means 4.
	Classes int
	// Target is how long one may wait while the queue stands, Interval how long one may wait otherwise, and how long a
	// queue that was not empty is a standing one. Zero means 5 ms and 100 ms.
	Target, Interval time.Duration
}

// Item is one that waits.
type Item[T any] struct {
	Value    T
	Class    flow.Class
	Arrived  time.Duration
	Deadline time.Duration // when nobody wants the answer any more; 0: never
}

// Queue holds requests until there is a place for them: more important classes first; within a class the oldest first,
// while the queue empties now and then. Where none of a class was waiting for no moment of an Interval, that class
// stands: then the newest come first, as the oldest are those whose senders are about to give up, and none waits
// longer than Target (controlled delay and adaptive LIFO: Maurer, Fail at Scale, ACM Queue 13/8, 2015). Requests that
// cannot meet their deadline any more are not served. A full queue makes room by refusing the oldest of the least
// important class, when that is less important than who comes. It belongs to one goroutine, Risk aside.
type Queue[T any] struct {
	cfg     QueueConfig
	classes []deque[T] // the last one is of exempt requests
	n       int
	refuse  func(Item[T])
	service time.Duration // what serving takes, about: the median, as a running estimate

	// Since the last Risk, which another loop may ask for.
	offered, served atomic.Uint64
	worst           atomic.Int64 // nanoseconds; written by the queue's goroutine and, to 0, by Risk
	stood           atomic.Bool  // at the last Push or Pop
}

// NewQueue returns an empty queue. refuse gets what is not served; it must not call the queue. The error wraps
// ErrConfig.
func NewQueue[T any](cfg QueueConfig, refuse func(Item[T])) (*Queue[T], error) {
	if cfg.Max == 0 {
		cfg.Max = 1024
	}
	if cfg.Classes == 0 {
		cfg.Classes = DefaultClasses
	}
	if cfg.Target == 0 {
		cfg.Target = 5 * time.Millisecond
	}
	if cfg.Interval == 0 {
		cfg.Interval = max(100*time.Millisecond, cfg.Target)
	}
	if cfg.Max < 1 || cfg.Max > flow.MaxLimit || cfg.Classes < 1 || cfg.Classes > MaxClasses || cfg.Target < 0 ||
		cfg.Interval < cfg.Target || refuse == nil {
		return nil, fmt.Errorf("%w: queue of %d, %d classes, target %v, interval %v, want 1 to %d, 1 to %d, "+
			"0 < target <= interval, and a function", ErrConfig, cfg.Max, cfg.Classes, cfg.Target, cfg.Interval,
			flow.MaxLimit, MaxClasses)
	}
	return &Queue[T]{cfg: cfg, classes: make([]deque[T], cfg.Classes+1), refuse: refuse}, nil
}

// Len is how many wait.
func (q *Queue[T]) Len() int { return q.n }

// Push adds one, which may be refused at once.
func (q *Queue[T]) Push(now time.Duration, it Item[T]) {
	q.offered.Add(1)
	defer func() { q.stood.Store(q.Standing(now)) }()
	k := q.index(it.Class)
	it.Arrived = now
	if q.n >= q.cfg.Max {
		last := q.least()
		if rank(last, q.cfg.Classes) <= rank(k, q.cfg.Classes) {
			q.refuse(it)
			return
		}
		q.drop(last)
	}
	if d := &q.classes[k]; d.len() == 0 {
		d.empty = now
	}
	q.classes[k].push(it)
	q.n++
}

// Pop takes the next that is to be served at now. Those that it passes over are refused.
func (q *Queue[T]) Pop(now time.Duration) (it Item[T], ok bool) {
	q.expire(now)
	defer func() { q.stood.Store(q.Standing(now)) }()
	for i := range q.classes {
		// Exempt ones, the last deque, come first.
		d := &q.classes[(i+q.cfg.Classes)%len(q.classes)]
		for d.len() > 0 {
			if q.stands(d, now) {
				it = d.popNewest()
			} else {
				it = d.popOldest()
			}
			q.n--
			if q.late(&it, now) {
				q.refuse(it)
				continue
			}
			q.served.Add(1)
			q.worst.Store(max(q.worst.Load(), int64(now-it.Arrived)))
			return it, true
		}
	}
	return Item[T]{}, false
}

// Served tells what serving one took, from Pop on: Pop refuses those for which that is too long.
func (q *Queue[T]) Served(took time.Duration) {
	// A step up or down by a share of the estimate settles at the median.
	step := max(q.service/16, time.Microsecond)
	if q.service == 0 {
		q.service = took
	} else if took > q.service {
		q.service += step
	} else {
		q.service -= step
	}
}

// Standing reports whether requests of some class have waited for an interval without an end.
func (q *Queue[T]) Standing(now time.Duration) bool {
	for k := range q.classes {
		if q.stands(&q.classes[k], now) {
			return true
		}
	}
	return false
}

func (q *Queue[T]) stands(d *deque[T], now time.Duration) bool {
	return d.len() > 0 && now-d.empty >= q.cfg.Interval
}

// Drain is how long what waits takes with that many under way at a time.
func (q *Queue[T]) Drain(parallel int) time.Duration {
	return time.Duration(min(float64(q.n)*float64(q.service)/float64(max(parallel, 1)), float64(time.Hour)))
}

// keepsBusy is how many may come for each that is served, so that there is always one to serve.
const keepsBusy = 1.1

// Risk is a Signal's Read: since the last call, how many came for each that was served, while the queue stands; below
// 1, how long one waited in parts of Interval, while it does not. Any goroutine may call it, one at a time.
func (q *Queue[T]) Risk(time.Duration) float64 {
	offered, served := float64(q.offered.Swap(0)), float64(q.served.Swap(0))
	worst := float64(q.worst.Swap(0))
	if !q.stood.Load() {
		return min(worst/float64(q.cfg.Interval), 1)
	}
	return max(offered/max(served, 1)/keepsBusy, 1)
}

// expire refuses what has waited for too long or cannot be served in time.
func (q *Queue[T]) expire(now time.Duration) {
	for k := range q.classes {
		d := &q.classes[k]
		allowed := q.cfg.Interval
		if q.stands(d, now) {
			allowed = q.cfg.Target
		}
		for d.len() > 0 {
			it := d.oldest()
			if !q.late(it, now) && (now-it.Arrived <= allowed || k == q.cfg.Classes) {
				break
			}
			q.drop(k)
		}
	}
}

// late reports whether serving it from now on would end after its deadline.
func (q *Queue[T]) late(it *Item[T], now time.Duration) bool {
	// Half of the time that it had is enough for any: else, where the estimate is above what all have, none would be
	// served and the estimate never come down.
	takes := min(q.service, (it.Deadline-it.Arrived)/2)
	return it.Deadline != 0 && now+takes > it.Deadline
}

// drop refuses the oldest of a class.
func (q *Queue[T]) drop(k int) {
	it := q.classes[k].popOldest()
	q.n--
	q.refuse(it)
}

// index is the deque of a class.
func (q *Queue[T]) index(c flow.Class) int {
	if c == flow.Exempt {
		return q.cfg.Classes
	}
	return min(int(c), q.cfg.Classes-1)
}

// rank orders deques: exempt ones before all.
func rank(k, classes int) int { return (k + 1) % (classes + 1) }

// least is the deque of the least important that wait.
func (q *Queue[T]) least() int {
	for k := q.cfg.Classes - 1; k >= 0; k-- {
		if q.classes[k].len() > 0 {
			return k
		}
	}
	return q.cfg.Classes
}

// deque is a ring that grows.
type deque[T any] struct {
	empty time.Duration // when it was empty, at the latest
	ring  []Item[T]
	head  int
	n     int
}

func (d *deque[T]) len() int { return d.n }

func (d *deque[T]) oldest() *Item[T] { return &d.ring[d.head] }

func (d *deque[T]) push(it Item[T]) {
	if d.n == len(d.ring) {
		ring := make([]Item[T], max(8, 2*d.n))
		for i := range d.n {
			ring[i] = d.ring[(d.head+i)%len(d.ring)]
		}
		d.ring, d.head = ring, 0
	}
	d.ring[(d.head+d.n)%len(d.ring)] = it
	d.n++
}

func (d *deque[T]) popOldest() (it Item[T]) {
	it, d.ring[d.head] = d.ring[d.head], it
	d.head = (d.head + 1) % len(d.ring)
	d.n--
	return it
}

func (d *deque[T]) popNewest() (it Item[T]) {
	i := (d.head + d.n - 1) % len(d.ring)
	it, d.ring[i] = d.ring[i], it
	d.n--
	return it
}
