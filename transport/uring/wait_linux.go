package uring

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

const (
	batch       = 256                  // completions of a Wait when dst has no room
	flushRounds = 64                   // times to fetch completions that the queue did not hold
	stallTurn   = 1 * time.Millisecond // before asking a kernel again that took nothing
	stallTurns  = 20                   // for a send that should not wait

	// settleWait bounds how long sends that nobody waits for are unsettled, and their memory in use, while nothing else
	// happens.
	settleWait = 5 * time.Millisecond
)

// Wait implements transport.Transport.
//
//	show free blocks → make entries → one system call → take completions → settle sends → hand out
//
// It blocks only when it has nothing to hand out. Sends that go in with the system call that blocks are settled when it
// returns, see mayBlock.
func (t *Transport) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	switch {
	case t.closed:
		return dst, transport.ErrClosed
	case t.failed != nil:
		return dst, t.failed
	}
	base := len(dst)
	t.out, t.outLimit = dst, cap(dst)
	if t.outLimit == base {
		t.outLimit = base + batch
	}
	if t.todo.Len() == 0 {
		t.deliver()
	}
	var err error
	// A batch that is full already needs no system call. One that is not gets one: who makes operations that end at
	// once in each turn must not keep others from ending.
	if len(t.out) < t.outLimit || t.todo.Len() > 0 {
		t.stats.Waits++
		err = t.work(base, timeout)
	}
	if err != nil {
		t.drop(t.out[base:])
		t.out = t.out[:base]
	}
	dst, t.out, t.outLimit = t.out, nil, 0
	t.stats.Completions += uint64(len(dst) - base)
	t.gauge.Set(t.backlog(), t.credits.entries)
	t.nowRead = false
	return dst, err
}

// waiting reports whether there is something to hand out.
func (t *Transport) waiting() bool { return t.done.Len() > 0 || t.events.Len() > 0 }

// work enters the kernel until there is something to hand out, or time is up.
func (t *Transport) work(base int, timeout time.Duration) error {
	woken, stalls := false, 0
	for {
		t.blocks.fill()
		t.unpark()
		t.regulate()
		more := t.issue()
		pending := t.ring.Pending()
		may := !more && timeout != 0 && len(t.out) == base && !t.waiting() && t.mayBlock()
		slept, err := t.enter(may, timeout)
		if slept || t.wake.Woken() {
			woken = t.wake.Rouse() || woken
		}
		if err != nil {
			return err
		}
		t.drain(false)
		if err := t.settle(); err != nil {
			return err
		}
		t.deliver()
		left := t.ring.Pending()
		stalled := pending > 0 && left == pending // no memory for requests
		switch {
		case stalled && (t.urgent > 0 || timeout != 0) && stalls < stallTurns && len(t.out) == base && !woken:
			stalls++
			if err := t.ring.Wait(stallTurn, false); err != nil && !errors.Is(err, ring.ErrDropped) {
				return fmt.Errorf("uring: enter: %w", err)
			}
		case !stalled && (left > 0 || t.todo.Len() > 0 && (more || t.urgent > 0)):
			// There is more to submit than was taken, or a send that must end in this Wait.
		case len(t.out) > base:
			return nil
		case woken:
			t.stats.Wakes++
			return nil
		case timeout == 0 || slept && timeout > 0 || stalled:
			return nil
		}
	}
}

// mayBlock reports whether a system call may wait although the sends it submits complete only by what follows it. Those
// with NoWait may: who waits for one lets Wait only look. And one that falls short has a completion, which ends the
// wait. Not while the kernel needs the blocks that are being sent.
func (t *Transport) mayBlock() bool {
	return len(t.unsettled) == 0 || t.awaited == 0 && !t.blocks.short() && t.hungry.Len()+t.sated.Len() == 0
}

// enter submits, and waits if it may sleep. It reports whether it has waited.
func (t *Transport) enter(may bool, timeout time.Duration) (slept bool, err error) {
	switch {
	case may && t.wake.Sleep():
		slept = true
		err = t.sleep(timeout)
	case t.events.Len() > 0:
		// There is enough to hand out: only submit, so that the ring does not fill up.
		err = t.ring.Submit()
	default:
		err = t.ring.Poll()
	}
	if errors.Is(err, ring.ErrDropped) {
		err = nil // seen by Dropped
	}
	if err != nil {
		return slept, fmt.Errorf("uring: enter: %w", err)
	}
	if t.ring.Pending() == 0 {
		t.arena.Reset()
	}
	return slept, nil
}

// sleep waits for a completion: raw at first, if so configured.
func (t *Transport) sleep(timeout time.Duration) error {
	if len(t.unsettled) > 0 && (timeout < 0 || timeout > settleWait) {
		return t.ring.Wait(settleWait, t.raw)
	}
	if !t.raw {
		return t.ring.Wait(timeout, false)
	}
	if timeout >= 0 && timeout <= rawWait {
		return t.ring.Wait(timeout, true)
	}
	if err := t.ring.Wait(rawWait, true); err != nil {
		return err
	}
	if first, end := t.ring.Ready(); first != end || t.wake.Woken() {
		return nil
	}
	if timeout > 0 {
		timeout -= rawWait
	}
	return t.ring.Wait(timeout, false)
}

