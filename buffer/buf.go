// Package buffer holds byte buffers with a reference count, and per-loop pools of them.
//
// A Buf belongs to one event loop: its count is not atomic and no method may be called from another goroutine. Every
// function that takes a Buf states what becomes of it with one of four phrases: "borrows until return", "takes ownership
// (also on error)", "retains: takes its own reference, the caller keeps its own" and "returns owned".
package buffer

import (
	"fmt"

	"github.com/weirnet/weir/internal/invariants"
)

// A Lender is a transport that lends the blocks it receives into. Its methods run on the loop's goroutine.
type Lender interface {
	// Returned is called when the last reference to a lent Buf is gone: the block is the lender's again.
	Returned(b *Buf)
	// Left is called when somebody keeps a lent Buf past its turn: the memory now belongs to its holders and goes to
	// the lender's pool in the end, so the lender needs another block.
	Left(b *Buf)
}

// Buf is a run of bytes inside a block of memory: [0,r) is consumed, [r,w) is readable, [w,cap) is room. It belongs to
// one event loop.
type Buf struct {
	mem    []byte // the block, len == cap
	r, w   int
	refs   int32
	class  int8 // index of the pool's size class; classNone: not pooled
	scr    bool // a scratch view, see Scratch
	pool   *Pool
	lender Lender // non-nil while the block is lent
	parent *Buf   // a view: whose memory this is, one reference held (none for a scratch view)
	debug  *record
}

// New returns owned: an empty Buf of the given capacity on the Go heap, outside any pool.
func New(capacity int) *Buf {
	return &Buf{mem: make([]byte, capacity), refs: 1, class: classNone}
}

// Wrap returns owned: a Buf whose readable bytes are p, which must not change while the Buf lives. Appending to it
// copies.
func Wrap(p []byte) *Buf {
	return &Buf{mem: p[:len(p):len(p)], w: len(p), refs: 1, class: classNone}
}

// Bytes are the readable bytes. They alias the block: valid until the Buf is released, appended to or, for a borrowed
// Buf, until the borrower returns; call Bytes again on what Retain answered.
func (b *Buf) Bytes() []byte {
	b.check("Bytes")
	return b.mem[b.r:b.w]
}

// Len is the number of readable bytes.
func (b *Buf) Len() int { return b.w - b.r }

// Cap is the size of the memory this Buf keeps alive in bytes: its block's size, for a view the size of the block it
// looks into. Pending bytes are counted by it.
func (b *Buf) Cap() int {
	if b.parent != nil {
		return b.parent.Cap()
	}
	return len(b.mem)
}

// Room is the number of bytes that can be appended without growing.
func (b *Buf) Room() int {
	if b.parent != nil {
		return 0
	}
	return len(b.mem) - b.w
}

// Advance consumes the first n readable bytes. It panics when there are fewer: a programmer's error.
func (b *Buf) Advance(n int) {
	b.check("Advance")
	if n < 0 || n > b.w-b.r {
		panic(fmt.Sprintf("buffer: Advance(%d) with %d readable bytes", n, b.w-b.r))
	}
	b.r += n
}

// Truncate keeps the first n readable bytes. It panics when there are fewer.
func (b *Buf) Truncate(n int) {
	b.check("Truncate")
	if n < 0 || n > b.w-b.r {
		panic(fmt.Sprintf("buffer: Truncate(%d) with %d readable bytes", n, b.w-b.r))
	}
	b.w = b.r + n
}

// Tail is the room behind the readable bytes; write into it, then Extend.
func (b *Buf) Tail() []byte {
	b.check("Tail")
	if b.parent != nil {
		return nil
	}
	return b.mem[b.w:]
}

// Extend makes n bytes written into Tail readable. It panics when there is less room.
func (b *Buf) Extend(n int) {
	b.check("Extend")
	if n < 0 || n > b.Room() {
		panic(fmt.Sprintf("buffer: Extend(%d) with room for %d bytes", n, b.Room()))
	}
	b.w += n
}

// Append copies p behind the readable bytes and grows the block when there is no room.
func (b *Buf) Append(p []byte) {
	b.check("Append")
	if len(p) > b.Room() {
		b.Reserve(len(p))
	}
	b.w += copy(b.mem[b.w:], p)
}

// AppendString is Append for a string.
func (b *Buf) AppendString(s string) {
	b.check("AppendString")
	if len(s) > b.Room() {
		b.Reserve(len(s))
	}
	b.w += copy(b.mem[b.w:], s)
}

// AppendByte is Append for one byte.
func (b *Buf) AppendByte(c byte) {
	b.check("AppendByte")
	if b.Room() < 1 {
		b.Reserve(1)
	}
	b.mem[b.w] = c
	b.w++
}

// Write is Append as an io.Writer; it never fails.
func (b *Buf) Write(p []byte) (int, error) {
	b.Append(p)
	return len(p), nil
}

// Reserve makes room for n more bytes: it moves the readable bytes to the front or into a larger block. Only the sole
// holder may grow a Buf; growing one that others hold panics.
func (b *Buf) Reserve(n int) {
	b.check("Reserve")
	if n < 0 || b.scr || b.refs != 1 {
		panic(fmt.Sprintf("buffer: Reserve(%d) on a Buf with %d references", n, b.refs))
	}
	if b.Room() >= n {
		return
	}
	need := b.Len() + n
	owned := b.parent == nil && b.lender == nil && b.class != classNone
	if owned && need <= len(b.mem) && b.r >= b.Len() {
		b.w = copy(b.mem, b.mem[b.r:b.w])
		b.r = 0
		return
	}
	b.move(need)
}

