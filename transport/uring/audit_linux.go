package uring

import (
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/transport"
)

// lose deals with completions that the kernel dropped, because it had no memory to keep them aside. Any operation may
// have been among them:
//
//   - A skipped send whose silence would mean success may have failed: it ends with ErrLost.
//   - Of every other operation the kernel is asked whether it still has it, by cancelling it. If so, it begins again, or
//     ends if it was to end anyway. If not, and no completion says how it ended, that one is lost: the operation ends
//     with ErrLost. A receive of which only data was lost ends with it, too, because the kernel ends a multishot receive
//     when it can not post a completion.
func (t *Transport) lose() {
	t.dropped = t.ring.Dropped()
	consumed := t.ring.Consumed()
	kept := t.unsettled[:0]
	for _, u := range t.unsettled {
		if int32(consumed-u.position) < 0 {
			kept = append(kept, u)
			continue
		}
		if s := t.slots.at(u.slot); s.gen == u.gen && s.send.stage == armed && s.send.skipped {
			t.returned(s)
			t.counters.Lost++
			t.finishSending(s, ErrLost)
			t.closeMaybe(s)
		}
	}
	t.unsettled = kept
	for i := range t.slots.len() {
		if s := t.slots.at(i); s.state != stateFree && s.kernel > 0 {
			t.audit(s)
		}
	}
}

// audit asks the kernel about the entries of a slot.
func (t *Transport) audit(s *slot) {
	for k := kindRecv; k <= kindWatch; k++ {
		o := s.operationOf(k)
		if o == nil || o.stage != armed || o.audited || k == kindSend && s.send.skipped {
			continue
		}
		o.audited = true
		of := k
		if k == kindSend {
			of = s.send.at()
		}
		t.todo.push(work{slot: s.index, gen: s.gen, kind: kindAudit, of: of})
	}
	if s.closing == armed {
		t.todo.push(work{slot: s.index, gen: s.gen, kind: kindAudit, of: kindClose})
	}
}

// finishAudit deals with the answer about an operation. ENOENT: the kernel does not have it.
func (t *Transport) finishAudit(s *slot, k kind, e *event) {
	if errnoOf(e.result) != unix.ENOENT {
		return
	}
	if k == kindClose {
		if s.closing == armed {
			t.returned(s)
			s.closing, s.fd = idle, -1
		}
		return
	}
	o := s.operationOf(k)
	if o == nil || o.stage != armed || !o.audited {
		return // its completion came in time
	}
	t.returned(s)
	t.counters.Lost++
	switch k {
	case kindConnect:
		t.failConnect(s, ErrLost)
	case kindSend, kindFill, kindRead, kindDrain:
		t.finishSending(s, ErrLost)
	case kindAccept:
		// A connection may be lost with the completion; others come.
		if t.goesOn(s, o) {
			t.queue(s, o, kindAccept)
			return
		}
		t.finish(o, transport.ErrCanceled)
	default:
		t.finish(o, ErrLost)
	}
}