// drain empties the completion queue. What a send did is dealt with at once, so that it is known before sends without a
// completion are settled; the rest waits in events. With all set, so do sends.
func (t *Transport) drain(all bool) {
	first, end := t.ring.Ready()
	t.stats.WaitingPeak = max(t.stats.WaitingPeak, t.backlog()+int(end-first))
	if t.overflown { // what comes now had no place before
		t.counters.Overflowed += uint64(end - first)
	}
	for ; first != end; first++ {
		c := t.ring.Completion(first)
		e := event{c.UserData(), c.Result(), c.Flags()}
		if kind(e.data>>56) == kindSend && !all {
			t.finishSend(&e)
			continue
		}
		t.events.Push(e)
	}
	t.ring.Reaped(end)
	overflown := t.ring.Overflown()
	if overflown && !t.overflown {
		t.counters.Overflows++
	}
	t.overflown = overflown
}

// settle ends the skipped sends of which no completion came, although the kernel has consumed them: all of their bytes
// were taken. Before anything is concluded from silence, completions that the queue did not hold are fetched, and none
// may be lost.
func (t *Transport) settle() error {
	for i := 0; t.overflown && len(t.unsettled) > 0 && t.ring.Dropped() == 0; i++ {
		if err := t.ring.Poll(); i == flushRounds || err != nil && !errors.Is(err, ring.ErrDropped) {
			return nil
		}
		t.drain(false)
	}
	if t.ring.Dropped() > 0 {
		return t.lose()
	}
	consumed := t.ring.Consumed()
	n := 0
	for ; n < len(t.unsettled); n++ {
		u := &t.unsettled[n]
		if int32(consumed-u.position) < 0 {
			break
		}
		if u.awaited {
			t.awaited--
		}
		if s := t.slots.at(u.slot); s.gen == u.gen && s.send.stage == armed && s.send.skipped {
			t.counters.SkippedSends++
			t.returned(s)
			t.sentBytes(s, s.send.chunk, 0)
			t.closeMaybe(s)
		}
	}
	t.unsettled = t.unsettled[:copy(t.unsettled, t.unsettled[n:])]
	return nil
}

// lose makes the transport useless: the kernel dropped completions, because it had no memory to keep them aside. Any
// operation may have been among them, and nobody knows how far one of which nothing is heard came. It takes back what
// is in the kernel, so that it neither reads nor writes what others free now.
func (t *Transport) lose() error {
	t.failed = fmt.Errorf("%w: %d so far", ErrLost, t.ring.Dropped())
	if err := t.quiesce(); err != nil {
		t.failed = errors.Join(t.failed, err)
	}
	return t.failed
}

// drop releases what completions bring that nobody gets.
func (t *Transport) drop(cs []transport.Completion) {
	for i := range cs {
		if b := cs[i].Buf; b != nil {
			b.Release()
		}
	}
}

// deliver fills the batch with what waits.
func (t *Transport) deliver() {
	for t.done.Len() > 0 && len(t.out) < t.outLimit {
		t.out = append(t.out, *t.done.Peek())
		t.done.Pop()
	}
	for t.events.Len() > 0 && len(t.out) < t.outLimit {
		e := *t.events.Peek()
		t.events.Pop()
		t.dispatch(&e)
	}
}

// dispatch deals with one completion of the ring.
func (t *Transport) dispatch(e *event) {
	k := kind(e.data >> 56)
	switch k {
	case kindNone: // of probe
		return
	case kindCancel: // what it did, the other operation says
		t.outstanding--
		return
	case kindWake:
		if e.flags&ring.FlagMore == 0 {
			t.outstanding--
			t.armWake()
		}
		return
	}
	s := t.slots.owner(e.data)
	if s == nil {
		t.stale(k, e)
		return
	}
	if e.flags&ring.FlagMore == 0 {
		t.returned(s)
	}
	switch k {
	case kindRecv:
		t.finishRecv(s, e)
	case kindAccept:
		t.finishAccept(s, e)
	case kindConnect:
		t.finishConnect(s, e)
	case kindWatch:
		t.finishWatch(s, e)
	case kindFill, kindRead, kindDrain:
		t.finishFile(s, k, e)
	case kindClose:
		s.closing, s.fd = idle, -1
	}
	t.closeMaybe(s)
}

// stale frees what a completion brings that belongs to nobody any more.
func (t *Transport) stale(k kind, e *event) {
	t.stats.Stale++
	if k == kindAccept {
		t.accepting--
	}
	if e.flags&ring.FlagMore == 0 {
		t.outstanding--
	}
	if e.flags&ring.FlagBuffer != 0 {
		t.blocks.recycle(uint16(e.flags >> 16))
	}
	if k == kindAccept && e.result >= 0 {
		_ = sys.Close(int(e.result))
	}
}

// returned notes that an entry of s has had its last completion.
func (t *Transport) returned(s *slot) {
	t.outstanding--
	s.kernel--
}

// emit hands a completion out, in this batch if it fits.
func (t *Transport) emit(c transport.Completion) {
	if len(t.out) < t.outLimit && t.done.Len() == 0 {
		t.out = append(t.out, c)
		return
	}
	t.done.Push(c)
}

// errnoOf is the error of a negative result.
func errnoOf(result int32) syscall.Errno { return syscall.Errno(-result) }
