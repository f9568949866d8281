package uring

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/transport"
)

// roundShift is where the user data of an audit has the number of its round; slots have the 24 bits below.
const roundShift = 24

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
	if t.round++; t.round == 0 {
		t.round = 1
	}
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
	t.leaky = true
	for i := range t.slots.len() {
		if s := t.slots.at(i); s.state != stateFree && s.kernel > 0 {
			t.audit(s)
		}
	}
	if t.watched == armed {
		t.watchAudited = t.round
		t.todo.push(work{kind: kindAudit, of: kindWake})
	}
}

// recoverBlocks gives the kernel the blocks back that it has used and that no completion told of. The kernel takes
// blocks in the order in which they were put, so those before its position are used: by a completion in events, or by a
// lost one. Before Linux 6.8 it does not say where it is; then what is lost stays lost.
func (t *Transport) recoverBlocks() {
	b := t.blocks
	head, err := b.ring.Head()
	if first, end := t.ring.Ready(); first != end || err != nil && !errors.Is(err, unix.EINVAL) {
		return // some completions are not in events yet
	}
	t.leaky = false
	if err != nil {
		return
	}
	known := make(map[uint16]bool)
	for i := t.events.first; i < len(t.events.items); i++ {
		if e := &t.events.items[i]; e.flags&ring.FlagBuffer != 0 {
			known[uint16(e.flags>>16)] = true
		}
	}
	for id := range b.mem {
		used := int16(b.added[id]-head) < 0
		if b.mem[id] != nil && used && !known[uint16(id)] {
			b.recycle(uint16(id))
		}
	}
}

// audit asks the kernel about the entries of a slot.
func (t *Transport) audit(s *slot) {
	for k := kindRecv; k <= kindWatch; k++ {
		o := s.operationOf(k)
		if o == nil || o.stage != armed || k == kindSend && s.send.skipped {
			continue
		}
		o.audited = t.round
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

// issueAudit cancels an operation to learn whether the kernel has it.
func (t *Transport) issueAudit(w *work) bool {
	e := t.entry(kindAudit, nil)
	if e == nil {
		return false
	}
	at := uint64(w.gen)<<32 | uint64(w.slot)
	ring.Cancel(e, uint64(w.of)<<56|at)
	e.SetUserData(uint64(auditBase+w.of)<<56 | uint64(t.round)<<roundShift | at)
	return true
}

// finishAudit deals with the answer about an operation of kind k. ENOENT: the kernel does not have it. An answer to an
// earlier question may be about an entry before the present one.
func (t *Transport) finishAudit(k kind, e *event) {
	round := uint8(e.data >> roundShift)
	e.data &^= 0xff << roundShift
	if errnoOf(e.result) != unix.ENOENT {
		return
	}
	if k == kindWake {
		if t.watched == armed && t.watchAudited == round {
			t.outstanding--
			t.armWake()
		}
		return
	}
	s := t.slots.owner(e.data)
	if s == nil {
		return
	}
	if k == kindClose && s.closing == armed {
		t.returned(s)
		s.closing, s.fd = idle, -1
	}
	o := s.operationOf(k)
	if o != nil && o.stage == armed && o.audited == round { // else its completion came in time
		t.returned(s)
		t.lost(s, o, k)
	}
	t.closeMaybe(s)
}

// lost ends an operation that the kernel does not have any more and that no completion told of.
func (t *Transport) lost(s *slot, o *operation, k kind) {
	t.counters.Lost++
	switch k {
	case kindConnect:
		t.failConnect(s, ErrLost)
	case kindSend:
		t.finishSending(s, ErrLost)
	case kindFill, kindRead, kindDrain:
		s.send.file.spoiled = true // who knows what is in the pipe
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
