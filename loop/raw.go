package loop

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	yieldEvery = 4 * time.Millisecond
	yieldLook  = 64 // turns and what is done in them between two looks at the clock
)

// rawPlaces counts the loops of the process that wait raw. A raw wait is a system call that Go's scheduler does not know
// of, so it holds a P: one P must stay for everything else, or the process stands still while the loops wait. Loops of
// different Groups share the Ps, hence one count for all.
//
//weir:state
var rawPlaces atomic.Int64

// takeRawPlace gives the loop a place if one is free. GOMAXPROCS is read each time: Go itself changes it when the limits of
// the cgroup change. A place that was given stays given, also when GOMAXPROCS shrinks later; transports therefore bound
// the raw wait (5 ms) and then wait so that the scheduler knows.
func (l *Loop) takeRawPlace() {
	limit := int64(runtime.GOMAXPROCS(0) - 1)
	for {
		n := rawPlaces.Load()
		if n >= limit {
			break
		}
		if rawPlaces.CompareAndSwap(n, n+1) {
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
		rawPlaces.Add(-1)
	}
}

// yield lets Go's scheduler have a look every few milliseconds at which a loop has waited raw: a P that goes on without the
// scheduler for 10 ms (forcePreemptNS of Go's runtime) is preempted by a signal, and each time the runtime's monitor begins to look
// every 20 µs anew, which together cost 3 to 4 % of a busy processor.
func (l *Loop) yield(done int) {
	if !l.rawPlace || l.clock == nil {
		return
	}
	l.unyielded += 1 + done
	if l.unyielded < yieldLook {
		return
	}
	l.unyielded = 0
	if now := l.clock.Clock(); now-l.yielded >= yieldEvery {
		l.yielded = now
		runtime.Gosched()
	}
}
