package buffer

import (
	"fmt"
	"math/bits"
)

const (
	minBlockShift = 8  // smallest block of a pool: 256 B
	maxBlockShift = 20 // largest block of a pool: 1 MiB; larger ones come from the Go heap and go to it
	minBlock      = 1 << minBlockShift
	maxBlock      = 1 << maxBlockShift
	classes       = maxBlockShift - minBlockShift + 1
	classNone     = int8(-1)
	maxHeaders    = 4096 // free Buf structs kept
)

// PoolConfig configures a Pool. The zero value works.
type PoolConfig struct {
	// MaxFreeBytes is how much free memory the pool keeps for reuse; what exceeds it goes to the garbage collector.
	// Zero means 32 MiB.
	MaxFreeBytes int
}

// Pool hands out Bufs in blocks whose sizes are powers of two from 256 B to 1 MiB and takes them back. It belongs to one
// event loop. A nil *Pool hands out Bufs on the Go heap.
type Pool struct {
	free      [classes][][]byte
	headers   []*Buf
	freeBytes int
	maxFree   int

	live      int // Bufs handed out and not released, views included
	liveBytes int // memory of the blocks handed out
	debug     *ledger
}

// NewPool answers an empty pool.
func NewPool(cfg PoolConfig) *Pool {
	if cfg.MaxFreeBytes == 0 {
		cfg.MaxFreeBytes = 32 << 20
	}
	return &Pool{maxFree: cfg.MaxFreeBytes, debug: newLedger()}
}

// Get returns owned: an empty Buf with room for at least n bytes, from a block of the next size up.
func (p *Pool) Get(n int) *Buf {
	b := p.block(n)
	b.note("Get")
	return b
}

// Lend returns owned: a Buf over mem, which is the lender's and has a size of the pool's classes. It is for transports.
// It panics on another size: a programmer's error.
func (p *Pool) Lend(lender Lender, mem []byte) *Buf {
	class := classOf(len(mem))
	if class == classNone || len(mem) != minBlock<<class {
		panic(fmt.Sprintf("buffer: Lend of a block of %d bytes", len(mem)))
	}
	b := p.header()
	b.mem, b.class, b.lender, b.refs = mem, class, lender, 1
	p.liveBytes += len(mem)
	b.note("Lend")
	return b
}

// Reclaim takes back a Buf that Returned answered: its header goes to the pool and its memory is answered. It is for
// lenders.
func (p *Pool) Reclaim(b *Buf) []byte {
	mem := b.mem
	p.liveBytes -= len(mem)
	b.mem = nil
	p.putHeader(b)
	return mem
}

// Outstanding is the number of Bufs handed out and not yet released.
func (p *Pool) Outstanding() int { return p.live }

// OutstandingBytes is the memory of the blocks handed out and not yet released.
func (p *Pool) OutstandingBytes() int { return p.liveBytes }

// FreeBytes is the memory kept for reuse.
func (p *Pool) FreeBytes() int { return p.freeBytes }

// Leaks describes each Buf that is outstanding with the stack that took it. Only builds with -tags invariants know them;
// others answer nil.
func (p *Pool) Leaks() []string { return p.debug.leaks() }

func (p *Pool) block(n int) *Buf {
	b := p.header()
	b.refs = 1
	b.class = classNone
	if p == nil {
		b.mem = make([]byte, n)
		return b
	}
	class := classOf(n)
	if class == classNone {
		b.mem = make([]byte, n)
		p.liveBytes += n
		return b
	}
	b.class = class
	list := p.free[class]
	if k := len(list); k > 0 {
		b.mem = list[k-1]
		list[k-1] = nil
		p.free[class] = list[:k-1]
		p.freeBytes -= len(b.mem)
	} else {
		b.mem = make([]byte, minBlock<<class)
	}
	p.liveBytes += len(b.mem)
	return b
}

// give takes back a block; blocks without a class and those above MaxFreeBytes go to the garbage collector.
func (p *Pool) give(mem []byte, class int8) {
	p.liveBytes -= len(mem)
	if class == classNone || p.freeBytes+len(mem) > p.maxFree {
		return
	}
	p.free[class] = append(p.free[class], mem)
	p.freeBytes += len(mem)
}

func (p *Pool) header() *Buf {
	if p == nil {
		return &Buf{}
	}
	p.live++
	if k := len(p.headers); k > 0 {
		b := p.headers[k-1]
		p.headers = p.headers[:k-1]
		b.debug = p.debug.open(b)
		return b
	}
	b := &Buf{pool: p}
	b.debug = p.debug.open(b)
	return b
}

func (p *Pool) putHeader(b *Buf) {
	p.live--
	p.debug.close(b)
	debug := b.debug
	*b = Buf{pool: p, debug: debug} // refs 0: use after release shows in invariant builds
	if len(p.headers) < maxHeaders && !reuseForbidden {
		p.headers = append(p.headers, b)
	}
}

// classOf is the index of the smallest block that holds n bytes, or classNone.
func classOf(n int) int8 {
	if n > maxBlock {
		return classNone
	}
	if n <= minBlock {
		return 0
	}
	return int8(bits.Len(uint(n-1)) - minBlockShift)
}
