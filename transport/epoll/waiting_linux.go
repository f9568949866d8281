package epoll

import (
	"fmt"
	"syscall"
	"time"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

const (
	// resumesPerWait is how many sockets go on with a Send that used up its turn.
	resumesPerWait = 8
	// sendTurnsPerWait bounds what one Wait sends for sockets that became writable, in units of SendBytesPerTurn.
	sendTurnsPerWait = 8
)

// Wait hands out completions.
//
// Completions that Submit left behind are handed out without looking at any socket: sends that the kernel took at once
// never cost an epoll_wait of their own. But two Waits in a row do not do so, so a loop that submits in every turn
// still hears of its other sockets.
func (t *Transport) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	if t.closed {
		return dst, transport.ErrClosed
	}
	t.out, t.before, t.room = dst, len(dst), cap(dst)-len(dst)
	if t.room == 0 {
		t.room = defaultBatch
	}
	err := t.wait(timeout)
	dst = t.out
	t.stats.Completions += uint64(len(dst) - t.before)
	t.publish()
	t.out, t.room, t.nowKnown = nil, 0, false
	return dst, err
}

// publish shows how much is left to hand out: completions, and events that will yield some.
func (t *Transport) publish() {
	waiting := t.queue.Len() + t.eventCount - t.nextEvent
	t.stats.WaitingPeak = max(t.stats.WaitingPeak, waiting)
	t.load.Set(waiting, eventsPerPoll)
}

func (t *Transport) wait(timeout time.Duration) error {
	if t.wake.Woken() && t.wake.Rouse() {
		t.stats.Wakes++
		timeout = 0
	}
	if n := min(t.room, t.queue.Len()); n > 0 {
		t.out = t.queue.Take(t.out, n)
		t.room -= n
	}
	t.resume()
	if t.nextEvent < t.eventCount && t.room > 0 {
		t.passed = false
		t.dispatch()
		if t.worked() {
			return nil
		}
	}
	if t.worked() {
		if !t.passed {
			t.passed = true
			return nil
		}
		timeout = 0
	}
	t.passed = false
	return t.poll(timeout)
}

// worked reports whether this Wait has something to hand out. When the queue is not empty, out is full.
func (t *Transport) worked() bool { return len(t.out) > t.before }

// poll waits for events until one of them makes a completion. What is left over from before is reported again.
func (t *Transport) poll(timeout time.Duration) error {
	t.stats.Waits++
	var deadline time.Duration
	if timeout > 0 {
		deadline = t.Now() + timeout
	}
	for {
		t.reconcile()
		if t.worked() || len(t.resuming) > 0 {
			timeout = 0
		}
		n, woken, errno := t.waitForEvents(timeout)
		if errno != 0 && errno != syscall.EINTR {
			return fmt.Errorf("epoll: wait: %w", errno)
		}
		t.counters.Events += uint64(n)
		t.nextEvent, t.eventCount = 0, n
		t.dispatch()
		if t.worked() || woken || timeout == 0 {
			return nil
		}
		if timeout < 0 {
			continue
		}
		if n == 0 && errno == 0 {
			return nil
		}
		// Events without a consequence, or a signal: Go's runtime stops threads with one.
		timeout = deadline - t.clock.Now()
		if timeout <= 0 {
			return nil
		}
	}
}

// waitForEvents fills t.events and reports whether Wake ended the wait.
func (t *Transport) waitForEvents(timeout time.Duration) (n int, woken bool, errno syscall.Errno) {
	t.counters.EpollWaits++
	if timeout == 0 {
		n, errno = t.epoll.WaitRaw(t.events[:], 0)
		return n, false, errno
	}
	if !t.wake.Sleep() {
		t.wake.Rouse()
		t.stats.Wakes++
		n, errno = t.epoll.WaitRaw(t.events[:], 0)
		return n, true, errno
	}
	if t.cfg.Raw {
		n, errno = t.waitRawFirst(timeout)
	} else {
		t.counters.BlockingWaits++
		n, errno = t.epoll.Wait(t.events[:], timeout)
	}
	woken = t.wake.Rouse()
	if woken {
		t.stats.Wakes++
	}
	return n, woken, errno
}

