package buffer_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
)

// lender lends blocks of one size and counts what becomes of them.
type lender struct {
	pool           *buffer.Pool
	size           int
	idle           [][]byte
	lent           int
	returned, left int
}

func newLender(p *buffer.Pool, size int) *lender { return &lender{pool: p, size: size} }

func (l *lender) lend() *buffer.Buf {
	l.lent++
	if k := len(l.idle); k > 0 {
		mem := l.idle[k-1]
		l.idle = l.idle[:k-1]
		return l.pool.Lend(l, mem)
	}
	return l.pool.Lend(l, l.pool.Block(l.size))
}

// Returned takes ownership of b.
func (l *lender) Returned(b *buffer.Buf) {
	l.returned++
	l.idle = append(l.idle, l.pool.Reclaim(b))
}

// Left borrows b until return.
func (l *lender) Left(*buffer.Buf) { l.left++ }

// lentBuf returns a lent Buf of 1024 bytes of which n are readable.
func lentBuf(t *testing.T, n int) (*buffer.Pool, *lender, *buffer.Buf) {
	t.Helper()
	p := buffer.NewPool(buffer.PoolConfig{})
	l := newLender(p, 1024)
	b := l.lend()
	require.Equal(t, 1024, b.Room())
	b.Append(pattern(1024))
	b.Advance(1024 - n)
	return p, l, b
}

func requireBalance(t *testing.T, p *buffer.Pool) {
	t.Helper()
	require.Zero(t, p.Outstanding(), "Bufs: %v", p.Leaks())
	require.Zero(t, p.OutstandingBytes())
	require.Empty(t, p.Leaks())
}

func TestTheLastReleaseReturnsTheMemory(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(1000)
	b.AppendString("abc")
	second, third := b.Retain(), b.RetainForTurn()
	assert.Same(t, b, second, "memory of a pool is not copied")
	assert.Same(t, b, third)
	b.Release()
	b.Release()
	assert.Equal(t, 1, p.Outstanding())
	assert.Equal(t, 1024, p.OutstandingBytes())
	assert.Equal(t, "abc", string(third.Bytes()))
	third.Release()
	requireBalance(t, p)
	assert.Equal(t, 1024, p.FreeBytes())
}

func TestReleaseAfterTheLastPanics(t *testing.T) {
	for name, get := range map[string]func() *buffer.Buf{
		"pool": func() *buffer.Buf { return buffer.NewPool(buffer.PoolConfig{}).Get(1) },
		"heap": func() *buffer.Buf { return buffer.New(1) },
		"wrap": func() *buffer.Buf { return buffer.Wrap([]byte("x")) },
		"lent": func() *buffer.Buf { return newLender(buffer.NewPool(buffer.PoolConfig{}), 256).lend() },
		"view": func() *buffer.Buf { return buffer.Wrap([]byte("x")).Slice(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			b := get()
			b.Release()
			assert.Panics(t, b.Release)
			assert.Panics(t, b.Release, "still")
			assert.Panics(t, func() { b.Retain() })
		})
	}
}

func TestLentBlockReturnsWithTheLastReference(t *testing.T) {
	p, l, b := lentBuf(t, 1024)
	again := b.RetainForTurn()
	assert.Same(t, b, again)
	v := b.Slice(1, 10)
	b.Release()
	again.Release()
	assert.Equal(t, 0, l.returned, "the view still needs the block")
	assert.Equal(t, pattern(1024)[1:11], v.Bytes())
	v.Release()
	assert.Equal(t, 1, l.returned)
	assert.Equal(t, 0, l.left)
	assert.Len(t, l.idle, 1)
	requireBalance(t, p)

	b = l.lend()
	assert.Empty(t, b.Bytes(), "a block that is lent again starts empty")
	assert.Equal(t, 1024, b.Room())
	b.Release()
	assert.Equal(t, 2, l.returned)
	requireBalance(t, p)
}

func TestRetainCopiesALentBlockBelowHalfAndKeepsAFullerOne(t *testing.T) {
	for _, tc := range []struct {
		have     int
		copied   bool
		capacity int
	}{
		{0, true, 256},
		{1, true, 256},
		{256, true, 256},
		{257, true, 512},
		{511, true, 512},
		{512, false, 1024},
		{513, false, 1024},
		{1024, false, 1024},
	} {
		for _, by := range []string{
			"Retain", "Detach", "Retain a view", "Detach a view", "Retain a scratch view", "Detach a scratch view",
		} {
			t.Run(by, func(t *testing.T) {
				p, l, b := lentBuf(t, tc.have)
				want := pattern(1024)[1024-tc.have:]
				var kept *buffer.Buf
				var s buffer.Buf
				switch by {
				case "Retain":
					kept = b.Retain()
					assert.Equal(t, tc.copied, kept != b)
				case "Detach":
					kept = b.RetainForTurn().Detach()
					assert.Equal(t, tc.copied, kept != b)
				case "Retain a view":
					v := b.Slice(0, tc.have)
					kept = v.Retain()
					assert.Equal(t, tc.copied, kept != v)
					v.Release()
				case "Detach a view":
					kept = b.Slice(0, tc.have).Detach()
				case "Retain a scratch view":
					kept = b.Scratch(&s, 0, tc.have).Retain()
					assert.NotSame(t, &s, kept)
				case "Detach a scratch view":
					kept = b.Scratch(&s, 0, tc.have).Detach()
					assert.NotSame(t, &s, kept)
				}
				b.Release()
				assert.Equal(t, want, kept.Bytes())
				assert.Equal(t, tc.capacity, kept.Cap())
				assert.Equal(t, tc.capacity, p.OutstandingBytes())
				if tc.copied {
					assert.Equal(t, 1, l.returned)
					assert.Equal(t, 0, l.left)
				} else {
					assert.Equal(t, 0, l.returned)
					assert.Equal(t, 1, l.left)
				}
				kept.Release()
				requireBalance(t, p)
				assert.Equal(t, 1, l.returned+l.left, "exactly one of both")
				if !tc.copied {
					assert.Equal(t, 1024, p.FreeBytes(), "what left becomes the pool's")
				}
			})
		}
	}
}

