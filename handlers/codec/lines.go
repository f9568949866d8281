package codec

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/weirnet/weir/pipeline"
)

// Where lines are short it is faster to look for many LFs than for the next one: lengths vary, and each search for one
// ends with a branch that a processor cannot predict.
const (
	shortLine  = 128     // after such a line it is tried
	longLine   = 192     // given up where they have more on average
	manyLines  = 32      // how many are looked for,
	aheadBytes = 2 << 10 // how far,
	groupBytes = 64      // and how much at a time
)

// LinesConfig describes lines that end with LF or CR LF. The zero value works.
type LinesConfig struct {
	// MaxBytes bounds a line, its end not counted. Zero means 1 MiB.
	MaxBytes int
	// KeepEnd hands on a line with its LF or CR LF.
	KeepEnd bool
	// FailSlow reports a line that is too long when all of it has come, instead of at once.
	FailSlow bool
	// FinalLine makes what comes behind the last LF, when the peer has finished sending, a line of its own (with a CR at
	// its end stripped as well), as bufio.ScanLines does. Otherwise it is reported as ErrTruncated.
	FinalLine bool
}

// NewLines returns a handler that cuts at LF and CR LF. A CR elsewhere is a byte as any other. A line that is too long
// is reported and skipped.
func NewLines(cfg LinesConfig) (*Framer, error) { return framer(SplitLines(cfg)) }

// SplitLines is the Splitter of NewLines.
func SplitLines(cfg LinesConfig) (Splitter, error) {
	most, err := limit("lines", cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	return &lines{max: most, keep: cfg.KeepEnd, slow: cfg.FailSlow, final: cfg.FinalLine}, nil
}

type lines struct {
	max               int
	scanned           int  // bytes at the front without an LF
	skipping          bool // a line that is too long
	keep, slow, final bool
}

func (l *lines) MaxMessageBytes() int { return l.max + len("\r\n") }

func (l *lines) Decode(in []byte) (Span, int, error) {
	i := bytes.IndexByte(in[l.scanned:], '\n')
	if i < 0 || l.skipping {
		return l.odd(in, i)
	}
	i += l.scanned
	l.scanned = 0
	end := i
	if i > 0 && in[i-1] == '\r' {
		end--
	}
	if end > l.max {
		return Span{}, i + 1, tooLong(0, l.max)
	}
	if l.keep {
		end = i + 1
	}
	return Span{0, end}, i + 1, nil
}

// odd is Decode where no line begins and ends in in.
func (l *lines) odd(in []byte, lf int) (Span, int, error) {
	switch {
	case l.skipping && lf >= 0:
		l.skipping = false
		if l.slow {
			return Span{}, lf + 1, tooLong(0, l.max)
		}
		return Span{}, lf + 1, ErrSkip
	case l.skipping:
		return Span{}, len(in), ErrSkip
	case len(in) <= l.max || len(in) == l.max+1 && in[l.max] == '\r':
		l.scanned = len(in)
		return Span{}, 0, ErrShort
	}
	l.skipping, l.scanned = true, 0
	if l.slow {
		return Span{}, len(in), ErrSkip
	}
	return Span{}, len(in), tooLong(0, l.max)
}

func (l *lines) Finish(in []byte) (Span, int, error) {
	if len(in) == 0 {
		if l.skipping && l.slow {
			l.skipping = false
			return Span{}, 0, tooLong(0, l.max)
		}
		return Span{}, 0, ErrShort
	}
	at, n, err := l.Decode(in)
	if err != ErrShort || !l.final {
		return at, n, err
	}
	l.scanned = 0
	end := len(in)
	if !l.keep && in[end-1] == '\r' {
		end--
	}
	return Span{0, end}, len(in), nil
}

// ends fills to with the offsets behind LFs in in, from offset from on. It returns how many there are, and the offset
// up to which there are no others.
func (*lines) ends(in []byte, from int, to *[manyLines]int) (n, looked int) {
	const (
		low7 = 0x7f7f7f7f7f7f7f7f
		high = ^uint64(low7)
		lf   = 0x0a0a0a0a0a0a0a0a
	)
	limit := min(len(in), from+aheadBytes)
	for looked = from; looked+groupBytes <= limit && n < len(to); looked += groupBytes {
		// A byte of x is zero where there is an LF, and only then the sum leaves the highest bit of that byte clear. Those
		// bits of eight words make one: bit 8*j+i is byte j of word i.
		w := in[looked : looked+groupBytes : looked+groupBytes]
		x := binary.LittleEndian.Uint64(w[0:8]) ^ lf
		others := (x&low7 + low7 | x) & high >> 7
		x = binary.LittleEndian.Uint64(w[8:16]) ^ lf
		others |= (x&low7 + low7 | x) & high >> 6
		x = binary.LittleEndian.Uint64(w[16:24]) ^ lf
		others |= (x&low7 + low7 | x) & high >> 5
		x = binary.LittleEndian.Uint64(w[24:32]) ^ lf
		others |= (x&low7 + low7 | x) & high >> 4
		x = binary.LittleEndian.Uint64(w[32:40]) ^ lf
		others |= (x&low7 + low7 | x) & high >> 3
		x = binary.LittleEndian.Uint64(w[40:48]) ^ lf
		others |= (x&low7 + low7 | x) & high >> 2
		x = binary.LittleEndian.Uint64(w[48:56]) ^ lf
		others |= (x&low7 + low7 | x) & high >> 1
		x = binary.LittleEndian.Uint64(w[56:64]) ^ lf
		others |= (x&low7 + low7 | x) & high
		found := ^others
		if found&(found-1) == 0 { // one or none, and no branch for which of them
			k := bits.TrailingZeros64(found)
			to[n] = looked + k&7<<3 + k>>3 + 1
			if found != 0 {
				n++
			}
			continue
		}
		for found = transpose(found); found != 0; found &= found - 1 {
			if n == len(to) {
				return n, to[n-1]
			}
			to[n] = looked + bits.TrailingZeros64(found) + 1
			n++
		}
	}
	return n, looked
}

// transpose moves bit 8*j+i to 8*i+j, in three steps that swap squares of bits across the diagonal.
func transpose(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}

// emitLines hands on lines of cur, whose bytes are in, as messages does, as long as they are short. It leaves to
// messages what is behind them, and whatever is no reason to hand on a line.
func (s *stream[M]) emitLines(ctx *pipeline.Context, in []byte) {
	var ends [manyLines]int
	l := s.lines
	for {
		first := s.off
		n, looked := l.ends(in, first+l.scanned, &ends)
		l.scanned = 0
		start := first
		for _, next := range ends[:n] {
			if s.removed || !ctx.Reading() {
				return
			}
			end := next - 1
			if end > start && in[end-1] == '\r' {
				end--
			}
			if end-start > l.max {
				return
			}
			if l.keep {
				end = next
			}
			s.off = next
			if s.frame == nil {
				ctx.FireRead(s.cur.Scratch(&s.view, start, end-start))
			} else if err := s.frame(ctx, in[start:end:end]); err != nil {
				report(ctx, err)
			}
			start = next
		}
		l.scanned = looked - start
		if looked-first > n*longLine || looked+groupBytes > len(in) {
			return
		}
	}
}