// waitRawFirst waits with the P in hand, because what comes within RawWait is common and giving the P away and getting
// it back is dear; then without it.
func (t *Transport) waitRawFirst(timeout time.Duration) (int, syscall.Errno) {
	if timeout > 0 && timeout <= t.cfg.RawWait {
		return t.epoll.WaitRaw(t.events[:], timeout)
	}
	n, errno := t.epoll.WaitRaw(t.events[:], t.cfg.RawWait)
	if n != 0 || errno != 0 {
		return n, errno
	}
	if timeout > 0 {
		timeout -= t.cfg.RawWait
	}
	t.counters.EpollWaits++
	t.counters.BlockingWaits++
	return t.epoll.Wait(t.events[:], timeout)
}

// dispatch handles events until none is left or this Wait has done its share; level-triggered, none of them is lost.
// When the caller's slice is full from the start, their completions are queued: a loop whose queue never runs dry hears
// of its sockets all the same.
func (t *Transport) dispatch() {
	full := t.room == 0
	receives := t.cfg.ReceivesPerWait
	sendLimit := t.stats.Sent + uint64(sendTurnsPerWait*t.cfg.SendBytesPerTurn)
	for t.nextEvent < t.eventCount && receives > 0 && (t.room > 0 || full) && t.stats.Sent < sendLimit {
		ev := &t.events[t.nextEvent]
		t.nextEvent++
		data, events := ev.Data(), ev.Events()
		if data == wakeData {
			continue
		}
		s := t.sockets.lookup(transport.Handle(data))
		switch {
		case s == nil:
			t.stats.Stale++
		case s.is(flagListener):
			t.accept(s)
		case s.is(flagConnecting):
			t.finishConnect(s, events)
		default:
			receives -= t.ready(s, events)
		}
	}
}

// ready handles an event of a connected socket and returns the number of receives that brought data.
//
// What is not asked for any more is passed over: events may be older than the last Cancel. What is asked for again is
// tried and at worst finds nothing.
func (t *Transport) ready(s *socket, events uint32) (received int) {
	if events&(sys.EpollErr|sys.EpollHup) != 0 {
		events = t.hangUp(s, events)
	}
	if s.is(flagFull) && events&(sys.EpollOut|sys.EpollErr|sys.EpollHup) != 0 {
		t.continueSend(s)
	}
	if s.has(reading) && events&(sys.EpollIn|sys.EpollErr|sys.EpollHup) != 0 {
		received = t.receive(s)
	}
	if s.has(watching) && events&(sys.EpollRDHup|sys.EpollErr|sys.EpollHup) != 0 {
		t.finish(s, watching, 0, nil)
	}
	return received
}

// hangUp handles HUP and ERR, which epoll reports whether asked or not, and returns the events that count. With nothing
// in progress that could end by them, the descriptor leaves epoll: otherwise every epoll_wait would return at once.
func (t *Transport) hangUp(s *socket, events uint32) uint32 {
	t.markDirty(s)
	if events&sys.EpollHup == 0 && sys.DiscardErrorQueue(int(s.fd)) > 0 {
		return events &^ sys.EpollErr // not an error of the connection, or one that is reported again
	}
	s.flags |= flagHung
	return events
}

// emit returns a zero completion that will be handed out next, valid until the next emit.
func (t *Transport) emit() *transport.Completion {
	if t.room == 0 || t.queue.Len() > 0 {
		return t.queue.Add()
	}
	t.room--
	t.out = append(t.out, transport.Completion{})
	return &t.out[len(t.out)-1]
}

// finish ends an operation in progress with its last completion.
func (t *Transport) finish(s *socket, op operation, n int, err error) {
	token := s.end(op)
	switch op {
	case writing:
		s.bufs, s.file, s.off = nil, nil, 0
		s.flags &^= flagFull
	case reading:
		s.limit = 0
	}
	t.markDirty(s)
	c := t.emit()
	c.Token, c.N, c.Err = token, n, err
}
