package resp

import (
	"bytes"

	"github.com/weirnet/weir/handlers/codec"
)

// node is a value of the message under way, before its bytes stay where they are.
type node struct {
	n    int64 // length, integer, or number of elements
	off  uint32
	kind Kind
}

// frame is an array that is being filled while a message's nodes become Values.
type frame struct{ next, end uint32 }

// ValueParser takes values of any kind from the front of a byte stream. It belongs to one channel's loop.
type ValueParser struct {
	cfg Config // set in NewValueParser, then immutable

	nodes   []node   // values of the message under way, each array before its elements
	open    []uint32 // arrays that are not complete, outermost first: how many values each still lacks
	total   int      // elements announced so far, all arrays together
	bulk    int      // length of the bulk string under way; -1: none is
	pos     int      // offset of what is under way: a header or the bytes of a bulk string
	scanned int      // offset up to which no line end was found
	failed  error    // the final error

	arena  []Value // the Values of the last message
	frames []frame
}

var _ codec.Decoder[*Value] = (*ValueParser)(nil)

// NewValueParser returns a parser at the start of a stream.
func NewValueParser(cfg Config) (*ValueParser, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &ValueParser{cfg: cfg, bulk: -1}, nil
}

// Decode borrows in until return and returns the value at its front. With codec.ErrShort the next call's in begins with
// the same bytes: what has been looked at is not looked at again. An error that is ErrProtocol is final.
func (p *ValueParser) Decode(in []byte) (*Value, int, error) {
	if p.failed != nil {
		return nil, 0, p.failed
	}
	if err := p.scan(in); err != nil {
		if err != codec.ErrShort {
			p.failed = err
		}
		return nil, 0, err
	}
	p.build(in)
	n := p.pos
	p.nodes, p.open = p.nodes[:0], p.open[:0]
	p.total, p.pos, p.scanned = 0, 0, 0
	return &p.arena[0], n, nil
}

// scan goes on with the message under way until it is complete.
func (p *ValueParser) scan(in []byte) error {
	for {
		opened, err := false, error(nil)
		if p.bulk < 0 {
			opened, err = p.header(in)
		}
		if err == nil && p.bulk >= 0 {
			err = p.payload(in)
		}
		if err != nil {
			return err
		}
		if !opened && p.complete() {
			return nil
		}
	}
}

// complete counts a value that is complete, and with it the arrays that lacked nothing else. True: so is the message.
func (p *ValueParser) complete() bool {
	for top := len(p.open) - 1; top >= 0; top-- {
		p.open[top]--
		if p.open[top] > 0 {
			return false
		}
		p.open = p.open[:top]
	}
	return true
}

// header reads the line that begins a value. opened: it is an array, whose elements follow.
func (p *ValueParser) header(in []byte) (opened bool, err error) {
	start := p.pos
	if start >= len(in) {
		return false, codec.ErrShort
	}
	switch c := in[start]; c {
	case '$':
		n, next := shortLength(in, start+1)
		if next == 0 || n > p.cfg.MaxBulkBytes {
			if n, next, err = p.length(in, p.cfg.MaxBulkBytes, reasonBulk, reasonBigBulk); err != nil {
				return false, err
			}
		}
		if n < 0 {
			p.add(Null, next, 0, next)
			return false, nil
		}
		if n > p.cfg.MaxMessageBytes-next-2 {
			return false, protocolError(reasonMessage)
		}
		p.pos, p.bulk = next, n
		return false, nil
	case '*':
		return p.array(in)
	case '+', '-', ':':
		end, err := p.line(in, reasonBigLine)
		if err != nil {
			return false, err
		}
		return false, p.scalar(in, c, end)
	}
	if !p.cfg.Inline || len(p.open) > 0 {
		return false, protocolError(reasonType)
	}
	return false, p.inline(in)
}

func (p *ValueParser) scalar(in []byte, c byte, end int) error {
	start := p.pos + 1
	if c == ':' {
		n, ok := looseInt(in[start:end])
		if !ok {
			return protocolError(reasonInteger)
		}
		p.add(Integer, start, n, end+2)
		return nil
	}
	kind := Simple
	if c == '-' {
		kind = Error
	}
	p.add(kind, start, int64(end-start), end+2)
	return nil
}

func (p *ValueParser) array(in []byte) (opened bool, err error) {
	n, next := shortLength(in, p.pos+1)
	if next == 0 || n > p.cfg.MaxElements {
		if n, next, err = p.length(in, p.cfg.MaxElements, reasonMultibulk, reasonBigMultibulk); err != nil {
			return false, err
		}
	}
	switch {
	case n < 0:
		p.add(NullArray, next, 0, next)
		return false, nil
	case len(p.open) >= p.cfg.MaxDepth:
		return false, protocolError(reasonDepth)
	case n > p.cfg.MaxElements-p.total:
		return false, protocolError(reasonElements)
	case next > p.cfg.MaxMessageBytes:
		return false, protocolError(reasonMessage)
	}
	p.add(Array, next, int64(n), next)
	if n == 0 {
		return false, nil
	}
	p.total += n
	p.open = append(p.open, uint32(n))
	return true, nil
}