func TestABlockLeavesOnce(t *testing.T) {
	p, l, b := lentBuf(t, 1024)
	first := b.Retain()
	second := b.Retain()
	v := b.Slice(0, 10).Detach()
	assert.Same(t, first, second)
	assert.Equal(t, 1, l.left)
	assert.Equal(t, 1024, v.Cap(), "a block that has left is not copied any more")
	for _, x := range []*buffer.Buf{b, first, second, v} {
		x.Release()
	}
	assert.Equal(t, 0, l.returned)
	requireBalance(t, p)
}

func TestABlockThatLeftServesAsTheNextBlock(t *testing.T) {
	p, l, b := lentBuf(t, 1024)
	b.Detach().Release()
	require.Equal(t, 1, l.left)
	require.Equal(t, 1024, p.FreeBytes())
	mem := p.Block(1000)
	assert.Len(t, mem, 1024)
	assert.Zero(t, p.FreeBytes())
	requireBalance(t, p)
	p.PutBlock(mem)
	assert.Equal(t, 1024, p.FreeBytes())
	requireBalance(t, p)
}

func TestGrowingALentBufReturnsTheBlock(t *testing.T) {
	p, l, b := lentBuf(t, 600)
	b.Reserve(2000)
	assert.Equal(t, 1, l.returned)
	assert.Equal(t, pattern(1024)[1024-600:], b.Bytes())
	assert.Equal(t, 4096, b.Cap())
	assert.Equal(t, 1, p.Outstanding())
	assert.Equal(t, 4096, p.OutstandingBytes())
	kept := b.Retain()
	assert.Same(t, b, kept, "it is an ordinary Buf of the pool now")
	kept.Release()
	b.Release()
	assert.Equal(t, 1, l.returned)
	assert.Equal(t, 0, l.left)
	requireBalance(t, p)
}

func TestGrowingTheLastViewOfALentBlockReturnsTheBlock(t *testing.T) {
	p, l, b := lentBuf(t, 1024)
	v := b.Slice(10, 4)
	b.Release()
	assert.Equal(t, 0, l.returned)
	v.AppendString("tail")
	assert.Equal(t, 1, l.returned)
	assert.Equal(t, append(append([]byte(nil), pattern(1024)[10:14]...), "tail"...), v.Bytes())
	v.Release()
	requireBalance(t, p)
}

func TestViewsOfViewsHoldOnlyTheBlock(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(256)
	b.AppendString("0123456789")
	v := b.Slice(2, 6)
	w := v.Slice(1, 3)
	assert.Equal(t, "345", string(w.Bytes()))
	assert.Equal(t, 256, w.Cap())
	assert.Zero(t, w.Room())
	v.Advance(5)
	b.Advance(10)
	v.Release()
	b.Release()
	assert.Equal(t, "345", string(w.Bytes()))
	assert.Equal(t, 2, p.Outstanding(), "the view and its block")
	w.Release()
	requireBalance(t, p)
}

func TestAppendingToAViewMovesItOut(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(256)
	b.AppendString("0123456789")
	v := b.Slice(2, 3)
	v.AppendString("xyz")
	assert.Equal(t, "234xyz", string(v.Bytes()))
	assert.Equal(t, "0123456789", string(b.Bytes()))
	assert.True(t, b.Exclusive())
	b.Release()
	v.Release()
	requireBalance(t, p)
}

func TestScratchViewCostsNoReference(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(256)
	b.AppendString("0123456789")
	b.Advance(1)
	var s, inner buffer.Buf
	got := b.Scratch(&s, 1, 5)
	assert.Same(t, &s, got)
	assert.Equal(t, "23456", string(s.Bytes()))
	assert.Equal(t, 256, s.Cap())
	assert.Equal(t, 1, p.Outstanding())
	assert.Equal(t, "345", string(s.Scratch(&inner, 1, 3).Bytes()))
	s.Advance(1)
	s.Truncate(3)
	assert.Equal(t, "345", string(s.Bytes()))
	assert.Equal(t, "123456789", string(b.Bytes()), "its indexes are its own")
	s.Release()
	inner.Release()
	assert.Equal(t, "345", string(s.Bytes()), "releasing it does nothing")
	assert.Panics(t, func() { s.AppendByte('x') })
	assert.Panics(t, func() { s.Reserve(0) })
	b.Scratch(&s, 0, 1)
	assert.Equal(t, "1", string(s.Bytes()), "it can be set again")
	b.Release()
	requireBalance(t, p)
}

