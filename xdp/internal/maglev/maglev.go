// Package maglev fills the look-up tables of a consistent hash: which of the members a hash value belongs to. The
// method is that of Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer" (NSDI 2016), with
// weights.
package maglev

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
)

// ErrConfig is wrapped by every error of Build.
var ErrConfig = errors.New("no such table can be built")

// Limits of Build, and the value of a cell that belongs to nobody.
const (
	MinSize   = 256
	MaxSize   = 1 << 16
	MaxWeight = 1000
	Empty     = 0xffff
)

// Member is one of those who share a table.
type Member struct {
	// Key tells members apart; where a member's cells are follows from it alone.
	Key string
	// Value is what the member's cells hold: anything but Empty.
	Value uint16
	// Weight is the member's share, up to MaxWeight. Zero means none: the member is left out.
	Weight uint16
}

// Build returns a table of size cells, a power of two from MinSize to MaxSize. Each member has the share of them
// that its weight has of all weights, to a cell; without members all cells are Empty. The order of the members does
// not matter. When one leaves, nearly all cells of the others stay as they are.
//
// The table has a power of two of cells so that a mask finds a hash value's; the skips are odd then, and so each
// member's order of preference visits every cell. The work is at most size times the number of members.
func Build(size int, members []Member) ([]uint16, error) {
	if size < MinSize || size > MaxSize || bits.OnesCount(uint(size)) != 1 {
		return nil, fmt.Errorf("maglev: table of %d cells, want a power of two from %d to %d: %w",
			size, MinSize, MaxSize, ErrConfig)
	}
	table := slices.Repeat([]uint16{Empty}, size)
	turns, heaviest, err := order(size, members)
	if err != nil || len(turns) == 0 {
		return table, err
	}
	for left := size; ; {
		for i := range turns {
			// A member's credit grows by its weight and a cell costs the highest weight, so that rounding is carried on.
			if turns[i].credit += turns[i].weight; turns[i].credit < heaviest {
				continue
			}
			turns[i].credit -= heaviest
			turns[i].take(table)
			if left--; left == 0 {
				return table, nil
			}
		}
	}
}

// turn is a member while the table is being filled.
type turn struct {
	next, skip     uint32
	weight, credit uint32
	value          uint16
}

// take gives the member the first free cell in its order of preference. There must be one.
func (t *turn) take(table []uint16) {
	mask := uint32(len(table) - 1)
	for table[t.next&mask] != Empty {
		t.next += t.skip
	}
	table[t.next&mask] = t.value
	t.next += t.skip
}

// order returns the members that take part, by key, and the highest weight.
func order(size int, members []Member) (turns []turn, heaviest uint32, err error) {
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int { return cmp.Compare(a.Key, b.Key) })
	for i, m := range members {
		switch {
		case i > 0 && m.Key == members[i-1].Key:
			return nil, 0, fmt.Errorf("maglev: member %q is there twice: %w", m.Key, ErrConfig)
		case m.Value == Empty:
			return nil, 0, fmt.Errorf("maglev: member %q with value %#x, which stands for nobody: %w",
				m.Key, m.Value, ErrConfig)
		case m.Weight > MaxWeight:
			return nil, 0, fmt.Errorf("maglev: member %q with weight %d, want at most %d: %w",
				m.Key, m.Weight, MaxWeight, ErrConfig)
		case m.Weight == 0:
			continue
		}
		h := fnv.New64a()
		h.Write([]byte(m.Key)) // never fails
		mixed := mix(h.Sum64())
		turns = append(turns, turn{
			next: uint32(mixed), skip: uint32(mixed>>32) | 1,
			weight: uint32(m.Weight), value: m.Value,
		})
		heaviest = max(heaviest, uint32(m.Weight))
	}
	if len(turns) > size {
		return nil, 0, fmt.Errorf("maglev: %d members for %d cells: %w", len(turns), size, ErrConfig)
	}
	return turns, heaviest, nil
}

// mix spreads what differs in few bits over all of them: FNV leaves similar keys similar. It is the finaliser of
// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