// inline reads a line without a type byte; it ends at LF, with or without CR.
func (p *ValueParser) inline(in []byte) error {
	end, err := p.lineFeed(in, reasonBigInline)
	if err != nil {
		return err
	}
	n := end - p.pos
	if n > 0 && in[end-1] == '\r' {
		n--
	}
	p.add(Inline, p.pos, int64(n), end+1)
	return nil
}

// payload waits for the bytes of the bulk string under way and what ends them.
func (p *ValueParser) payload(in []byte) error {
	end := p.pos + p.bulk
	if len(in)-p.pos >= p.bulk+1 && in[end] != '\r' || len(in)-p.pos >= p.bulk+2 && in[end+1] != '\n' {
		return protocolError(reasonBulkEnd)
	}
	if len(in)-p.pos < p.bulk+2 {
		return codec.ErrShort
	}
	p.add(Bulk, p.pos, int64(p.bulk), end+2)
	p.bulk = -1
	return nil
}

func (p *ValueParser) add(kind Kind, off int, n int64, next int) {
	p.nodes = append(p.nodes, node{n: n, off: uint32(off), kind: kind})
	p.pos = next
}

// length reads a header line with a length in it: -1, the null, or a number up to limit.
func (p *ValueParser) length(in []byte, limit int, bad, tooBig string) (n, next int, err error) {
	end, err := p.line(in, tooBig)
	if err != nil {
		return 0, 0, err
	}
	v, ok := strictInt(in[p.pos+1 : end])
	if !ok || v < -1 || v > int64(limit) {
		return 0, 0, protocolError(bad)
	}
	return int(v), end + 2, nil
}

// line returns the offset of the CR LF that ends the line at p.pos.
func (p *ValueParser) line(in []byte, tooBig string) (end int, err error) {
	end, err = p.lineFeed(in, tooBig)
	if err != nil {
		return 0, err
	}
	// The first byte is a type byte, so there is one before the LF.
	if end--; in[end] != '\r' || bytes.IndexByte(in[p.pos:end], '\r') >= 0 {
		return 0, protocolError(reasonLineEnd)
	}
	return end, nil
}

// lineFeed returns the offset of the LF that ends the line at p.pos.
func (p *ValueParser) lineFeed(in []byte, tooBig string) (end int, err error) {
	from := min(max(p.pos, p.scanned), len(in))
	i := bytes.IndexByte(in[from:], '\n')
	if end = from + i; i < 0 {
		end = len(in)
	}
	switch {
	case end-p.pos > p.cfg.MaxLineBytes:
		return 0, protocolError(tooBig)
	case end >= p.cfg.MaxMessageBytes:
		return 0, protocolError(reasonMessage)
	case i < 0:
		p.scanned = len(in)
		return 0, codec.ErrShort
	}
	return end, nil
}

// build makes Values of the nodes. The elements of an array lie side by side in the arena, which has its final size
// before the first of them is set.
func (p *ValueParser) build(in []byte) {
	if cap(p.arena) < len(p.nodes) {
		p.arena = make([]Value, max(len(p.nodes), 16))
	}
	arena := p.arena[:len(p.nodes)]
	frames := append(p.frames[:0], frame{0, 1})
	free := uint32(1)
	for _, n := range p.nodes {
		top := &frames[len(frames)-1]
		v := &arena[top.next]
		top.next++
		*v = Value{Kind: n.kind}
		switch n.kind {
		case Integer:
			v.Int = n.n
		case Simple, Error, Bulk, Inline:
			v.Bytes = in[n.off : int64(n.off)+n.n : int64(n.off)+n.n]
		case Array:
			end := free + uint32(n.n)
			v.Elems = arena[free:end:end]
			frames = append(frames, frame{free, end})
			free = end
		}
		for len(frames) > 0 && frames[len(frames)-1].next == frames[len(frames)-1].end {
			frames = frames[:len(frames)-1]
		}
	}
	p.frames = frames
}

// trim lets go of the input of the last message, and of the memory that an unusually large one needed.
func (p *ValueParser) trim() {
	if cap(p.arena) > keptElements {
		p.arena = nil
	}
	if cap(p.nodes) > keptElements && len(p.nodes) == 0 {
		p.nodes = nil
	}
	clear(p.arena[:cap(p.arena)])
}

// missing is the least number of bytes by which in must grow before Decode can do more with it.
func (p *ValueParser) missing(have int) int {
	if p.bulk < 0 {
		return 1
	}
	return max(1, p.pos+p.bulk+2-have)
}

func (p *ValueParser) empty(*Value) bool { return false }
