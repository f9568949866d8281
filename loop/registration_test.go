package loop

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
)

// nobody is a Completer that counts its completions.
type nobody struct {
	completions int
}

func (n *nobody) Complete(*transport.Completion) { n.completions++ }
func (n *nobody) RunNode(*Node)                  {}
func (n *nobody) EndTurn()                       {}
func (n *nobody) Panicked(any, []byte)           {}
func (n *nobody) Abort(error)                    {}

func register(t testing.TB, l *Loop) (Registration, *nobody) {
	t.Helper()
	c := &nobody{}
	r, err := l.Register(c)
	require.NoError(t, err)
	return r, c
}

func TestTokenNamesTheRegistrationAndTheTag(t *testing.T) {
	l, _ := clockLoop(t)
	r, _ := register(t, l)
	token := r.Token(200)
	assert.Equal(t, r.slot, token.Slot())
	assert.Equal(t, r.generation, token.Generation())
	assert.Equal(t, uint8(200), token.Tag())
	assert.NotZero(t, token.Slot(), "slot 0 is the loop's own")
}

func TestSlotsAreReusedInAFixedOrderUnderANewGeneration(t *testing.T) {
	l, _ := clockLoop(t)
	var rs []Registration
	for range 4 {
		r, _ := register(t, l)
		rs = append(rs, r)
	}
	l.Unregister(rs[1])
	l.Unregister(rs[3])
	a, _ := register(t, l)
	b, _ := register(t, l)
	c, _ := register(t, l)
	assert.Equal(t, []uint32{rs[3].slot, rs[1].slot, rs[3].slot + 1}, []uint32{a.slot, b.slot, c.slot})
	assert.NotEqual(t, rs[3].Token(1), a.Token(1))
	assert.Equal(t, 5, l.Stats().Registered)
}

func TestUnregisterOfAStaleRegistrationDoesNothing(t *testing.T) {
	l, _ := clockLoop(t)
	old, _ := register(t, l)
	l.Unregister(old)
	present, c := register(t, l)
	require.Equal(t, old.slot, present.slot)
	l.Unregister(old)
	l.Unregister(Registration{})
	l.Unregister(Registration{slot: 99})
	assert.Equal(t, 1, l.Stats().Registered)
	assert.Same(t, c, l.completerOf(present.Token(0)))
	assert.Nil(t, l.completerOf(old.Token(0)))
	l.Unregister(present)
	l.Unregister(present)
	assert.Zero(t, l.Stats().Registered)
}

func TestRegisterIsBounded(t *testing.T) {
	l, _ := clockLoop(t)
	l.maxSlots = 4 // slot 0 is the loop's own
	var last Registration
	for range 3 {
		last, _ = register(t, l)
	}
	_, err := l.Register(&nobody{})
	require.ErrorIs(t, err, ErrTooMany)
	l.Unregister(last)
	register(t, l)
	_, err = l.Register(&nobody{})
	require.ErrorIs(t, err, ErrTooMany)
}

func TestTokensStayBelowTheTransportsOwn(t *testing.T) {
	assert.Less(t, int64(maxSlots), int64(transport.SlotReserved))
}

func TestGenerationWraps(t *testing.T) {
	l, _ := clockLoop(t)
	r, _ := register(t, l)
	l.slots[r.slot].generation = generationMask
	l.Unregister(Registration{slot: r.slot, generation: generationMask})
	r, c := register(t, l)
	assert.Zero(t, r.generation)
	assert.Same(t, c, l.completerOf(r.Token(0)))
}

func TestEachVisitsInSlotOrderAndMayUnregister(t *testing.T) {
	l, _ := clockLoop(t)
	var rs []Registration
	order := map[Completer]int{}
	for i := range 5 {
		r, c := register(t, l)
		rs = append(rs, r)
		order[c] = i
	}
	l.Unregister(rs[2])
	var seen []int
	l.Each(func(c Completer) {
		seen = append(seen, order[c])
		l.Unregister(rs[order[c]])
		l.Unregister(rs[3])
	})
	assert.Equal(t, []int{0, 1, 4}, seen)
	assert.Zero(t, l.Stats().Registered)
}
