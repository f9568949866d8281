package buffer_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
)

func TestNewBufIsEmptyAndHasRoom(t *testing.T) {
	b := buffer.New(10)
	assert.Empty(t, b.Bytes())
	assert.Equal(t, 0, b.Len())
	assert.Equal(t, 10, b.Cap())
	assert.Equal(t, 10, b.Room())
	assert.Len(t, b.Tail(), 10)
	b.Release()
}

func TestAppendedBytesAreReadableInOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		pool *buffer.Pool
	}{{"pool", buffer.NewPool(buffer.PoolConfig{})}, {"nil pool", nil}} {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.pool.Get(0)
			b.Append([]byte("one "))
			b.AppendString("two ")
			b.AppendByte('3')
			n, err := b.Write([]byte(" four"))
			require.NoError(t, err)
			assert.Equal(t, 5, n)
			m := copy(b.Tail(), "")
			b.Extend(m)
			assert.Equal(t, "one two 3 four", string(b.Bytes()))
			b.Advance(4)
			assert.Equal(t, "two 3 four", string(b.Bytes()))
			b.Truncate(5)
			assert.Equal(t, "two 3", string(b.Bytes()))
			b.AppendString("!")
			assert.Equal(t, "two 3!", string(b.Bytes()))
			b.Release()
		})
	}
}

func TestExtendMakesReadableWhatWasWrittenToTail(t *testing.T) {
	b := buffer.New(8)
	copy(b.Tail(), "abcdefgh")
	b.Extend(3)
	assert.Equal(t, "abc", string(b.Bytes()))
	assert.Equal(t, 5, b.Room())
	b.Extend(5)
	assert.Equal(t, "abcdefgh", string(b.Bytes()))
	assert.Empty(t, b.Tail())
}

func TestIndexesOutOfRangePanic(t *testing.T) {
	with := func(f func(b *buffer.Buf)) func() {
		return func() {
			b := buffer.New(8)
			b.AppendString("12345")
			f(b)
		}
	}
	for _, tc := range []struct {
		name string
		bad  bool
		f    func(b *buffer.Buf)
	}{
		{"Advance all", false, func(b *buffer.Buf) { b.Advance(5) }},
		{"Advance beyond", true, func(b *buffer.Buf) { b.Advance(6) }},
		{"Advance negative", true, func(b *buffer.Buf) { b.Advance(-1) }},
		{"Truncate to all", false, func(b *buffer.Buf) { b.Truncate(5) }},
		{"Truncate beyond", true, func(b *buffer.Buf) { b.Truncate(6) }},
		{"Truncate negative", true, func(b *buffer.Buf) { b.Truncate(-1) }},
		{"Extend by the room", false, func(b *buffer.Buf) { b.Extend(3) }},
		{"Extend beyond", true, func(b *buffer.Buf) { b.Extend(4) }},
		{"Extend negative", true, func(b *buffer.Buf) { b.Extend(-1) }},
		{"Slice all", false, func(b *buffer.Buf) { b.Slice(0, 5) }},
		{"Slice nothing at the end", false, func(b *buffer.Buf) { b.Slice(5, 0) }},
		{"Slice beyond", true, func(b *buffer.Buf) { b.Slice(1, 5) }},
		{"Slice from beyond", true, func(b *buffer.Buf) { b.Slice(6, 0) }},
		{"Slice negative offset", true, func(b *buffer.Buf) { b.Slice(-1, 1) }},
		{"Slice negative length", true, func(b *buffer.Buf) { b.Slice(1, -1) }},
		{"Slice that overflows", true, func(b *buffer.Buf) { b.Slice(math.MaxInt, 1) }},
		{"Slice of a length that overflows", true, func(b *buffer.Buf) { b.Slice(1, math.MaxInt) }},
		{"Scratch all", false, func(b *buffer.Buf) { b.Scratch(new(buffer.Buf), 0, 5) }},
		{"Scratch beyond", true, func(b *buffer.Buf) { b.Scratch(new(buffer.Buf), 1, 5) }},
		{"Scratch negative offset", true, func(b *buffer.Buf) { b.Scratch(new(buffer.Buf), -1, 1) }},
		{"Scratch negative length", true, func(b *buffer.Buf) { b.Scratch(new(buffer.Buf), 1, -1) }},
		{"Scratch that overflows", true, func(b *buffer.Buf) { b.Scratch(new(buffer.Buf), math.MaxInt, 1) }},
		{"Reserve nothing", false, func(b *buffer.Buf) { b.Reserve(0) }},
		{"Reserve negative", true, func(b *buffer.Buf) { b.Reserve(-1) }},
		{"Reserve that overflows", true, func(b *buffer.Buf) { b.Reserve(math.MaxInt) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.bad {
				assert.Panics(t, with(tc.f))
			} else {
				assert.NotPanics(t, with(tc.f))
			}
		})
	}
}

func TestBytesCannotBeAppendedIntoTheBlock(t *testing.T) {
	b := buffer.New(8)
	b.AppendString("abcd")
	b.AppendString("efgh")
	b.Truncate(4)
	_ = append(b.Bytes(), "XXXX"...)
	copy(b.Tail(), "")
	b.Extend(4)
	assert.Equal(t, "abcdefgh", string(b.Bytes()))
}

