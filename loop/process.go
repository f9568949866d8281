package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// process is what the loops of a process share, whichever Group they are of: the Ps of Go's scheduler, and the danger
// of waiting for each other. It is the one variable of a package that changes.
//
//weir:state
var process struct {
	// rawPlaces counts the loops that wait raw. A raw wait is a system call that Go's scheduler does not know of, so it
	// holds a P: one P must stay for everything else, or the process stands still while the loops wait.
	rawPlaces atomic.Int64

	loops atomic.Uint64 // that were made so far

	mu      sync.Mutex
	threads map[int64]int // guarded by mu: how many loops run on a thread; one may run a turn of another inside its own
}

// OnThread reports whether the caller runs on the thread of a loop, of any Group of the process. There, waiting for
// a loop may wait for ever: for itself, or for another one that waits for this one. Any goroutine.
func OnThread() bool {
	process.mu.Lock()
	defer process.mu.Unlock()
	// Asked under the lock: before it, the goroutine might leave a thread on which a loop begins then.
	return process.threads[threadID()] > 0
}

// enter notes that the loop runs on the calling thread from here on, until leave.
func (l *Loop) enter() {
	id := threadID()
	l.thread.Store(id)
	l.inTurn = true
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.threads == nil {
		process.threads = map[int64]int{}
	}
	process.threads[id]++
}

func (l *Loop) leave() {
	id := l.thread.Swap(0)
	l.inTurn = false
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.threads[id]--; process.threads[id] <= 0 {
		delete(process.threads, id)
	}
}

// takeRawPlace gives the loop a place if one is free. GOMAXPROCS is read each time: Go itself changes it when the
// limits of the cgroup change. A place that was given stays given, also when GOMAXPROCS shrinks later; transports
// therefore bound the raw wait (5 ms) and then wait so that the scheduler knows.
func (l *Loop) takeRawPlace() {
	limit := int64(runtime.GOMAXPROCS(0) - 1)
	for {
		n := process.rawPlaces.Load()
		if n >= limit {
			break
		}
		if process.rawPlaces.CompareAndSwap(n, n+1) {
			l.rawPlace = true
			return
		}
	}
	if l.group == nil || l.group.rawRefused.CompareAndSwap(false, true) {
		l.log.Debug("waiting through Go's scheduler: loops that wait raw leave one P to the rest of the process",
			"raw", limit, "gomaxprocs", limit+1)
	}
}

func (l *Loop) giveRawPlace() {
	if l.rawPlace {
		l.rawPlace = false
		process.rawPlaces.Add(-1)
	}
}
