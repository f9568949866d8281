package uring

import (
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
)

// armWake has the ring watch the eventfd. A multishot poll sees each write although nobody reads:
// io_uring_prep_poll_multishot(3).
func (t *Transport) armWake() {
	t.watched = queued
	t.todo.Push(work{kind: kindWake})
}

func (t *Transport) issueWake() bool {
	if t.watched != queued {
		return true
	}
	e := t.entry(kindWake, nil)
	if e == nil {
		return false
	}
	t.watched = armed
	_ = sys.ClearEventFD(t.wake.FD()) // what was written so far would end the poll at once
	ring.Poll(e, int32(t.wake.FD()), unix.POLLIN, true)
	return true
}
