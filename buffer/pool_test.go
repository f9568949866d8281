package buffer_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
)

func TestBlocksArePowersOfTwo(t *testing.T) {
	for _, tc := range []struct{ n, pooled int }{
		{0, 256},
		{1, 256},
		{255, 256},
		{256, 256},
		{257, 512},
		{511, 512},
		{512, 512},
		{513, 1024},
		{16<<10 - 1, 16 << 10},
		{16 << 10, 16 << 10},
		{16<<10 + 1, 32 << 10},
		{1<<20 - 1, 1 << 20},
		{1 << 20, 1 << 20},
		{1<<20 + 1, 1<<20 + 1}, // from the Go heap, exactly
		{3 << 20, 3 << 20},
	} {
		p := buffer.NewPool(buffer.PoolConfig{})
		b := p.Get(tc.n)
		assert.Equal(t, tc.pooled, b.Cap(), tc.n)
		assert.Equal(t, tc.pooled, b.Room(), tc.n)
		assert.Equal(t, tc.pooled, p.OutstandingBytes(), tc.n)
		b.Release()
		if tc.n <= 1<<20 {
			assert.Equal(t, tc.pooled, p.FreeBytes(), tc.n)
		} else {
			assert.Zero(t, p.FreeBytes(), "large blocks are the garbage collector's")
		}
		requireBalance(t, p)
	}
	assert.Panics(t, func() { buffer.NewPool(buffer.PoolConfig{}).Get(-1) })
}

func TestReleasedBlocksAreUsedAgain(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(1000)
	b.AppendByte(1)
	at := first(b)
	b.Release()
	b = p.Get(600)
	b.AppendByte(1)
	assert.Same(t, at, first(b))
	assert.Zero(t, p.FreeBytes())
	b.Release()
}

func TestMaxFreeBytesBoundsWhatIsKept(t *testing.T) {
	for _, tc := range []struct {
		name string
		max  int
		want int // kept of four blocks of 1024 bytes
	}{
		{"nothing", -1, 0},
		{"less than a block", 1023, 0},
		{"one block", 1024, 1024},
		{"just below the limit", 3*1024 - 1, 2 * 1024},
		{"at the limit", 3 * 1024, 3 * 1024},
		{"just above the limit", 3*1024 + 1, 3 * 1024},
		{"all", 4 * 1024, 4 * 1024},
		{"the default", 0, 4 * 1024},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := buffer.NewPool(buffer.PoolConfig{MaxFreeBytes: tc.max})
			var held []*buffer.Buf
			for range 4 {
				held = append(held, p.Get(1024))
			}
			assert.Equal(t, 4096, p.OutstandingBytes())
			for _, b := range held {
				b.Release()
			}
			assert.Equal(t, tc.want, p.FreeBytes())
			requireBalance(t, p)
		})
	}
}

func TestDefaultOfMaxFreeBytesIs32MiB(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	var held []*buffer.Buf
	for range 33 {
		held = append(held, p.Get(1<<20))
	}
	for i, b := range held {
		b.Release()
		require.Equal(t, min(i+1, 32)<<20, p.FreeBytes())
	}
}

func TestOutstandingCountsViewsAndBlocks(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(256)
	v := b.Slice(0, 0)
	assert.Equal(t, 2, p.Outstanding())
	assert.Equal(t, 256, p.OutstandingBytes())
	l := newLender(p, 512)
	lent := l.lend()
	assert.Equal(t, 3, p.Outstanding())
	assert.Equal(t, 256+512, p.OutstandingBytes())
	lent.Release()
	assert.Equal(t, 256, p.OutstandingBytes())
	b.Release()
	assert.Equal(t, 2, p.Outstanding(), "the view holds its block")
	v.Release()
	requireBalance(t, p)
}

func TestNilPoolUsesTheHeap(t *testing.T) {
	var p *buffer.Pool
	b := p.Get(10)
	assert.Equal(t, 10, b.Cap())
	b.AppendString("0123456789ab")
	v := b.Slice(2, 3)
	kept := v.Retain()
	var s buffer.Buf
	real := b.Scratch(&s, 0, 2).Retain()
	b.Release()
	v.Release()
	kept.AppendString("!")
	assert.Equal(t, "234!", string(kept.Bytes()))
	assert.Equal(t, "01", string(real.Bytes()))
	real.Shrink()
	assert.Equal(t, 2, real.Cap())
	real.Release()
	kept.Release()
}

// Two pools must not mix: what a pool handed out comes back to it, also by way of views and growth.
func TestMemoryReturnsToItsOwnPool(t *testing.T) {
	p, q := buffer.NewPool(buffer.PoolConfig{}), buffer.NewPool(buffer.PoolConfig{})
	b, c := p.Get(256), q.Get(256)
	b.Append(pattern(256))
	c.Append(pattern(256))
	v := b.Slice(0, 10)
	v.AppendString("x")
	c.AppendString("x")
	assert.Equal(t, 2, p.Outstanding())
	assert.Equal(t, 1, q.Outstanding())
	for _, x := range []*buffer.Buf{b, v, c} {
		x.Release()
	}
	requireBalance(t, p)
	requireBalance(t, q)
	assert.Equal(t, 512, p.FreeBytes())
	assert.Equal(t, 256+512, q.FreeBytes())
}
