package loop

import (
	"runtime"
	"sync/atomic"
)

// rawPlaces counts the loops of the process that wait raw. A raw wait is a system call that Go's scheduler does not
// know of, so it holds a P: one P must stay for everything else, or the process stands still while the loops wait.
// Loops of different Groups share the Ps, hence one count for all.
//
//weir:state
var rawPlaces atomic.Int64

// takeRawPlace gives the loop a place if one is free. GOMAXPROCS is read each time: Go itself changes it when the
// limits of the cgroup change. A place that was given stays given, also when GOMAXPROCS shrinks later; transports
// therefore bound the raw wait (5 ms) and then wait so that the scheduler knows.
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
