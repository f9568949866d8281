// Package buffer holds byte buffers with a reference count, and per-loop pools of them.
//
// A Buf belongs to one event loop: its count is not atomic and no method may be called from another goroutine. Every
// function that takes a Buf states what becomes of it with one of four phrases: "borrows until return", "takes
// ownership (also on error)", "retains: takes its own reference, the caller keeps its own" and "returns owned".
//
// All holders of one Buf share its two indexes, so only a sole holder consumes, truncates or appends; others work on a
// view of their own, see Slice. What was released must not be touched: builds with -tags invariants overwrite it and
// panic, naming who took and who released it.
package buffer

import (
	"fmt"

	"github.com/weirnet/weir/internal/invariants"
)

// A Lender is a transport that lends the blocks it receives into. Its methods run on the loop's goroutine.
type Lender interface {
	// Returned takes ownership of b, which nobody refers to any more: the block is the lender's again. Pool.Reclaim takes
	// b apart.
	Returned(b *Buf)
	// Left borrows b until return. It is called when somebody keeps a lent Buf past its turn: the memory now belongs to
	// its holders and goes to the pool in the end, so the lender needs another block (Pool.Block).
	Left(b *Buf)
}

// Buf is a run of bytes inside a block of memory: [0,r) is consumed, [r,w) is readable, [w,cap) is room. It belongs to
// one event loop.
type Buf struct {
	mem    []byte // the block, len == cap
	r, w   int
	refs   int32
	class  int8 // index of the pool's size class; classNone: not pooled
	flags  flags
	pool   *Pool
	lender Lender // non-nil while the block is lent
	parent *Buf   // a view: whose memory this is, one reference held (none for a scratch view)
	debug  *record
}

// flags are the properties of a Buf that few have.
type flags uint8

const (
	scratch flags = 1 << iota // a view that holds no reference, see Scratch
	foreign                   // mem belongs to whoever called Wrap: read only, never poisoned
	sealed                    // the bytes behind w may be seen by others: no room
)

// New returns owned: an empty Buf of the given capacity on the Go heap, outside any pool.
func New(capacity int) *Buf {
	return &Buf{mem: make([]byte, capacity), refs: 1, class: classNone, debug: newRecord("New")}
}

// Wrap returns owned: a Buf whose readable bytes are p, which must not change while the Buf lives. It is never written
// to: appending to the Buf copies.
func Wrap(p []byte) *Buf {
	return &Buf{
		mem: p[:len(p):len(p)], w: len(p), refs: 1, class: classNone, flags: foreign | sealed,
		debug: newRecord("Wrap"),
	}
}

// Bytes are the readable bytes. They alias the block: valid until the Buf is released, appended to or, for a borrowed
// Buf, until the borrower returns; call Bytes again on what Retain returned.
func (b *Buf) Bytes() []byte {
	b.check("Bytes")
	return b.mem[b.r:b.w:b.w]
}

// Len is the number of readable bytes.
func (b *Buf) Len() int {
	b.check("Len")
	return b.w - b.r
}

// Cap is the size of the memory this Buf keeps alive in bytes: its block's size, for a view the size of the block it
// looks into. Pending bytes are counted by it.
func (b *Buf) Cap() int {
	b.check("Cap")
	return len(b.root().mem)
}

// Room is the number of bytes that can be appended without growing. Views and Wrap'ed Bufs have none.
func (b *Buf) Room() int {
	b.check("Room")
	if b.parent != nil || b.flags&sealed != 0 {
		return 0
	}
	return len(b.mem) - b.w
}

// Advance consumes the first n readable bytes. It panics when there are fewer: a programmer's error.
func (b *Buf) Advance(n int) {
	b.check("Advance")
	if uint(n) > uint(b.w-b.r) { // negative n, too
		b.panicRange("Advance", n)
	}
	b.r += n
}

// Truncate keeps the first n readable bytes. It panics when there are fewer: a programmer's error.
func (b *Buf) Truncate(n int) {
	b.check("Truncate")
	if uint(n) > uint(b.w-b.r) {
		b.panicRange("Truncate", n)
	}
	if b.refs != 1 {
		b.flags |= sealed // a view may look at what is cut off here: appending must not overwrite it
	}
	b.w = b.r + n
}

// Tail is the room behind the readable bytes; write into it, then Extend.
func (b *Buf) Tail() []byte {
	return b.mem[b.w : b.w+b.Room()]
}

