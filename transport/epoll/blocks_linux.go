package epoll

import "github.com/weirnet/weir/buffer"

// blocks lends the memory that is received into. Blocks come back in the order in which caches like them: the last one
// returned is received into first. A block that its holder keeps is replaced from the pool. It belongs to the loop.
type blocks struct {
	pool      *buffer.Pool
	size      int
	hot       [][]byte
	maxHot    int // what comes back beyond this number goes to the pool
	takenEver uint64
	leftEver  uint64
}

var _ buffer.Lender = (*blocks)(nil)

// next returns the block that lend will lend.
func (b *blocks) next() []byte {
	if len(b.hot) == 0 {
		b.hot = append(b.hot, b.pool.Block(b.size))
		b.takenEver++
	}
	return b.hot[len(b.hot)-1]
}

// lend returns owned: a Buf over the first n bytes of what next returned.
func (b *blocks) lend(n int) *buffer.Buf {
	last := len(b.hot) - 1
	mem := b.hot[last]
	b.hot = b.hot[:last]
	lent := b.pool.Lend(b, mem)
	lent.Extend(n)
	return lent
}

// Returned takes back a block whose last reference is gone.
func (b *blocks) Returned(lent *buffer.Buf) {
	mem := b.pool.Reclaim(lent)
	if len(b.hot) == b.maxHot {
		b.pool.PutBlock(mem)
		return
	}
	b.hot = append(b.hot, mem)
}

// Left counts a block that is the pool's from now on; next takes another when none is hot.
func (b *blocks) Left(*buffer.Buf) { b.leftEver++ }

// drop gives every block to the pool, and so those that come back later.
func (b *blocks) drop() {
	for _, mem := range b.hot {
		b.pool.PutBlock(mem)
	}
	b.hot, b.maxHot = nil, 0
}
