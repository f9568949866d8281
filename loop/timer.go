package loop

import (
	"math"
	"time"

	"github.com/weirnet/weir/internal/invariants"
)

const (
	heapArity   = 4
	heapMinimum = 1024 // entries below which the heap's memory is not given back
	notSet      = -1
)

// Timer calls a func on the loop, once for each Reset. It belongs to the loop.
//
// Timers run in the order of their deadlines, those with the same deadline in the order of their Resets. The clock is
// the loop's Now, which stands still during a turn: a deadline counts from the turn's beginning, and a timer runs in
// the first turn that begins at or after it.
type Timer struct {
	loop  *Loop
	owner Completer
	fn    func()
	index int // in the heap, or notSet
}

// NewTimer returns a stopped timer that calls fn. A panic of fn is told to owner; nil: it is only counted and logged.
// A timer that is set when the loop goes away never fires.
func (l *Loop) NewTimer(owner Completer, fn func()) *Timer {
	t := new(Timer)
	t.Init(l, owner, fn)
	return t
}

// Init is NewTimer for a Timer that is embedded by value. It must be the first call, and the only one of Init.
func (t *Timer) Init(l *Loop, owner Completer, fn func()) {
	*t = Timer{loop: l, owner: owner, fn: fn, index: notSet}
}

// Reset makes the timer fire once, d from now; what it was set to before is forgotten. With d at or below zero it fires
// next time, never from inside Reset, and not in this turn when called by a timer's func. Any callback of the loop may
// call it, the timer's own func too.
func (t *Timer) Reset(d time.Duration) {
	if invariants.Enabled {
		t.loop.checkThread("Timer.Reset")
	}
	deadline := t.loop.Now()
	if d > 0 {
		if deadline > math.MaxInt64-d {
			deadline = math.MaxInt64
		} else {
			deadline += d
		}
	}
	t.loop.timers.set(t, deadline)
}

// Stop makes the timer not fire, and reports whether it was going to.
func (t *Timer) Stop() bool {
	if invariants.Enabled {
		t.loop.checkThread("Timer.Stop")
	}
	if t.index == notSet {
		return false
	}
	t.loop.timers.remove(t)
	return true
}

// timerEntry has the timer's order beside it, so that comparing touches no other memory.
type timerEntry struct {
	deadline time.Duration
	sequence uint64
	timer    *Timer
}

func (e *timerEntry) before(f *timerEntry) bool {
	if e.deadline != f.deadline {
		return e.deadline < f.deadline
	}
	return e.sequence < f.sequence
}

// timerHeap is a heap with four children a node: half the levels of a binary one, and the four lie side by side.
type timerHeap struct {
	entries  []timerEntry
	sequence uint64 // of the latest set
}

func (h *timerHeap) len() int { return len(h.entries) }

// next is the earliest deadline.
func (h *timerHeap) next() (time.Duration, bool) {
	if len(h.entries) == 0 {
		return 0, false
	}
	return h.entries[0].deadline, true
}

// popDue removes and returns the first timer if its deadline is not after now and it was set no later than sequence.
func (h *timerHeap) popDue(now time.Duration, sequence uint64) *Timer {
	if len(h.entries) == 0 {
		return nil
	}
	// Whatever is set from now on has a deadline of now or later and a higher sequence, so that behind the first
	// that is too new there is none that is due and old.
	first := &h.entries[0]
	if first.deadline > now || first.sequence > sequence {
		return nil
	}
	t := first.timer
	h.remove(t)
	return t
}

func (h *timerHeap) set(t *Timer, deadline time.Duration) {
	h.sequence++
	e := timerEntry{deadline: deadline, sequence: h.sequence, timer: t}
	if t.index == notSet {
		h.entries = append(h.entries, e)
		h.up(len(h.entries)-1, e)
		return
	}
	h.place(t.index, e)
}

func (h *timerHeap) remove(t *Timer) {
	i := t.index
	t.index = notSet
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = timerEntry{}
	h.entries = h.entries[:last]
	if i < last {
		h.place(i, e)
	}
	if cap(h.entries) > heapMinimum && last < cap(h.entries)/4 {
		h.entries = append(make([]timerEntry, 0, cap(h.entries)/2), h.entries...)
	}
}

// place puts e at position i, whose entry is overwritten, and then where it belongs.
func (h *timerHeap) place(i int, e timerEntry) {
	if i > 0 && e.before(&h.entries[(i-1)/heapArity]) {
		h.up(i, e)
		return
	}
	h.down(i, e)
}

func (h *timerHeap) up(i int, e timerEntry) {
	for i > 0 {
		parent := (i - 1) / heapArity
		if !e.before(&h.entries[parent]) {
			break
		}
		h.entries[i] = h.entries[parent]
		h.entries[i].timer.index = i
		i = parent
	}
	h.entries[i] = e
	e.timer.index = i
}

func (h *timerHeap) down(i int, e timerEntry) {
	for {
		child := heapArity*i + 1
		if child >= len(h.entries) {
			break
		}
		for other := child + 1; other < min(heapArity*i+1+heapArity, len(h.entries)); other++ {
			if h.entries[other].before(&h.entries[child]) {
				child = other
			}
		}
		if !h.entries[child].before(&e) {
			break
		}
		h.entries[i] = h.entries[child]
		h.entries[i].timer.index = i
		i = child
	}
	h.entries[i] = e
	e.timer.index = i
}