// move copies the readable bytes into memory of at least n bytes that only this Buf refers to.
func (b *Buf) move(n int) {
	if b.parent == nil && n < 2*len(b.mem) && n > len(b.mem) {
		n = 2 * len(b.mem) // appending stays linear
	}
	fresh := b.home().block(n)
	w := copy(fresh.mem, b.mem[b.r:b.w])
	b.dropMemory()
	b.mem, b.class, b.pool = fresh.mem, fresh.class, fresh.pool
	b.r, b.w = 0, w
	fresh.recycleHeader()
}

// home is the pool that new memory for b comes from; nil is the heap.
func (b *Buf) home() *Pool {
	if b.pool == nil && b.parent != nil {
		return b.parent.home()
	}
	return b.pool
}

// dropMemory gives back what b's bytes live in and leaves b without memory.
func (b *Buf) dropMemory() {
	switch {
	case b.parent != nil:
		parent := b.parent
		b.parent = nil
		parent.Release()
	case b.lender != nil:
		// The header stays with its holder, so the lender gets the block back under a header of its own.
		lent := b.pool.header()
		lent.mem, lent.class, lent.lender = b.mem, b.class, b.lender
		b.lender = nil
		lent.lender.Returned(lent)
	case b.pool != nil:
		b.pool.give(b.mem, b.class)
	}
	b.mem = nil
}

// Retain answers a Buf that the caller owns and may keep for as long as it likes, also past this turn. It is b itself
// with one more reference, or, when b is a lent block less than half full or a scratch view, another Buf with the same
// bytes: use what it answers.
func (b *Buf) Retain() *Buf {
	return b.RetainForTurn().Detach()
}

// RetainForTurn answers a Buf that the caller owns until the end of this turn of the loop; before it ends, the caller
// releases it or replaces it by what Detach answers. It never copies: what is written and sent within a turn needs no more.
func (b *Buf) RetainForTurn() *Buf {
	b.check("Retain")
	if b.scr {
		return b.parent.view(b.r, b.w, b.mem)
	}
	b.refs++
	b.note("Retain")
	return b
}

// Detach takes ownership and returns owned: a Buf with the same bytes that may outlive the turn. A lent block leaves its
// lender, unless it is less than half full and its bytes are copied into a smaller block.
func (b *Buf) Detach() *Buf {
	b.check("Detach")
	root := b
	if b.parent != nil {
		root = b.parent
	}
	if root.lender == nil {
		return b
	}
	if 2*b.Len() < len(root.mem) {
		c := root.home().Get(b.Len())
		c.Append(b.Bytes())
		b.Release()
		return c
	}
	lender := root.lender
	root.lender = nil
	lender.Left(root)
	return b
}

// Slice returns owned: a view of n readable bytes from off on, until the end of this turn; Detach it to keep it longer.
// It panics when b has fewer bytes.
func (b *Buf) Slice(off, n int) *Buf {
	b.check("Slice")
	if off < 0 || n < 0 || off+n > b.Len() {
		panic(fmt.Sprintf("buffer: Slice(%d, %d) with %d readable bytes", off, n, b.Len()))
	}
	lo := b.r + off
	root := b
	if b.parent != nil {
		root = b.parent
	}
	return root.view(lo, lo+n, b.mem)
}

// view returns owned: a Buf over mem[lo:hi], which is (part of) b's block.
func (b *Buf) view(lo, hi int, mem []byte) *Buf {
	v := b.home().header()
	v.mem, v.r, v.w = mem, lo, hi
	v.refs, v.class, v.parent = 1, classNone, b
	b.refs++
	v.note("view")
	return v
}

// Scratch sets s to an uncounted view of n readable bytes of b from off on and returns s. A decoder lends a scratch view
// to the next handler: it costs no reference and cannot leak; whoever wants to keep it gets a real one from Retain. It is
// valid until the function that called Scratch returns. Scratch borrows b until then.
func (b *Buf) Scratch(s *Buf, off, n int) *Buf {
	b.check("Scratch")
	if off < 0 || n < 0 || off+n > b.Len() {
		panic(fmt.Sprintf("buffer: Scratch(%d, %d) with %d readable bytes", off, n, b.Len()))
	}
	root := b
	if b.parent != nil {
		root = b.parent
	}
	s.mem, s.r, s.w = b.mem, b.r+off, b.r+off+n
	s.refs, s.class, s.scr, s.parent = 1, classNone, true, root
	return s
}

// Shrink moves the readable bytes of a Buf that only the caller holds into a smaller block when they fill less than half
// of theirs. What stays queued for a stalled peer is shrunk, because pending counts memory, not payload.
func (b *Buf) Shrink() {
	b.check("Shrink")
	if b.refs != 1 || b.parent != nil || b.lender != nil || b.class == classNone || 2*b.Len() >= len(b.mem) || len(b.mem) <= minBlock {
		return
	}
	b.move(b.Len())
}

// Release gives one reference back; with the last one the memory returns to its pool or lender. Releasing a scratch view
// does nothing.
func (b *Buf) Release() {
	if b.scr {
		return
	}
	b.check("Release")
	b.refs--
	if b.refs > 0 {
		return
	}
	b.free()
}

func (b *Buf) free() {
	if b.lender != nil {
		lender := b.lender
		b.lender = nil
		b.poison()
		lender.Returned(b)
		return
	}
	if b.parent == nil && b.pool != nil {
		b.poison() // a Wrap'ed slice is its owner's
	}
	b.dropMemory()
	b.recycleHeader()
}

// recycleHeader gives the struct itself back.
func (b *Buf) recycleHeader() {
	if b.pool != nil {
		b.pool.putHeader(b)
	}
}

// check panics in invariant builds when b has been released.
func (b *Buf) check(op string) {
	if invariants.Enabled && b.refs <= 0 {
		panic("buffer: " + op + " after the last Release" + b.debug.where())
	}
}
