package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// firstTasks is the size of the task queue when the first task comes; it doubles up to Config.MaxTasks.
const firstTasks = 64

// The values of Loop.state that are not the stamp of a turn.
const (
	asleep uint64 = iota // the loop sleeps or is about to: whoever queues something wakes it
	woken                // somebody did, or the loop has not begun
	stamps               // the first stamp
)

// Node.state is a phase in the low bits and, above them, the number of the push (modulo 2^30), by which a poster that
// was held up finds out that its push is history.
const (
	nodeIdle    uint32 = iota
	nodeLinking        // a poster is about to push it
	nodeQueued
	nodePhases = 3
	nodePush   = 4 // one push more
)

// Node is a control message to the loop that is never refused and needs no memory: embed one by value for each purpose,
// Init it once, and Post it as often as needed. It must not be copied after Init.
type Node struct {
	owner Completer
	next  *Node // the poster's while it links the node, then the loop's
	state atomic.Uint32
}

// Init sets whose RunNode gets the node. It must come before the first Post.
func (n *Node) Init(owner Completer) { n.owner = owner }

// Post makes the loop call the owner's RunNode with n, once, and after what the caller has done before. Any goroutine;
// nodes posted by one goroutine run in its order. Posting a node that is queued does nothing and returns true: it will
// run after this call began. False means that the loop is gone and that n will not run. Post waits for nobody but
// another Post of the same node, and never allocates. It panics when n has no owner.
func (l *Loop) Post(n *Node) bool {
	if n.owner == nil {
		panic("loop: Post of a Node without Init")
	}
	for {
		s := n.state.Load()
		switch s & nodePhases {
		case nodeIdle:
			linking := (s + nodePush) | nodeLinking
			if !n.state.CompareAndSwap(s, linking) {
				continue
			}
			if !l.nodes.push(n) {
				n.state.Store(s)
				return false
			}
			n.linked(linking)
			l.wake()
			return true
		case nodeQueued:
			// A write, although it changes nothing: the loop's swap to idle then observes it, so that what the caller
			// did before this Post happens before RunNode (the Go memory model's rule on atomics; a mere load or
			// a failed CompareAndSwap would order nothing).
			if n.state.CompareAndSwap(s, s) {
				return true
			}
		default:
			// Another poster is about to push it, and only the outcome tells what to return here: if the loop is gone,
			// the node will not run. It is a matter of a few instructions.
			runtime.Gosched()
		}
	}
}

// linked ends the phase that linking names, unless the loop has run the node already: then the node is idle, or posted
// anew under another number.
func (n *Node) linked(linking uint32) {
	n.state.CompareAndSwap(linking, linking&^nodePhases|nodeQueued)
}

// take makes the node postable again, just before it is run.
func (n *Node) take() {
	n.next = nil
	for {
		// Posters may change linking to queued, and queued to itself; nobody else makes it idle.
		s := n.state.Load()
		if n.state.CompareAndSwap(s, s&^nodePhases) {
			return
		}
	}
}

// Execute makes the loop run fn once. Any goroutine; tasks of one goroutine run in its order. ErrFull when
// Config.MaxTasks tasks wait, ErrStopped when the loop has begun to stop: then fn will not run. A task that was
// accepted runs in any case: when the loop stops, before the completers are aborted. Execute panics when fn is nil.
//
// A panic of fn is logged and counted; nobody is closed for it.
func (l *Loop) Execute(fn func()) error {
	if fn == nil {
		panic("loop: Execute of a nil func")
	}
	if err := l.tasks.push(fn); err != nil {
		if err == ErrFull {
			l.refused.Add(1)
		}
		return err
	}
	l.wake()
	return nil
}

// wake makes the loop look at its queues if it may be asleep.
//
// A wake-up is a system call, so a loop that is awake is not woken. None is lost: the loop stores asleep and then looks
// at the queues, a poster queues and then looks at the state. Go's atomics are sequentially consistent: one of the two
// comes second and sees what the other did. Of several posters the one that swaps asleep for woken makes the call.
func (l *Loop) wake() {
	if l.state.Load() != asleep || !l.state.CompareAndSwap(asleep, woken) {
		return
	}
	// The swap observed the loop's store of asleep, which came after it had set tr.
	if err := l.tr.Wake(); err != nil {
		l.log.Error("cannot wake the loop", "error", err)
	}
}

