//go:build invariants

package buffer_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
)

var poisoned = bytes.Repeat([]byte{0xDB}, 16)

// takesAndForgets is here for its name.
func takesAndForgets(p *buffer.Pool) *buffer.Buf { return p.Get(10) }

func releases(b *buffer.Buf) { b.Release() }

func TestReleasedBytesArePoisoned(t *testing.T) {
	for _, kind := range []string{"pool", "heap", "lent", "view"} {
		t.Run(kind, func(t *testing.T) {
			b := source(kind, 16)
			stale := b.Bytes()
			b.Release()
			assert.Equal(t, poisoned, stale)
		})
	}
}

func TestBytesThatMovedArePoisoned(t *testing.T) {
	for _, kind := range []string{"pool", "heap", "lent", "view"} {
		t.Run(kind, func(t *testing.T) {
			b := source(kind, 16)
			stale := b.Bytes()
			b.Reserve(1 << 20)
			assert.Equal(t, poisoned, stale)
			assert.Equal(t, pattern(16), b.Bytes())
			b.Release()
		})
	}
}

func TestUseAfterReleasePanicsAndNamesBoth(t *testing.T) {
	var s buffer.Buf
	for _, tc := range []struct {
		name string
		f    func(b *buffer.Buf)
	}{
		{"Bytes", func(b *buffer.Buf) { b.Bytes() }},
		{"Len", func(b *buffer.Buf) { b.Len() }},
		{"Cap", func(b *buffer.Buf) { b.Cap() }},
		{"Room", func(b *buffer.Buf) { b.Room() }},
		{"Tail", func(b *buffer.Buf) { b.Tail() }},
		{"Extend", func(b *buffer.Buf) { b.Extend(0) }},
		{"Advance", func(b *buffer.Buf) { b.Advance(0) }},
		{"Truncate", func(b *buffer.Buf) { b.Truncate(0) }},
		{"Append", func(b *buffer.Buf) { b.Append(nil) }},
		{"AppendString", func(b *buffer.Buf) { b.AppendString("") }},
		{"AppendByte", func(b *buffer.Buf) { b.AppendByte(0) }},
		{"Write", func(b *buffer.Buf) { _, _ = b.Write(nil) }},
		{"Reserve", func(b *buffer.Buf) { b.Reserve(0) }},
		{"Shrink", func(b *buffer.Buf) { b.Shrink() }},
		{"Exclusive", func(b *buffer.Buf) { b.Exclusive() }},
		{"Retain", func(b *buffer.Buf) { b.Retain() }},
		{"RetainForTurn", func(b *buffer.Buf) { b.RetainForTurn() }},
		{"Detach", func(b *buffer.Buf) { b.Detach() }},
		{"Slice", func(b *buffer.Buf) { b.Slice(0, 0) }},
		{"Scratch", func(b *buffer.Buf) { b.Scratch(&s, 0, 0) }},
		{"Release", func(b *buffer.Buf) { b.Release() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := buffer.NewPool(buffer.PoolConfig{})
			b := takesAndForgets(p)
			releases(b)
			got := panicOf(func() { tc.f(b) })
			assert.Contains(t, got, "after the last Release")
			assert.Contains(t, got, "Get at github.com/weirnet/weir/buffer_test.takesAndForgets:")
			assert.Contains(t, got, "last Release at github.com/weirnet/weir/buffer_test.releases:")
			p.Get(10).Release()
			assert.NotEmpty(t, panicOf(func() { tc.f(b) }), "its header is not used again")
		})
	}
}

func TestUseOfAScratchViewAfterItsBlockPanics(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := takesAndForgets(p)
	b.AppendString("abc")
	var s buffer.Buf
	b.Scratch(&s, 0, 3)
	releases(b)
	for _, f := range []func(){
		func() { s.Bytes() }, func() { s.Retain() }, func() { s.Slice(0, 1) }, func() { s.Advance(1) },
	} {
		got := panicOf(f)
		assert.Contains(t, got, "view of a released Buf")
		assert.Contains(t, got, "buffer_test.releases:")
	}
}

func TestUseOfAHeapBufAfterReleaseNamesWhoMadeIt(t *testing.T) {
	for name, b := range map[string]*buffer.Buf{"New": buffer.New(1), "Wrap": buffer.Wrap([]byte("x"))} {
		releases(b)
		got := panicOf(func() { b.Bytes() })
		assert.Contains(t, got, name+" at github.com/weirnet/weir/buffer_test.TestUseOfAHeapBuf")
		assert.Contains(t, got, "buffer_test.releases:")
	}
}

func TestLeaksNameTheCodeThatTookTheBufs(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	require.Empty(t, p.Leaks())
	first := takesAndForgets(p)
	released := p.Get(1)
	second := released.Slice(0, 0)
	third := newLender(p, 256).lend()
	again := third.RetainForTurn()
	released.Release()

	leaks := p.Leaks()
	require.Len(t, leaks, 4)
	assert.Contains(t, leaks[0], "Get at github.com/weirnet/weir/buffer_test.takesAndForgets:")
	assert.Contains(t, leaks[1], "Get at github.com/weirnet/weir/buffer_test.TestLeaksName")
	assert.Contains(t, leaks[2], "Slice at github.com/weirnet/weir/buffer_test.TestLeaksName")
	assert.Contains(t, leaks[3], "Lend at github.com/weirnet/weir/buffer_test.(*lender).lend:")
	assert.Contains(t, leaks[3], "Retain at github.com/weirnet/weir/buffer_test.TestLeaksName")
	for _, b := range []*buffer.Buf{first, second, third, again} {
		b.Release()
	}
	requireBalance(t, p)
}

func TestHistoryIsBoundedAndKeepsFirstAndLast(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := takesAndForgets(p)
	for range 100 {
		b.Retain()
	}
	for range 100 {
		b.Release()
	}
	releases(b)
	got := panicOf(func() { b.Bytes() })
	assert.Contains(t, got, "takesAndForgets")
	assert.Contains(t, got, "last Release")
	assert.Less(t, len(got), 8192)
}

func TestWriteIntoAFreeBlockIsNoticed(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := p.Get(256)
	b.AppendString("abc")
	stale := b.Bytes()
	b.Release()
	stale[1] = 'X'
	assert.Contains(t, panicOf(func() { p.Get(256) }), "byte 1 of a block of 256 was written")
}

func TestReclaimOfAHeldBufPanics(t *testing.T) {
	p := buffer.NewPool(buffer.PoolConfig{})
	b := newLender(p, 256).lend()
	assert.Contains(t, panicOf(func() { p.Reclaim(b) }), "Reclaim")
}

// panicOf returns what f panicked with.
func panicOf(f func()) (message string) {
	defer func() {
		if v := recover(); v != nil {
			message = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}
