package sim

import "github.com/weirnet/weir/buffer"

// block returns owned: an empty lent Buf, or nil when all are lent.
func (t *Transport) block() *buffer.Buf {
	if t.blocks == 0 {
		return nil
	}
	t.blocks--
	t.lent++
	var mem []byte
	if k := len(t.spare); k > 0 {
		mem = t.spare[k-1]
		t.spare = t.spare[:k-1]
	} else {
		mem = t.pool.Block(t.w.cfg.BlockBytes)
	}
	return t.pool.Lend(t, mem)
}

// Returned takes ownership of a block that nobody holds any more. Parked receives go on in the next Wait.
func (t *Transport) Returned(b *buffer.Buf) {
	mem := t.pool.Reclaim(b)
	if n := t.filled[&mem[0]]; n > 0 {
		scrub(mem[:n])
		delete(t.filled, &mem[0])
	}
	t.lent--
	t.blocks++
	if t.closed {
		t.pool.PutBlock(mem)
		return
	}
	t.spare = append(t.spare, mem)
}

// scrub overwrites mem in strides: the race detector looks at each access.
func scrub(mem []byte) {
	mem[0] = 0xDB
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}

// Left hears of a block that its holders keep, and makes room for another. It borrows the Buf until return.
func (t *Transport) Left(*buffer.Buf) {
	t.lent--
	t.blocks++
}

// park lets a receive wait for a block. First come, first served.
func (t *Transport) park(e *endpoint) {
	if e.parked {
		return
	}
	e.parked = true
	t.parked = append(t.parked, e)
	e.trace("parked, no block is free")
}

// unpark lets parked receives go on while there are blocks.
func (t *Transport) unpark() {
	for n := len(t.parked); n > 0 && t.blocks > 0; n-- {
		e := t.parked[0]
		t.parked = t.parked[1:]
		e.parked = false
		e.receive()
	}
}

// leavePark takes a receive that ended out of the row.
func (t *Transport) leavePark(e *endpoint) {
	if !e.parked {
		return
	}
	e.parked = false
	for i, p := range t.parked {
		if p == e {
			t.parked = append(t.parked[:i], t.parked[i+1:]...)
			return
		}
	}
}