func TestReserveKeepsBytesAndMakesRoom(t *testing.T) {
	for _, size := range []int{0, 1, 255, 256, 257, 4096, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
		for _, consumed := range []int{0, 1, size / 2, size - 1, size} {
			if consumed < 0 || consumed > size {
				continue
			}
			for _, n := range []int{0, 1, 256, size, 3 * size} {
				p := buffer.NewPool(buffer.PoolConfig{})
				b := p.Get(size)
				want := pattern(size)
				b.Append(want)
				b.Advance(consumed)
				b.Reserve(n)
				require.GreaterOrEqual(t, b.Room(), n, "size %d consumed %d n %d", size, consumed, n)
				require.True(t, bytes.Equal(want[consumed:], b.Bytes()), "size %d consumed %d n %d", size, consumed, n)
				require.Equal(t, b.Cap(), p.OutstandingBytes())
				b.Release()
				require.Zero(t, p.OutstandingBytes())
				require.Zero(t, p.Outstanding())
			}
		}
	}
}

func TestReserveWithRoomDoesNotMove(t *testing.T) {
	b := buffer.New(100)
	b.AppendString("x")
	at := &b.Bytes()[0]
	b.Reserve(99)
	assert.Same(t, at, &b.Bytes()[0])
}

func TestReserveUsesConsumedSpaceOfTheBlock(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(256)
	b.Append(pattern(256))
	b.Advance(200)
	b.Reserve(200)
	assert.Equal(t, 256, b.Cap())
	assert.Equal(t, pattern(256)[200:], b.Bytes())
	b.Release()
}

// Appending must stay linear however appends and consumption alternate: the bytes copied by moves are at most a small
// multiple of the bytes appended.
func TestAppendAndAdvanceCopyLinearly(t *testing.T) {
	for _, tc := range []struct {
		name    string
		start   int // bytes there before
		app, ad int // appended and consumed per round
		rounds  int
	}{
		{"bytes one by one", 0, 1, 0, 70_000},
		{"small pieces", 0, 100, 0, 10_000},
		{"beyond the largest block", 2 << 20, 1000, 0, 3000},
		{"a full block that moves slowly", 1<<20 - 100, 10, 10, 10_000},
		{"a full small block that moves slowly", 250, 1, 1, 20_000},
		{"a queue that runs empty", 0, 1000, 1000, 5_000},
		{"a queue that grows slowly", 1000, 100, 99, 10_000},
		{"a queue that shrinks slowly", 100_000, 99, 100, 10_000},
	} {
		for _, from := range []string{"pool", "heap", "view", "wrap", "lent"} {
			t.Run(tc.name+"/"+from, func(t *testing.T) {
				b := source(from, tc.start)
				start := b.Cap()
				at := first(b)
				copied, appended := 0, tc.start
				piece := pattern(tc.app)
				for range tc.rounds {
					before := b.Len()
					b.Append(piece)
					appended += tc.app
					if first(b) != at {
						copied += before
					}
					b.Advance(tc.ad)
					at = first(b)
				}
				assert.LessOrEqual(t, copied, 4*appended)
				assert.LessOrEqual(t, b.Cap(), max(start, 8*max(b.Len(), tc.app, 256)), "memory for %d bytes", b.Len())
				b.Release()
			})
		}
	}
}

// source returns a Buf of n readable bytes that lives in the given sort of memory.
func source(kind string, n int) *buffer.Buf {
	p := buffer.NewPool(buffer.PoolConfig{})
	switch kind {
	case "heap":
		p = nil
	case "wrap":
		return buffer.Wrap(pattern(n))
	case "view":
		root := p.Get(n)
		root.Append(pattern(n))
		v := root.Slice(0, n)
		root.Release()
		return v
	case "lent":
		l := newLender(p, 1<<14)
		b := l.lend()
		b.Append(pattern(min(n, 1<<14)))
		b.Append(pattern(n - min(n, 1<<14)))
		return b
	}
	b := p.Get(n)
	b.Append(pattern(n))
	return b
}

// first is the address of the block's byte that is read first; it changes when the bytes move.
func first(b *buffer.Buf) *byte {
	if b.Len() == 0 {
		return nil
	}
	return &b.Bytes()[0]
}

func TestSharedBufMustNotGrow(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(256)
	b.Append(pattern(256))
	again := b.Retain()
	assert.Panics(t, func() { b.Append([]byte("x")) })
	assert.Panics(t, func() { b.AppendString("x") })
	assert.Panics(t, func() { b.AppendByte('x') })
	assert.Panics(t, func() { b.Reserve(0) }, "also when there is room")
	again.Release()
	v := b.Slice(0, 1)
	assert.Panics(t, func() { b.AppendByte('x') }, "a view holds it, too")
	v.Release()
	b.AppendByte('x')
	assert.Equal(t, 257, b.Len())
	b.Release()
}

