package uring

import (
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/ring"
)

// blocks are the memory that the kernel receives into. While nothing is lent, all of them are the kernel's. They are Go
// memory of the pool's sizes, so that one that a holder keeps can end in the pool; the transport refers to those that are
// in the ring.
type blocks struct {
	ring  *ring.BufferRing
	pool  *buffer.Pool
	size  int
	mem   [][]byte // by number; nil: not in the ring
	added []uint16 // by number: the ring's position it was put at last
	spare []uint16 // numbers that are not in the ring
}

// openBlocks registers a ring of n blocks.
func openBlocks(r *ring.Ring, pool *buffer.Pool, n, size int) (*blocks, error) {
	br, err := r.RegisterBuffers(bufferGroup, n)
	if err != nil {
		return nil, err
	}
	b := &blocks{ring: br, pool: pool, size: size, mem: make([][]byte, n), added: make([]uint16, n), spare: make([]uint16, n)}
	for i := range b.spare {
		b.spare[i] = uint16(n - 1 - i)
	}
	for range n {
		b.put(pool.Block(size))
	}
	br.Publish()
	return b, nil
}

// free is the number of blocks that the kernel can receive into, except for those it has used without our having seen it.
func (b *blocks) free() int { return len(b.mem) - len(b.spare) }

// put gives the kernel a block.
func (b *blocks) put(mem []byte) {
	id := b.spare[len(b.spare)-1]
	b.spare = b.spare[:len(b.spare)-1]
	b.mem[id] = mem
	b.added[id] = b.ring.Add(mem, id)
}

// take answers the block that the kernel has used.
func (b *blocks) take(id uint16) []byte {
	mem := b.mem[id]
	b.mem[id] = nil
	b.spare = append(b.spare, id)
	return mem
}

// recycle gives the kernel a block back of which nobody wants the bytes.
func (b *blocks) recycle(id uint16) { b.put(b.take(id)) }

// forget drops a block: the transport is closing.
func (b *blocks) forget(id uint16) { b.take(id) }

// recover gives the kernel the blocks back that it has used and that no completion told of, neither one that was handed
// out nor one of events. The kernel takes blocks in the order in which they were put, so those before its position are
// used. Before Linux 6.8 it does not say where it is; then what is lost stays lost.
func (b *blocks) recover(events *fifo[event]) {
	head, err := b.ring.Head()
	if err != nil {
		return
	}
	known := make(map[uint16]bool)
	for i := events.first; i < len(events.items); i++ {
		if e := &events.items[i]; e.flags&ring.FlagBuffer != 0 {
			known[uint16(e.flags>>16)] = true
		}
	}
	for id := range b.mem {
		used := int16(b.added[id]-head) < 0
		if b.mem[id] != nil && used && !known[uint16(id)] {
			b.recycle(uint16(id))
		}
	}
}

// publish shows the kernel the blocks that were put.
func (b *blocks) publish() { b.ring.Publish() }

// close takes the blocks from the kernel. Those that are lent stay with their holders.
func (b *blocks) close() {
	_ = b.ring.Unregister()
	b.mem, b.spare = nil, nil
}

// Returned implements buffer.Lender. It takes ownership of b.
func (t *Transport) Returned(b *buffer.Buf) {
	mem := t.pool.Reclaim(b)
	if !t.closed {
		t.blocks.put(mem)
	}
}

// Left implements buffer.Lender. It borrows b until return: its block stays with whoever keeps it, and the kernel gets
// another one, so that nobody who keeps data starves others.
func (t *Transport) Left(*buffer.Buf) {
	if t.closed {
		return
	}
	t.counters.BlocksLeft++
	t.blocks.put(t.pool.Block(t.blocks.size))
}
