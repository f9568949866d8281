package loop

import "errors"

// What callers branch on. Execute returns them bare, because a refusal may not cost an allocation; elsewhere they are
// wrapped with the operation.
var (
	// ErrFull is returned by Execute when the task queue has no room. The task will not run.
	ErrFull = errors.New("loop: task queue full")
	// ErrStopped is returned by what comes after Stop or Close, and is the cause completers are aborted with then.
	ErrStopped = errors.New("loop: stopped")
	// ErrGoexit is the end of a loop whose goroutine a callback ended with runtime.Goexit, which no recover can undo
	// (testing's FailNow does that).
	ErrGoexit = errors.New("loop: a callback ended the loop's goroutine (runtime.Goexit)")
	// ErrTooMany is returned by Register when all slots are taken.
	ErrTooMany = errors.New("loop: too many completers")
	// ErrState is returned by a Run, Open, RunOnce or Close that the state of the loop does not allow: a loop runs
	// once, and not from inside one of its own callbacks.
	ErrState = errors.New("loop: not possible in this state")
	// ErrStuck is wrapped by a *StuckError: a callback does not return, and so the loop does not go on.
	ErrStuck = errors.New("loop: a callback does not return")
	// ErrPanic is the end of a loop whose transport, or a func of its Config, panicked. What callbacks panic ends no
	// loop.
	ErrPanic = errors.New("loop: panic outside the callbacks")
)
