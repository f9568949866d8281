//go:build linux

package load

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/weirnet/weir/bench/internal/frame"
)

// chunkBytes is the most that is sent or received by one system call.
const chunkBytes = 256 << 10

// pattern is the stream that every connection sends, over and over, each from another message on. What comes back is
// compared with it, so a byte that is lost, changed, out of order or another connection's is noticed, at the price of
// comparing memory.
type pattern struct {
	messageBytes int    // with the header of a frame
	messages     int    // after so many messages the stream repeats
	table        []byte // the stream, and so much of its beginning again that any chunk is one slice
}

func newPattern(sizeBytes int, framed bool) *pattern {
	p := &pattern{messageBytes: sizeBytes}
	if framed {
		p.messageBytes += frame.HeaderBytes
	}
	// A prime, so that connections are in step with each other as little as possible, and enough that 64 B messages of
	// different connections differ; not so much that the table drives everything else out of the cache.
	p.messages = 257
	if p.messageBytes > 1<<10 {
		p.messages = 17
	}
	random := rand.NewChaCha8([32]byte{'w', 'e', 'i', 'r'})
	for range p.messages {
		if framed {
			p.table = binary.BigEndian.AppendUint32(p.table, uint32(sizeBytes))
		}
		body := make([]byte, sizeBytes)
		_, _ = random.Read(body) // never fails
		p.table = append(p.table, body...)
	}
	for cycle := p.cycleBytes(); len(p.table) < cycle+chunkBytes; {
		p.table = append(p.table, p.table[:min(cycle, cycle+chunkBytes-len(p.table))]...)
	}
	return p
}

func (p *pattern) cycleBytes() int { return p.messageBytes * p.messages }

// start returns where the stream of the i-th connection begins.
func (p *pattern) start(i int) int { return i % p.messages * p.messageBytes }

// next returns the position n bytes behind at.
func (p *pattern) next(at, n int) int {
	at += n
	for at >= p.cycleBytes() {
		at -= p.cycleBytes()
	}
	return at
}

// differing counts the bytes of got that are not those of the stream at the position. Its callers compare first.
func (p *pattern) differing(at int, got []byte) (n int) {
	for i, b := range got {
		if b != p.table[at+i] {
			n++
		}
	}
	return n
}