// Extend makes n bytes written into Tail readable. It panics when there is less room: a programmer's error.
func (b *Buf) Extend(n int) {
	if room := b.Room(); n < 0 || n > room {
		panic(fmt.Sprintf("buffer: Extend(%d) with room for %d bytes", n, room))
	}
	b.w += n
}

// Append copies p behind the readable bytes and grows the block when there is no room, see Reserve.
func (b *Buf) Append(p []byte) {
	if len(p) > b.Room() {
		b.Reserve(len(p))
	}
	b.w += copy(b.mem[b.w:], p)
}

// AppendString is Append for a string.
func (b *Buf) AppendString(s string) {
	if len(s) > b.Room() {
		b.Reserve(len(s))
	}
	b.w += copy(b.mem[b.w:], s)
}

// AppendByte is Append for one byte.
func (b *Buf) AppendByte(c byte) {
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

// Reserve makes room for n more bytes: it moves the readable bytes to the front or into a larger block. Any sequence of
// Append and Advance copies a number of bytes that is linear in what was appended. Only the sole holder may grow a Buf:
// Reserve panics when others hold it, views included, and on a scratch view.
func (b *Buf) Reserve(n int) {
	b.check("Reserve")
	have := b.w - b.r
	need := have + n
	if n < 0 || need < have || b.refs != 1 || b.flags&scratch != 0 {
		panic(fmt.Sprintf("buffer: Reserve(%d) on a %s", n, b.describe()))
	}
	if b.Room() >= n {
		return
	}
	// What is copied now is paid for by the room it leaves: as much is appended before the next copy.
	want := max(need, 2*have)
	if want <= len(b.mem) && b.parent == nil && b.flags&sealed == 0 {
		b.r, b.w = 0, copy(b.mem, b.mem[b.r:b.w])
		return
	}
	b.move(want)
}

// Shrink moves the readable bytes of a Buf that only the caller holds into a smaller block when they fill less than
// half of the memory it keeps alive, a view's included. What stays queued for a stalled peer is shrunk, because pending
// counts memory, not payload.
func (b *Buf) Shrink() {
	b.check("Shrink")
	have, size := b.w-b.r, b.Cap()
	if b.refs != 1 || b.flags&scratch != 0 || b.lent() || 2*have >= size || b.pool.blockSize(have) >= size {
		return
	}
	b.move(have)
}

// describe says for errors what b is, without its bytes.
func (b *Buf) describe() string {
	kind := "Buf"
	switch {
	case b.flags&scratch != 0:
		kind = "scratch view"
	case b.parent != nil:
		kind = "view"
	}
	return fmt.Sprintf("%s[%d:%d] with %d references", kind, b.r, b.w, b.refs)
}

// move copies the readable bytes into a block for at least n bytes that only this Buf refers to.
func (b *Buf) move(n int) {
	mem, class := b.pool.take(n)
	w := copy(mem, b.mem[b.r:b.w])
	b.dropMemory()
	b.mem, b.class, b.flags = mem, class, 0
	b.r, b.w = 0, w
}

// dropMemory gives back what b's bytes live in and leaves b without memory.
func (b *Buf) dropMemory() {
	mem := b.mem
	b.mem = nil
	switch {
	case b.parent != nil:
		parent := b.parent
		b.parent = nil
		parent.Release()
	case b.lender != nil:
		// The header stays with its holder, so the lender gets the block back under a header of its own.
		lender := b.lender
		b.lender = nil
		lent := b.pool.header()
		lent.mem, lent.class = mem, b.class
		poison(mem)
		lender.Returned(lent)
	default:
		if b.flags&foreign == 0 {
			poison(mem)
		}
		b.pool.give(mem, b.class)
	}
}

// lent reports whether b's block is on loan from a transport.
func (b *Buf) lent() bool { return b.root().lender != nil }

// check panics in invariant builds when b, or the block that b looks into, has been released.
func (b *Buf) check(op string) {
	if !invariants.Enabled {
		return
	}
	if b.refs <= 0 {
		panic("buffer: " + op + " after the last Release" + b.debug.where())
	}
	if b.parent != nil && b.parent.refs <= 0 {
		panic("buffer: " + op + " on a view of a released Buf" + b.parent.debug.where())
	}
}

// panicRange is out of line so that its callers stay small enough to be inlined.
//
//go:noinline
func (b *Buf) panicRange(op string, n int) {
	panic(fmt.Sprintf("buffer: %s(%d) with %d readable bytes", op, n, b.w-b.r))
}
