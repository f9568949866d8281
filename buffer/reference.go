package buffer

import "fmt"

// Exclusive reports whether b is the only way to reach its memory: nobody else holds b, another view of the block or,
// for a view, the block itself, and the memory is not a Wrap'ed slice. Then whoever owns b (or borrows it from the
// owner) may change bytes in place and Reserve.
func (b *Buf) Exclusive() bool {
	b.check("Exclusive")
	root := b.root()
	return b.refs == 1 && root.refs == 1 && b.flags&scratch == 0 && root.flags&foreign == 0
}

// Retain returns a Buf that the caller owns and may keep for as long as it likes, also past this turn. It is b itself
// with one more reference, or, when b is a lent block less than half full or a scratch view, another Buf with the same
// bytes: use what it returns.
func (b *Buf) Retain() *Buf {
	return b.RetainForTurn().Detach()
}

// RetainForTurn returns a Buf that the caller owns until the end of this turn of the loop; before it ends, the caller
// releases it or replaces it by what Detach returns. It never copies: what is written and sent within a turn needs no
// more.
func (b *Buf) RetainForTurn() *Buf {
	b.check("Retain")
	if b.flags&scratch != 0 {
		return b.parent.view(b.r, b.w)
	}
	if b.refs <= 0 {
		panic("buffer: Retain after the last Release")
	}
	b.refs++
	b.note("Retain")
	return b
}

// Detach takes ownership and returns owned: a Buf with the same bytes that may outlive the turn. A lent block leaves
// its lender, unless it is less than half full and its bytes are copied into a smaller block. A scratch view owns
// nothing: for it, Detach is Retain.
func (b *Buf) Detach() *Buf {
	b.check("Detach")
	if b.flags&scratch != 0 {
		return b.Retain()
	}
	root := b.root()
	if root.lender == nil {
		return b
	}
	if 2*(b.w-b.r) < len(root.mem) {
		c := b.pool.Get(b.w - b.r)
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
// It panics when b has fewer bytes: a programmer's error.
func (b *Buf) Slice(off, n int) *Buf {
	b.check("Slice")
	if off < 0 || n < 0 || n > b.w-b.r-off {
		b.panicView("Slice", off, n)
	}
	lo := b.r + off
	return b.root().view(lo, lo+n)
}

// view returns owned: a Buf over b.mem[lo:hi]. b is not a view itself.
func (b *Buf) view(lo, hi int) *Buf {
	v := b.pool.header()
	v.mem, v.r, v.w = b.mem, lo, hi
	v.refs, v.class, v.parent = 1, classNone, b
	b.refs++
	v.note("Slice")
	return v
}

// Scratch sets s to an uncounted view of n readable bytes of b from off on and returns s. A decoder lends a scratch
// view to the next handler: it costs no reference and cannot leak; whoever wants to keep it gets a real one from
// Retain. It is valid until the function that called Scratch returns: Scratch borrows b and s until then. s must not be
// a Buf that somebody owns; its zero value and earlier scratch views are fine. It panics when b has fewer bytes.
func (b *Buf) Scratch(s *Buf, off, n int) *Buf {
	b.check("Scratch")
	if off < 0 || n < 0 || n > b.w-b.r-off {
		b.panicView("Scratch", off, n)
	}
	if s.refs != 0 && s.flags&scratch == 0 {
		panic(fmt.Sprintf("buffer: Scratch into a %s", s.describe()))
	}
	root := b.root()
	s.mem, s.r, s.w = root.mem, b.r+off, b.r+off+n
	if s.parent == root && s.flags&scratch != 0 {
		return s // mostly: a frame behind a frame
	}
	s.refs, s.class, s.flags = 1, classNone, scratch
	s.pool, s.parent = root.pool, root
	return s
}

// Release gives one reference back; with the last one the memory returns to its pool or lender. Releasing a scratch
// view does nothing. It panics when there is no reference left, which is only sure to be noticed by invariant builds:
// others use the Buf again.
func (b *Buf) Release() {
	b.check("Release")
	if b.refs > 1 {
		b.refs--
		return
	}
	b.releaseLast()
}

// releaseLast takes b apart. It is not part of Release so that Release can be inlined.
func (b *Buf) releaseLast() {
	if b.flags&scratch != 0 {
		return
	}
	if b.refs != 1 {
		panic("buffer: Release after the last Release")
	}
	b.refs = 0
	b.note("last Release")
	if lender := b.lender; lender != nil {
		b.lender = nil
		poison(b.mem)
		lender.Returned(b)
		return
	}
	b.dropMemory()
	b.pool.putHeader(b)
}

// panicView is out of line to keep its callers small.
//
//go:noinline
func (b *Buf) panicView(op string, off, n int) {
	panic(fmt.Sprintf("buffer: %s(%d, %d) with %d readable bytes", op, off, n, b.w-b.r))
}