// nodeQueue is a list of nodes that any goroutine pushes to and the loop empties. It is a stack, newest first, emptied
// as a whole: no element is ever popped, so it has no ABA problem, and reversed it is in the order of the pushes.
// Closing it swaps its end for a mark, in one step with emptying it: a node is either in what close returns, or
// refused.
type nodeQueue struct {
	head   atomic.Pointer[Node]
	closed Node // the mark: only its address counts
}

func (q *nodeQueue) push(n *Node) bool {
	for {
		head := q.head.Load()
		if head == &q.closed {
			return false
		}
		n.next = head
		if q.head.CompareAndSwap(head, n) {
			return true
		}
	}
}

// empty reports whether there is nothing to take. The loop's goroutine, as the methods below.
func (q *nodeQueue) empty() bool {
	head := q.head.Load()
	return head == nil || head == &q.closed
}

// take moves all nodes to the end of list, in the order of their pushes.
func (q *nodeQueue) take(list *nodeList) {
	if !q.empty() {
		list.appendReversed(q.head.Swap(nil))
	}
}

// close is take for the last time: from here on push refuses.
func (q *nodeQueue) close(list *nodeList) {
	if head := q.head.Swap(&q.closed); head != &q.closed {
		list.appendReversed(head)
	}
}

// nodeList is a first-in-first-out list of nodes taken from the queue. The loop's goroutine.
type nodeList struct {
	first, last *Node
}

func (l *nodeList) appendReversed(newest *Node) {
	if newest == nil {
		return
	}
	var first *Node
	for n := newest; n != nil; {
		next := n.next
		n.next = first
		first, n = n, next
	}
	if l.last == nil {
		l.first = first
	} else {
		l.last.next = first
	}
	l.last = newest
}

// pop returns the first node, which is postable again, or nil.
func (l *nodeList) pop() *Node {
	n := l.first
	if n == nil {
		return nil
	}
	l.first = n.next
	if l.first == nil {
		l.last = nil
	}
	n.take()
	return n
}

// taskQueue is a bounded queue of tasks. The ring grows to what was needed at a time and stays that large.
type taskQueue struct {
	max int // set in New

	count atomic.Int64 // tasks in the ring, written under mu

	mu      sync.Mutex
	ring    []func() // guarded by mu; its length is a power of two or max
	first   int      // guarded by mu
	most    int      // guarded by mu
	stopped bool     // guarded by mu
}

func (q *taskQueue) push(fn func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int(q.count.Load())
	switch {
	case q.stopped:
		return ErrStopped
	case n >= q.max:
		return ErrFull
	case n == len(q.ring):
		q.grow()
	}
	i := q.first + n
	if i >= len(q.ring) {
		i -= len(q.ring)
	}
	q.ring[i] = fn
	n++
	q.most = max(q.most, n)
	q.count.Store(int64(n))
	return nil
}

// grow is called with mu held and the ring full.
func (q *taskQueue) grow() {
	ring := make([]func(), min(max(2*len(q.ring), firstTasks), q.max))
	n := copy(ring, q.ring[q.first:])
	copy(ring[n:], q.ring[:q.first])
	q.ring, q.first = ring, 0
}

// take appends tasks to dst, in order, as far as its capacity goes. The loop's goroutine.
func (q *taskQueue) take(dst []func()) []func() {
	if q.empty() {
		return dst
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int(q.count.Load())
	for ; n > 0 && len(dst) < cap(dst); n-- {
		dst = append(dst, q.ring[q.first])
		q.ring[q.first] = nil
		q.first++
		if q.first == len(q.ring) {
			q.first = 0
		}
	}
	q.count.Store(int64(n))
	return dst
}

// close makes push refuse; what is queued stays.
func (q *taskQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
}

func (q *taskQueue) empty() bool { return q.count.Load() == 0 }

func (q *taskQueue) lengths() (now, most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.count.Load()), q.most
}