func TestAppendToASharedBufLeavesViewsAlone(t *testing.T) {
	b := buffer.New(16)
	b.AppendString("abcdef")
	v := b.Slice(1, 3)
	b.AppendString("ghi") // there is room
	assert.Equal(t, "bcd", string(v.Bytes()))
	assert.Equal(t, "abcdefghi", string(b.Bytes()))
	b.Truncate(2)
	assert.Zero(t, b.Room(), "the view looks at what was cut off")
	assert.Panics(t, func() { b.AppendString("XXX") })
	v.Release()
	b.AppendString("XXX")
	assert.Equal(t, "abXXX", string(b.Bytes()))
}

func TestTruncatedByTheSoleHolderKeepsItsRoom(t *testing.T) {
	b := buffer.New(16)
	b.AppendString("abcdef")
	at := first(b)
	b.Truncate(2)
	assert.Equal(t, 14, b.Room())
	b.AppendString("XY")
	assert.Equal(t, "abXY", string(b.Bytes()))
	assert.Same(t, at, first(b))
}

func TestWrappedSliceIsNeverWrittenTo(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    func(b *buffer.Buf)
	}{
		{"append", func(b *buffer.Buf) { b.AppendString("XXXX") }},
		{"append after truncate", func(b *buffer.Buf) { b.Truncate(2); b.AppendString("XXXX") }},
		{"append after truncate to nothing", func(b *buffer.Buf) { b.Truncate(0); b.AppendByte('X') }},
		{"append after advance", func(b *buffer.Buf) { b.Advance(5); b.AppendString("X") }},
		{"reserve after truncate", func(b *buffer.Buf) { b.Truncate(2); b.Reserve(3); copy(b.Tail(), "XXX") }},
		{"tail after truncate", func(b *buffer.Buf) { b.Truncate(2); copy(b.Tail(), "XXXX") }},
		{"append to a view", func(b *buffer.Buf) {
			v := b.Slice(0, 2)
			v.AppendString("XXXX")
			v.Release()
		}},
		{"append to the last view", func(b *buffer.Buf) {
			v := b.Retain().Slice(1, 2)
			b.Release()
			v.AppendString("XXXX")
			v.Release()
		}},
		{"shrink", func(b *buffer.Buf) { b.Advance(4); b.Shrink(); b.AppendString("XXXX") }},
		{"release", func(*buffer.Buf) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := []byte("abcdefgh")
			b := buffer.Wrap(p[:6])
			tc.f(b)
			b.Release()
			assert.Equal(t, "abcdefgh", string(p))
		})
	}
}

func TestShrinkMovesWhatFillsLessThanHalf(t *testing.T) {
	for _, tc := range []struct {
		name               string
		capacity, have, to int
	}{
		{"half full stays", 1024, 512, 1024},
		{"just below half moves", 1024, 511, 512},
		{"little moves", 65536, 10, 256},
		{"nothing left moves", 65536, 0, 256},
		{"the smallest block stays", 256, 1, 256},
		{"below half of a size that needs the same block", 512, 257, 512},
		{"larger than every block", 3 << 20, 100, 256},
		{"large to large", 5 << 20, 2 << 20, 2 << 20},
	} {
		for _, kind := range []string{"root", "view"} {
			t.Run(tc.name+"/"+kind, func(t *testing.T) {
				p := buffer.NewPool(buffer.PoolConfig{})
				b := p.Get(tc.capacity)
				want := pattern(tc.capacity)
				b.Append(want)
				if kind == "view" {
					v := b.Slice(tc.capacity-tc.have, tc.have)
					b.Release()
					b = v
				} else {
					b.Advance(tc.capacity - tc.have)
				}
				b.Shrink()
				assert.Equal(t, tc.to, b.Cap())
				assert.Equal(t, tc.to, p.OutstandingBytes())
				assert.True(t, bytes.Equal(want[tc.capacity-tc.have:], b.Bytes()))
				b.Release()
				assert.Zero(t, p.Outstanding())
				assert.Zero(t, p.OutstandingBytes())
			})
		}
	}
}

func TestShrinkLeavesWhatOthersHold(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(4096)
	b.AppendString("abc")
	again := b.Retain()
	b.Shrink()
	assert.Equal(t, 4096, b.Cap())
	again.Release()

	var s buffer.Buf
	b.Scratch(&s, 0, 1).Shrink()
	assert.Equal(t, 4096, s.Cap())

	b.Shrink()
	assert.Equal(t, 256, b.Cap())
	b.Release()

	l := newLender(p, 4096)
	lent := l.lend()
	lent.AppendString("abc")
	lent.Shrink()
	assert.Equal(t, 4096, lent.Cap(), "a lent block is Detach's business")
	v := lent.Slice(0, 1)
	v.Shrink()
	assert.Equal(t, 4096, v.Cap())
	v.Release()
	lent.Release()
	assert.Equal(t, 1, l.returned)
}

func TestShrinkOnTheHeap(t *testing.T) {
	b := buffer.New(1000)
	b.Append(pattern(1000))
	b.Advance(900)
	b.Shrink()
	assert.Equal(t, 100, b.Cap())
	assert.Equal(t, pattern(1000)[900:], b.Bytes())
	b.Release()
}

// pattern returns n bytes of which no two neighbouring blocks are equal.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return p
}
