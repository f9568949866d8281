package uring

import (
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/ring"
)

const (
	// firstWindow is how many blocks the kernel gets at first. It takes them in turn, so fewer stay in the cache: with
	// 1024 blocks of 16 KiB in the ring a message of 16 KiB costs 12 % more CPU than with 256 or less.
	firstWindow = 64
	// windowTurns is after how many turns with half of the blocks unused the kernel gets fewer.
	windowTurns = 4096
)

// blocks are the memory that the kernel receives into. They are Go memory of the pool's sizes, so that one that a
// holder keeps can end in the pool; the transport refers to those that are in the ring.
//
// The ring is filled up to a window before each enter, with the blocks that came back last. The window grows when the
// kernel runs out, and shrinks when it needs little. There are never more blocks than the limit, lent ones included.
type blocks struct {
	ring    *ring.BufferRing
	pool    *buffer.Pool
	size    int
	limit   int
	most    int // the window at most
	window  int // how many the kernel is given at a time
	lent    int
	used    uint32   // blocks that the kernel used ever, modulo 2^32
	reserve [][]byte // last in, first out
	mem     [][]byte // by number; nil: not in the ring
	spare   []uint16 // numbers that are not in the ring

	turns int // since the window was last looked at
	low   int // fewest blocks in the ring since then
}

// openBlocks registers a ring for n blocks, of which the kernel is given at most so many at a time.
func openBlocks(r *ring.Ring, pool *buffer.Pool, n, size, most int) (*blocks, error) {
	br, err := r.RegisterBuffers(bufferGroup, n)
	if err != nil {
		return nil, err
	}
	b := &blocks{
		ring: br, pool: pool, size: size, limit: n, most: min(n, most), window: min(n, most, firstWindow), low: n,
		mem: make([][]byte, n), spare: make([]uint16, n),
	}
	for i := range b.spare {
		b.spare[i] = uint16(n - 1 - i)
	}
	b.fill()
	return b, nil
}

// free is the number of blocks that the kernel can receive into, except for those it has used without our having seen
// it.
func (b *blocks) free() int { return len(b.mem) - len(b.spare) }

// fill shows the kernel blocks up to the window.
func (b *blocks) fill() {
	free := b.free()
	b.low = min(b.low, free)
	if b.turns++; b.turns >= windowTurns {
		b.shrink()
	}
	for n := min(b.window, b.limit-b.lent) - free; n > 0; n-- {
		b.put(b.own())
	}
	b.ring.Publish()
}

// short reports whether so many blocks are lent that fill cannot fill the window.
func (b *blocks) short() bool { return b.limit-b.lent < b.window }

// shrink halves the window when the kernel has not used half of it for a while.
func (b *blocks) shrink() {
	if b.low > b.window/2 && b.window > firstWindow {
		b.window /= 2
	}
	b.turns, b.low = 0, b.limit
}

// starved doubles the window: the kernel found no block.
func (b *blocks) starved() {
	b.window = min(2*b.window, b.most)
	b.turns, b.low = 0, b.limit
}

// put gives the kernel a block.
func (b *blocks) put(mem []byte) {
	id := b.spare[len(b.spare)-1]
	b.spare = b.spare[:len(b.spare)-1]
	b.mem[id] = mem
	b.ring.Add(mem, id)
}

// take returns the block that the kernel has used.
func (b *blocks) take(id uint16) []byte {
	b.used++
	mem := b.mem[id]
	b.mem[id] = nil
	b.spare = append(b.spare, id)
	return mem
}

// lend returns the block that the kernel has used, as a Buf.
func (b *blocks) lend(lender buffer.Lender, id uint16) *buffer.Buf {
	b.lent++
	return b.pool.Lend(lender, b.take(id))
}

// own returns a block that is not in the ring, to receive into without the ring.
func (b *blocks) own() []byte {
	if k := len(b.reserve); k > 0 {
		mem := b.reserve[k-1]
		b.reserve = b.reserve[:k-1]
		return mem
	}
	return b.pool.Block(b.size)
}

// returned takes a block back that was lent.
func (b *blocks) returned(mem []byte) {
	b.lent--
	if len(b.reserve) > b.window {
		b.pool.PutBlock(mem)
		return
	}
	b.reserve = append(b.reserve, mem)
}

// recycle gives the kernel a block back of which nobody wants the bytes.
func (b *blocks) recycle(id uint16) { b.put(b.take(id)) }

// forget drops a block: the transport is closing.
func (b *blocks) forget(id uint16) { b.take(id) }

// close takes the blocks from the kernel. Those that are lent stay with their holders.
func (b *blocks) close() {
	_ = b.ring.Unregister()
	b.mem, b.spare, b.reserve = nil, nil, nil
}

// Returned implements buffer.Lender. It takes ownership of b.
func (t *Transport) Returned(b *buffer.Buf) {
	mem := t.pool.Reclaim(b)
	if t.closed {
		t.pool.PutBlock(mem)
		return
	}
	t.blocks.returned(mem)
}

// Left implements buffer.Lender. It borrows b until return: its block stays with whoever keeps it, and the kernel gets
// another one, so that nobody who keeps data starves others.
func (t *Transport) Left(*buffer.Buf) {
	t.blocks.lent--
	t.counters.BlocksLeft++
}
