package loop

import "errors"

// What callers branch on. Execute answers them bare, because a refusal may not cost an allocation; elsewhere they are
// wrapped with the operation.
var (
	// ErrFull answers an Execute for which the task queue has no room. The task will not run.
	ErrFull = errors.New("loop: task queue full")
	// ErrStopped answers what comes after Stop or Close, and is the cause completers are aborted with then.
	ErrStopped = errors.New("loop: stopped")
	// ErrGoexit is the end of a loop whose goroutine a callback ended with runtime.Goexit, which no recover can undo
	// (testing's FailNow does that).
	ErrGoexit = errors.New("loop: a callback ended the loop's goroutine (runtime.Goexit)")
	// ErrTooMany answers a Register when all slots are taken.
	ErrTooMany = errors.New("loop: too many completers")
	// ErrState answers a Run, Open, RunOnce or Close that the loop's state does not allow: a loop runs once, and not from
	// inside one of its own callbacks.
	ErrState = errors.New("loop: not possible in this state")
	// ErrPanic is the end of a loop whose transport, or a func of its Config, panicked. What callbacks panic ends no loop.
	ErrPanic = errors.New("loop: panic outside the callbacks")
)