func TestRetainOfAScratchViewAnswersARealBuf(t *testing.T) {
	for _, how := range []struct {
		name string
		f    func(*buffer.Buf) *buffer.Buf
	}{
		{"Retain", (*buffer.Buf).Retain},
		{"RetainForTurn", (*buffer.Buf).RetainForTurn},
		{"Detach", (*buffer.Buf).Detach},
		{"Slice", func(s *buffer.Buf) *buffer.Buf { return s.Slice(0, s.Len()) }},
	} {
		t.Run(how.name, func(t *testing.T) {
			p := buffer.NewPool(buffer.PoolConfig{})
			b := p.Get(256)
			b.AppendString("0123456789")
			var s, inner buffer.Buf
			kept := how.f(b.Scratch(&s, 1, 4).Scratch(&inner, 1, 2))
			b.Scratch(&s, 5, 5) // the decoder goes on
			b.Scratch(&inner, 5, 5)
			b.Release()
			assert.Equal(t, "23", string(kept.Bytes()))
			kept.AppendString("!")
			assert.Equal(t, "23!", string(kept.Bytes()))
			kept.Release()
			requireBalance(t, p)
		})
	}
}

func TestScratchIntoAnOwnedBufPanics(t *testing.T) {
	b, owned := buffer.Wrap([]byte("abc")), buffer.New(1)
	assert.Panics(t, func() { b.Scratch(owned, 0, 1) })
}

func TestExclusiveTellsTheSoleHolder(t *testing.T) {
	p, l, b := lentBuf(t, 1024)
	assert.True(t, b.Exclusive(), "also when it is lent")
	again := b.RetainForTurn()
	assert.False(t, b.Exclusive())
	again.Release()
	assert.True(t, b.Exclusive())

	v := b.Slice(0, 10)
	assert.False(t, b.Exclusive(), "a view sees the bytes")
	assert.False(t, v.Exclusive(), "the block has another holder")
	b.Release()
	assert.True(t, v.Exclusive())
	w := v.Slice(0, 1)
	assert.False(t, v.Exclusive())
	assert.False(t, w.Exclusive())
	v.Release()
	assert.True(t, w.Exclusive())
	var s buffer.Buf
	assert.False(t, w.Scratch(&s, 0, 1).Exclusive(), "somebody lent the scratch view")
	w.Release()
	assert.Equal(t, 1, l.returned)
	requireBalance(t, p)

	foreign := buffer.Wrap([]byte("abc"))
	assert.False(t, foreign.Exclusive(), "the slice is its owner's")
	assert.False(t, foreign.Slice(0, 1).Exclusive())
	foreign = buffer.Wrap([]byte("abc"))
	foreign.AppendByte('d')
	assert.True(t, foreign.Exclusive(), "it was copied")
}

func TestSameBlockLooksThroughViews(t *testing.T) {
	b, other := buffer.Wrap([]byte("abc")), buffer.Wrap([]byte("abc"))
	v, w := b.Slice(0, 1), b.Slice(2, 1)
	var s buffer.Buf
	for _, x := range []*buffer.Buf{b, v, w, b.Scratch(&s, 0, 2)} {
		assert.True(t, x.SameBlock(b))
		assert.True(t, b.SameBlock(x))
		assert.True(t, x.SameBlock(w))
		assert.False(t, x.SameBlock(other))
	}
	v.AppendByte('d')
	assert.False(t, v.SameBlock(b), "it moved out")
}

func TestDetachOutsideALenderAnswersTheSame(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(1024)
	b.AppendString("x")
	assert.Same(t, b, b.Detach())
	v := b.Slice(0, 1)
	assert.Same(t, v, v.Detach())
	v.Release()
	b.Release()
	requireBalance(t, p)
}

func TestLendNeedsABlockOfThePoolsSizes(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	l := newLender(p, 256)
	for _, n := range []int{0, 1, 255, 257, 1000, 1<<20 - 1, 1<<20 + 1, 1 << 21} {
		assert.Panics(t, func() { p.Lend(l, make([]byte, n)) }, n)
		assert.Panics(t, func() { p.PutBlock(make([]byte, n)) }, n)
	}
	for _, n := range []int{256, 16 << 10, 1 << 20} {
		b := p.Lend(l, make([]byte, n, 2*n))
		assert.Equal(t, n, b.Room())
		b.Release()
	}
	for _, n := range []int{-1, 0, 1<<20 + 1} {
		assert.Panics(t, func() { p.Block(n) }, n)
	}
	requireBalance(t, p)
}
