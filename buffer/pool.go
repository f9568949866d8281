package buffer

import (
	"fmt"
	"math/bits"

	"github.com/weirnet/weir/internal/invariants"
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
	// Zero means 32 MiB, a negative number keeps nothing.
	MaxFreeBytes int
}

// Pool hands out Bufs in blocks whose sizes are powers of two from 256 B to 1 MiB and takes them back. It belongs to
// one event loop. A nil *Pool hands out Bufs on the Go heap.
type Pool struct {
	free      [classes][][]byte
	headers   []*Buf
	freeBytes int
	maxFree   int

	live      int // Bufs handed out and not released, views included
	liveBytes int // memory of the blocks handed out
	debug     *ledger
}

// NewPool returns an empty pool.
func NewPool(cfg PoolConfig) *Pool {
	if cfg.MaxFreeBytes == 0 {
		cfg.MaxFreeBytes = 32 << 20
	}
	return &Pool{maxFree: cfg.MaxFreeBytes, debug: newLedger()}
}

// Get returns owned: an empty Buf with room for at least n bytes, from a block of the next size up. The room holds
// whatever was there before.
func (p *Pool) Get(n int) *Buf {
	if n < 0 {
		panic(fmt.Sprintf("buffer: Get(%d)", n))
	}
	b := p.header()
	b.mem, b.class = p.take(n)
	b.refs = 1
	b.note("Get")
	return b
}

// Lend returns owned: an empty Buf over mem, which is the lender's and has a size of the pool's classes; Block returns
// such memory. It is for transports, on a pool that is not nil. It panics on another size: a programmer's error.
//
// When the Buf leaves the lender, mem becomes the pool's and in the end perhaps the garbage collector's: it is Go
// memory, or memory that stays mapped for good.
func (p *Pool) Lend(lender Lender, mem []byte) *Buf {
	class := classOf(len(mem))
	if class == classNone || len(mem) != minBlock<<class {
		panic(fmt.Sprintf("buffer: Lend of a block of %d bytes", len(mem)))
	}
	b := p.header()
	b.mem, b.class, b.lender, b.refs = mem[:len(mem):len(mem)], class, lender, 1
	p.liveBytes += len(mem)
	b.note("Lend")
	return b
}

// Reclaim takes ownership of a Buf that Lender.Returned was given: its header goes to the pool and its memory is
// answered.
func (p *Pool) Reclaim(b *Buf) []byte {
	if invariants.Enabled {
		invariants.Check(b.refs == 0 && b.mem != nil && b.lender == nil, "buffer: Reclaim of a %s", b.describe())
	}
	mem := b.mem
	p.liveBytes -= len(mem)
	p.putHeader(b)
	return mem
}

// Block returns memory to lend: a block of the next size up from n, at most 1 MiB, out of the free ones if there is
// one. It does not count as outstanding while it is not lent. It panics when n is not in 1 … 1 MiB: a programmer's
// error.
func (p *Pool) Block(n int) []byte {
	if n < 1 || n > maxBlock {
		panic(fmt.Sprintf("buffer: Block(%d)", n))
	}
	mem, _ := p.take(n)
	p.liveBytes -= len(mem)
	return mem
}

// PutBlock gives the pool what Block or Reclaim returned, when the lender has no more use for it.
func (p *Pool) PutBlock(mem []byte) {
	class := classOf(len(mem))
	if class == classNone || len(mem) != minBlock<<class {
		panic(fmt.Sprintf("buffer: PutBlock of %d bytes", len(mem)))
	}
	poison(mem)
	p.liveBytes += len(mem)
	p.give(mem, class)
}

// Outstanding is the number of Bufs handed out and not yet released, views included.
func (p *Pool) Outstanding() int { return p.live }

// OutstandingBytes is the memory of the blocks handed out and not yet released.
func (p *Pool) OutstandingBytes() int { return p.liveBytes }

// FreeBytes is the memory kept for reuse.
func (p *Pool) FreeBytes() int { return p.freeBytes }

// Leaks describes each Buf that is outstanding with the code that took it, in the order in which they were taken. Only
// builds with -tags invariants know them; others return nil.
func (p *Pool) Leaks() []string { return p.debug.leaks() }

// take returns a block for at least n bytes and its class.
func (p *Pool) take(n int) (mem []byte, class int8) {
	class = classOf(n)
	if p == nil || class == classNone {
		mem = make([]byte, n)
		if p != nil {
			p.liveBytes += n
		}
		return mem, classNone
	}
	list := p.free[class]
	if k := len(list); k > 0 {
		mem = list[k-1]
		list[k-1] = nil
		p.free[class] = list[:k-1]
		p.freeBytes -= len(mem)
		checkPoison(mem)
	} else {
		mem = make([]byte, minBlock<<class)
	}
	p.liveBytes += len(mem)
	return mem, class
}

// give takes back a block; blocks without a class and those above MaxFreeBytes go to the garbage collector.
func (p *Pool) give(mem []byte, class int8) {
	if p == nil {
		return
	}
	p.liveBytes -= len(mem)
	if class == classNone || p.freeBytes+len(mem) > p.maxFree {
		return
	}
	p.free[class] = append(p.free[class], mem)
	p.freeBytes += len(mem)
}

// blockSize is the size of the block that take(n) returns.
func (p *Pool) blockSize(n int) int {
	class := classOf(n)
	if p == nil || class == classNone {
		return n
	}
	return minBlock << class
}

// header returns a Buf without memory and references, counted as handed out.
func (p *Pool) header() *Buf {
	if p == nil {
		return &Buf{debug: newRecord("")}
	}
	p.live++
	var b *Buf
	if k := len(p.headers); k > 0 {
		b = p.headers[k-1]
		p.headers = p.headers[:k-1]
	} else {
		b = &Buf{pool: p}
	}
	b.debug = p.debug.open(b)
	return b
}

// putHeader takes back a Buf that has no memory any more.
func (p *Pool) putHeader(b *Buf) {
	if p == nil {
		return
	}
	p.live--
	p.debug.close(b)
	*b = Buf{pool: p, debug: b.debug} // refs 0: use after release shows in invariant builds
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
