package loop

import (
	"fmt"
	"runtime/debug"
)

// rescue ends a panic that left a callback; work is then called again and goes on behind it. It must be deferred
// itself: recover works nowhere else. Goexit passes through: Run and RunOnce see that they did not return.
func (l *Loop) rescue() {
	v := recover()
	if v == nil {
		return
	}
	// The frames that panicked are still on the stack here, below this one.
	stack := debug.Stack()
	l.stats.Panics++
	owner := l.culprit()
	l.dropCurrent()
	if owner == nil {
		l.log.Error("panic in a callback without an owner", "panic", v, "stack", string(stack))
		return
	}
	l.blame(owner, v, stack)
}

// culprit is the completer whose callback was running, nil when there was none.
func (l *Loop) culprit() Completer {
	t := &l.turn
	switch {
	case t.stage == stageDispatch:
		return t.current
	case t.stage == stageTimers && t.fired != nil:
		return t.fired.owner
	case t.stage == stageNodes && t.node != nil:
		return t.node.owner
	case t.stage == stageEndTurn && t.endPos > 0:
		return t.ending[t.endPos-1]
	case t.stage == stageAbort && l.end.sweep > 0:
		return l.slots[l.end.sweep-1].completer
	}
	return nil
}

// dropCurrent releases the buffer of the completion whose callback did not return.
func (l *Loop) dropCurrent() {
	t := &l.turn
	if t.stage != stageDispatch || t.pos == 0 {
		return
	}
	c := &t.batch[t.pos-1]
	if b := c.Buf; b != nil {
		c.Buf = nil
		l.try("releasing its buffer", b.Release) // who panicked may have released it too often
	}
}

// blame tells owner that it panicked, and gets rid of it when it cannot even bear that.
func (l *Loop) blame(owner Completer, v any, stack []byte) {
	if l.try("telling a completer of its panic", func() { owner.Panicked(v, stack) }) {
		return
	}
	if l.turn.stage != stageAbort {
		cause := fmt.Errorf("loop: panic: %v", v)
		if l.try("aborting a completer after its panic", func() { owner.Abort(cause) }) {
			return
		}
	}
	l.try("unregistering a completer after its panic", func() { l.expel(owner) })
}

// try calls fn and reports whether it returned; a panic is counted and logged.
func (l *Loop) try(what string, fn func()) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			l.stats.Panics++
			l.log.Error("panic while "+what, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	fn()
	return true
}
