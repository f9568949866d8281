package uring

import "github.com/weirnet/weir/transport"

const (
	minHints = 1 << 8
	maxHints = 1 << 20
)

// hints find the slot of a token: Cancel names an operation by its token alone. A hint is where an operation with a
// token of the same slot was submitted last; it may be wrong, then all slots are looked at.
type hints struct {
	slots []uint32
	mask  uint32
}

// note remembers that an operation with token is submitted to the slot at index.
func (h *hints) note(token transport.Token, index uint32) {
	if len(h.slots) == 0 || token.Slot() > h.mask && h.mask < maxHints-1 {
		h.grow(token.Slot())
	}
	h.slots[token.Slot()&h.mask] = index
}

func (h *hints) grow(slot uint32) {
	size := uint32(minHints)
	for size <= slot && size < maxHints {
		size *= 2
	}
	slots := make([]uint32, size)
	copy(slots, h.slots)
	h.slots, h.mask = slots, size-1
}

// find returns the operation with a token, which has not ended, with its slot and kind; nil when there is none.
func (t *Transport) find(token transport.Token) (*slot, *operation, kind) {
	n := t.slots.len()
	if len(t.hints.slots) > 0 {
		if i := t.hints.slots[token.Slot()&t.hints.mask]; i < n {
			s := t.slots.at(i)
			if o, k := s.named(token); o != nil {
				return s, o, k
			}
		}
	}
	for i := range n {
		s := t.slots.at(i)
		if o, k := s.named(token); o != nil {
			return s, o, k
		}
	}
	return nil, nil, kindNone
}

// named returns the slot's operation with a token.
func (s *slot) named(token transport.Token) (*operation, kind) {
	if s.state == stateFree {
		return nil, kindNone
	}
	for k := kindRecv; k <= kindWatch; k++ {
		if o := s.operationOf(k); o != nil && o.active() && o.token == token {
			return o, k
		}
	}
	return nil, kindNone
}
