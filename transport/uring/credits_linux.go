package uring

import "math"

// credits divide the completion queue among what completes without being asked again. A share is taken when something
// is armed or shown to the kernel, and given back when its completion was reaped, so that all of it together fits the
// queue whatever peers do:
//
//	accepts armed + blocks shown + entries of this turn ≤ completion entries
//
// What waits for a peer or a disk (an idle receive, a watch, a send that waits for room, the first accept of a
// listener) completes once more and then has to be armed again. There is one for each socket at most, and they can not
// be refused: a peer that never reads would keep the share of others. If too many of those complete together, the
// kernel keeps them aside.
type credits struct {
	entries int // of the completion queue
	accepts int // in the kernel, of all listeners
	blocks  int // shown to the kernel: each brings a completion of a receive that goes on by itself
}

// divide returns the shares of a queue of so many entries.
func divide(entries int) credits {
	return credits{entries: entries, accepts: max(1, entries/8), blocks: max(1, entries/2)}
}

// gate is how freely accepts and receives are armed: each brings more completions.
type gate uint8

const (
	gateOpen gate = iota
	gateSlow      // a few for each enter
	gateShut
)

// The thresholds, in per cent of the completion queue's length.
const (
	slowFrom  = 75
	shutFrom  = 90
	openBelow = 50 // once shut
)

// next returns the state behind g when so many of the queue's entries wait to be handed out.
func (g gate) next(waiting, entries int) gate {
	switch load := 100 * waiting; {
	case load >= shutFrom*entries, g == gateShut && load >= openBelow*entries:
		return gateShut
	case load >= slowFrom*entries:
		return gateSlow
	}
	return gateOpen
}

// regulate sets how much may be armed before the next enter and puts what was held back into the queue, as much as that
// is.
func (t *Transport) regulate() {
	t.gate = t.gate.next(t.backlog(), t.credits.entries)
	switch t.gate {
	case gateOpen:
		t.arms = math.MaxInt
	case gateSlow:
		t.arms = max(1, t.credits.entries/64)
	case gateShut:
		t.arms = 0
	}
	n := min(t.arms, len(t.held))
	for _, w := range t.held[:n] {
		w.paid = true
		t.todo.Push(w)
	}
	t.arms -= n
	t.held = t.held[:copy(t.held, t.held[n:])]
}

// backlog returns how many completions wait to be handed out.
func (t *Transport) backlog() int { return t.events.Len() + t.done.Len() }

// hold keeps w for later and returns true when no more may be armed before the next enter. What was held has its place
// already: it would else be overtaken for ever by what is new.
func (t *Transport) hold(w *work, count *uint64) bool {
	switch {
	case w.paid:
		return false
	case t.arms > 0:
		t.arms--
		return false
	}
	*count++
	t.held = append(t.held, *w)
	return true
}

// room returns how many entries may be made in this turn.
func (t *Transport) room() int { return t.ring.CQSpace() - t.blocks.free() - t.credits.accepts }
