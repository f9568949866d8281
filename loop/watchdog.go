package loop

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	watchdogLooks   = 4 // looks in the time a turn may last
	watchdogMinimum = time.Millisecond
	maxDumpBytes    = 16 << 20 // a dump that is longer is cut; the goroutine may then be missing from it
)

// watchdog looks at the loops of a group from time to time and logs a turn that lasts too long, once. A loop costs it
// nothing but the stamp that it stores each turn anyway, see wake. Time is counted in looks: the loops read no clock.
type watchdog struct {
	interval time.Duration // set in start

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu; nil: not started
	stopped bool        // guarded by mu
	watched []watched   // guarded by mu
}

// watched is what the watchdog knows of a loop.
type watched struct {
	loop  *Loop
	stamp uint64
	looks int // how often it has seen this stamp again
}

// start begins the looks, unless no loop wants them.
func (w *watchdog) start(loops []*Loop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range loops {
		after := l.cfg.WatchdogAfter
		if after < 0 {
			continue
		}
		w.watched = append(w.watched, watched{loop: l})
		interval := max(after/watchdogLooks, watchdogMinimum)
		if w.interval == 0 || interval < w.interval {
			w.interval = interval
		}
	}
	if len(w.watched) > 0 && !w.stopped {
		w.timer = time.AfterFunc(w.interval, w.look) //weir:goroutines it watches real time, from beside the loops
	}
}

// stop ends the looks and waits for one that is under way.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	for i := range w.watched {
		w.lookAt(&w.watched[i])
	}
	w.timer.Reset(w.interval)
}

func (w *watchdog) lookAt(s *watched) {
	stamp := s.loop.state.Load()
	if stamp != s.stamp || stamp < stamps {
		s.stamp, s.looks = stamp, 0
		s.loop.stuckNow.Store(false)
		return
	}
	s.looks++
	lasts := time.Duration(s.looks) * w.interval
	if lasts < s.loop.cfg.WatchdogAfter || lasts-w.interval >= s.loop.cfg.WatchdogAfter {
		return // not yet, or logged
	}
	s.loop.stuck.Add(1)
	s.loop.stuckNow.Store(true)
	if s.loop.cfg.FoundStuck != nil {
		s.loop.cfg.FoundStuck()
	}
	stack := goroutineStack(s.loop.routine.Load())
	s.loop.log.Warn("a turn of the event loop lasts too long: a callback computes or blocks",
		"at_least", lasts, "handler", s.loop.culpritIn(stack), "stack", stack)
}

// Stuck reports whether the Group's watchdog finds that the present turn lasts longer than WatchdogAfter. Any
// goroutine.
func (l *Loop) Stuck() bool { return l.stuckNow.Load() }

// StuckError tells where the loop is, to a caller that has waited for it long enough: a *StuckError, or nil when no
// callback of a Run holds it up now. It takes a dump of all goroutines, which stops the world for a moment. Any
// goroutine.
func (l *Loop) StuckError() error {
	if l.state.Load() < stamps {
		return nil // it sleeps, has not begun or has ended
	}
	stack := goroutineStack(l.routine.Load())
	if stack == "" {
		return nil
	}
	return &StuckError{Loop: l.Name(), Handler: l.culpritIn(stack), Stack: stack}
}

// culpritIn is what Config.Culprit finds in a stack.
func (l *Loop) culpritIn(stack string) string {
	if l.cfg.Culprit == nil {
		return ""
	}
	return l.cfg.Culprit([]byte(stack))
}

// StuckError tells which callback keeps a loop from going on. It wraps ErrStuck.
type StuckError struct {
	Loop    string // the loop's name
	Handler string // what Config.Culprit found; empty: nothing
	Stack   string // of the loop's goroutine
}

// Error names the loop and the handler. The stack is for whoever logs it.
func (e *StuckError) Error() string {
	if e.Handler == "" {
		return ErrStuck.Error() + " on " + e.Loop
	}
	return ErrStuck.Error() + " on " + e.Loop + ": " + e.Handler
}

// Unwrap returns ErrStuck.
func (e *StuckError) Unwrap() error { return ErrStuck }

// goroutineStack returns the stack of one goroutine, cut out of a dump of all, which stops the world for the time it
// takes.
func goroutineStack(id int64) string {
	size := 64 << 10
	for {
		dump := make([]byte, size)
		n := runtime.Stack(dump, true)
		if n == size && size < maxDumpBytes {
			size *= 4
			continue
		}
		return cutStack(dump[:n], id)
	}
}

// cutStack returns the section of a dump that belongs to a goroutine: from its head line to the next empty one.
func cutStack(dump []byte, id int64) string {
	head := []byte("goroutine " + strconv.FormatInt(id, 10) + " ")
	for len(dump) > 0 {
		section, rest, _ := bytes.Cut(dump, []byte("\n\n"))
		if bytes.HasPrefix(section, head) {
			return string(section)
		}
		dump = rest
	}
	return ""
}

// goroutineID reads the id of the calling goroutine from the head line of its stack, "goroutine 7 [running]:".
func goroutineID() int64 {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(line, []byte(" "))
	id, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return -1 // the format has changed: no stack will be found, nothing else depends on it on Linux
	}
	return id
}
