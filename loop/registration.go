package loop

import (
	"fmt"

	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/transport"
)

const (
	maxSlots       = 1 << 24 // slots in use at a time; below transport.SlotReserved
	generationMask = 1<<24 - 1
)

// slot is where a completer is registered. Its generation tells the present one from those before it, so that
// a completion that comes late finds nobody. A generation comes again after 2^24 registrations in the same slot.
type slot struct {
	completer  Completer // nil: free
	generation uint32
	nextFree   uint32 // the next free slot; 0: none
}

// Registration is a completer's place in its loop. The zero value names nothing. It belongs to the loop.
type Registration struct {
	slot, generation uint32
}

// Token returns the token for operations of this registration; tag is the completer's own.
func (r Registration) Token(tag uint8) transport.Token {
	return transport.MakeToken(r.slot, r.generation, tag)
}

// Register gives c a place, so that it gets the completions of the operations it submits with the registration's
// tokens. ErrTooMany when 2^24-1 are registered; ErrStopped when the loop has begun to abort completers.
func (l *Loop) Register(c Completer) (Registration, error) {
	if invariants.Enabled {
		l.checkThread("Register")
	}
	if l.end.step > endQuiet {
		return Registration{}, fmt.Errorf("loop: register: %w", ErrStopped)
	}
	// The slot that was freed last comes first: the slots in use stay together, and the order depends on nothing else.
	i := l.freeSlot
	if i != 0 {
		l.freeSlot = l.slots[i].nextFree
	} else {
		if len(l.slots) >= l.maxSlots {
			return Registration{}, fmt.Errorf("loop: register: %w (%d)", ErrTooMany, l.registered)
		}
		i = uint32(len(l.slots))
		l.slots = append(l.slots, slot{})
	}
	s := &l.slots[i]
	s.completer, s.nextFree = c, 0
	l.registered++
	return Registration{slot: i, generation: s.generation}, nil
}

// Unregister frees the place: completions that still come for it are dropped and counted. Timers, posted nodes and
// a pending EndTurn stay as they are; timers are the completer's to stop. A stale or zero registration is ignored.
func (l *Loop) Unregister(r Registration) {
	if invariants.Enabled {
		l.checkThread("Unregister")
	}
	if r.slot == 0 || int(r.slot) >= len(l.slots) {
		return
	}
	s := &l.slots[r.slot]
	if s.completer == nil || s.generation != r.generation {
		return
	}
	l.freeSlotAt(r.slot)
}

// Each calls fn for all that are registered, in the order of their slots. fn may unregister any of them; those it
// registers may be visited or not.
func (l *Loop) Each(fn func(Completer)) {
	for i := 1; i < len(l.slots); i++ {
		if c := l.slots[i].completer; c != nil {
			fn(c)
		}
	}
}

// completerOf returns who is registered under t's slot and generation, or nil.
func (l *Loop) completerOf(t transport.Token) Completer {
	i := t.Slot()
	if uint64(i) >= uint64(len(l.slots)) || l.slots[i].generation != t.Generation() {
		return nil
	}
	return l.slots[i].completer
}

// expel unregisters c wherever it stands: it can no longer be trusted to do that itself.
func (l *Loop) expel(c Completer) {
	for i := 1; i < len(l.slots); i++ {
		if l.slots[i].completer == c {
			l.freeSlotAt(uint32(i))
		}
	}
}

func (l *Loop) freeSlotAt(i uint32) {
	s := &l.slots[i]
	s.completer = nil
	s.generation = (s.generation + 1) & generationMask
	s.nextFree = l.freeSlot
	l.freeSlot = i
	l.registered--
}
