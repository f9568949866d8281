package loop

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// Run opens the transport and turns until Stop. It locks its goroutine to its OS thread. It returns nil after Stop, the
// transport's error, or the error of Config.OnThreadStart or Open. When a callback ends the goroutine (runtime.Goexit),
// Run does not return: the loop ends as with an error, and Group.Wait, or a deferred call of the goroutine, tells.
//
// However the loop ends, before Run is over it refuses further tasks and runs those it has accepted; tells every
// completer Abort; turns until the completers are gone or a second has passed; runs the nodes that are left and refuses
// further ones; and closes the transport.
func (l *Loop) Run() error { return l.run(nil) }

// run is Run; opened, when not nil, learns the outcome of opening.
func (l *Loop) run(opened func(error)) (err error) {
	if !l.life.CompareAndSwap(lifeNew, lifeRunning) {
		return fmt.Errorf("loop: run: %w", ErrState)
	}
	runtime.LockOSThread()
	defer func() {
		if l.cfg.OnThreadStart == nil {
			runtime.UnlockOSThread()
		}
	}()
	l.routine.Store(goroutineID())
	l.enter()
	defer l.leave()
	returned := false
	defer func() { err = l.finish(recover(), returned, err) }()

	if l.cfg.OnThreadStart != nil {
		err = l.cfg.OnThreadStart()
	}
	if err == nil {
		err = l.open()
	} else {
		err = fmt.Errorf("loop: start of the thread: %w", err)
	}
	if opened != nil {
		opened(err)
	}
	for err == nil && !l.stop.Load() {
		_, err = l.runTurn(forever)
	}
	returned = true
	return err
}

// finish is what is left to do when Run has ended, with an error, a panic of the transport, or a Goexit.
func (l *Loop) finish(panicked any, returned bool, err error) error {
	cause := err
	switch {
	case panicked != nil:
		err = l.strayPanic(panicked)
		cause = err
	case !returned:
		l.dropCurrent()
		cause = ErrGoexit
		l.log.Error("the loop ends: a callback called runtime.Goexit", "stack", string(debug.Stack()))
	case err != nil:
		if l.tr != nil { // else Run tells at once
			l.log.Error("the loop ends", "error", err)
		}
	default:
		cause = ErrStopped
	}
	l.shutDown(cause)
	return err
}

// strayPanic deals with a panic that left no callback: the transport cannot be trusted any more.
func (l *Loop) strayPanic(v any) error {
	l.usable = false
	l.log.Error("the loop ends: panic outside the callbacks", "panic", v, "stack", string(debug.Stack()))
	return fmt.Errorf("%w: %v", ErrPanic, v)
}

// Open opens the transport for use with RunOnce. A transport that belongs to its OS thread (uring) needs a caller that
// has called runtime.LockOSThread and stays on one goroutine for Open, RunOnce and Close.
func (l *Loop) Open() error {
	if !l.life.CompareAndSwap(lifeNew, lifeOpen) {
		return fmt.Errorf("loop: open: %w", ErrState)
	}
	return l.open()
}

func (l *Loop) open() error {
	l.takeRawPlace()
	tr, err := l.cfg.Open(l.rawPlace)
	if err != nil {
		l.giveRawPlace()
		return fmt.Errorf("loop: open the transport: %w", err)
	}
	l.tr, l.usable = tr, true
	l.clock, _ = tr.(clock)
	return nil
}

// RunOnce does one turn, which waits at most timeout (negative: without limit), and returns how many things it did:
// completions, timers, nodes, tasks and ends of turns. During the turn the goroutine is locked to its OS thread. When
// a callback ends the goroutine, the loop can still be closed, by a deferred Close.
func (l *Loop) RunOnce(timeout time.Duration) (done int, err error) {
	if l.inTurn || !l.usable {
		return 0, fmt.Errorf("loop: turn: %w", ErrState)
	}
	if l.stop.Load() {
		return 0, fmt.Errorf("loop: turn: %w", ErrStopped)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.enter()
	defer l.leave()
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = l.strayPanic(v)
		} else if !returned {
			l.dropCurrent()
		}
	}()
	done, err = l.runTurn(timeout)
	returned = true
	return done, err
}

// Close ends a loop that is used by RunOnce, or was never used, as Run ends after Stop, and returns the error of
// closing the transport. A second Close does nothing; a loop that Run runs is ended by Stop (ErrState).
func (l *Loop) Close() error {
	switch l.life.Load() {
	case lifeClosed:
		return nil
	case lifeRunning:
		return fmt.Errorf("loop: close: %w", ErrState)
	}
	if l.inTurn {
		return fmt.Errorf("loop: close from a callback: %w", ErrState)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l.enter()
	defer l.leave()
	l.shutDown(ErrStopped)
	return l.end.err
}

// Stop makes Run return. Any goroutine, also a callback; it does not wait.
func (l *Loop) Stop() {
	l.stop.Store(true)
	l.wake()
}
