package buffer_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/invariants"
)

var sink int

// steady are the operations that must not allocate once the pool is warm; benchmarks run the same.
var steady = []struct {
	name string
	make func() func()
}{
	{"op=GetAppendRelease", func() func() {
		p, data := buffer.NewPool(buffer.PoolConfig{}), make([]byte, 1000)
		return func() {
			b := p.Get(1000)
			b.Append(data)
			b.Release()
		}
	}},
	{"op=RetainRelease", func() func() {
		b := buffer.NewPool(buffer.PoolConfig{}).Get(1000)
		return func() { b.Retain().Release() }
	}},
	{"op=SliceRelease", func() func() {
		b := buffer.NewPool(buffer.PoolConfig{}).Get(1000)
		b.Append(make([]byte, 100))
		return func() { b.Slice(10, 50).Release() }
	}},
	{"op=Scratch", func() func() {
		b, s := buffer.NewPool(buffer.PoolConfig{}).Get(1000), new(buffer.Buf)
		b.Append(make([]byte, 100))
		return func() { sink += b.Scratch(s, 10, 50).Len() }
	}},
	{"op=ScratchRetainRelease", func() func() {
		b, s := buffer.NewPool(buffer.PoolConfig{}).Get(1000), new(buffer.Buf)
		b.Append(make([]byte, 100))
		return func() { b.Scratch(s, 10, 50).Retain().Release() }
	}},
	{"op=Grow", func() func() {
		p, data := buffer.NewPool(buffer.PoolConfig{}), make([]byte, 200)
		return func() {
			b := p.Get(0)
			for range 10 {
				b.Append(data)
			}
			b.Release()
		}
	}},
	{"op=LendReturn", func() func() {
		p := buffer.NewPool(buffer.PoolConfig{})
		l := newLender(p, 16<<10)
		return func() { l.lend().Release() }
	}},
	{"op=LendCopySmall", func() func() {
		p := buffer.NewPool(buffer.PoolConfig{})
		l := newLender(p, 16<<10)
		return func() {
			b := l.lend()
			b.Extend(64)
			b.Detach().Release()
		}
	}},
	{"op=LendLeave", func() func() {
		p := buffer.NewPool(buffer.PoolConfig{})
		l := newLender(p, 16<<10)
		return func() {
			b := l.lend()
			b.Extend(16 << 10)
			b.Detach().Release()
		}
	}},
	{"op=Shrink", func() func() {
		p := buffer.NewPool(buffer.PoolConfig{})
		return func() {
			b := p.Get(64 << 10)
			b.Extend(100)
			b.Shrink()
			b.Release()
		}
	}},
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds keep histories")
	}
	for _, tc := range steady {
		t.Run(tc.name, func(t *testing.T) {
			assert.Zero(t, testing.AllocsPerRun(1000, tc.make()))
		})
	}
}

func BenchmarkBuf(b *testing.B) {
	for _, tc := range steady {
		b.Run(tc.name, func(b *testing.B) {
			f := tc.make()
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, tc := range []struct {
		name string
		size int
	}{{"size=8", 8}, {"size=64", 64}, {"size=1024", 1024}} {
		b.Run(tc.name, func(b *testing.B) {
			p, data := buffer.NewPool(buffer.PoolConfig{}), make([]byte, tc.size)
			buf := p.Get(64 << 10)
			b.SetBytes(int64(tc.size))
			b.ReportAllocs()
			for b.Loop() {
				if buf.Room() < tc.size {
					buf.Advance(buf.Len())
					buf.Reserve(64 << 10)
				}
				buf.Append(data)
			}
		})
	}
}
