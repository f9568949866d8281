package codec

// Varint32Config describes frames behind their length as a base 128 varint, as Protocol Buffers writes delimited
// messages. The zero value works.
type Varint32Config struct {
	// MaxBytes bounds a frame, its length not counted. Zero means 1 MiB.
	MaxBytes int
	// FailSlow reports a frame that is too long when all of it has come, instead of at once.
	FailSlow bool
}

// maxVarint32Bytes is what 32 bits take, seven to a byte.
const maxVarint32Bytes = 5

// NewVarint32 returns a handler that cuts at varint lengths and strips them. A frame that is too long is reported and
// skipped; a length of more than 32 bits ends the stream. A length may have more bytes than it needs, up to five.
//
// Source: https://protobuf.dev/programming-guides/encoding/#varints
func NewVarint32(cfg Varint32Config) (*Framer, error) { return framer(SplitVarint32(cfg)) }

// SplitVarint32 is the Splitter of NewVarint32.
func SplitVarint32(cfg Varint32Config) (Splitter, error) {
	most, err := limit("varint32", cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	return &varint32{max: most, slow: cfg.FailSlow}, nil
}

type varint32 struct {
	max  int
	slow bool
	skip skip
}

func (v *varint32) MaxMessageBytes() int { return v.max + maxVarint32Bytes }

func (v *varint32) Decode(in []byte) (Span, int, error) {
	if v.skip.left > 0 {
		n, err := v.skip.next(in)
		return Span{}, n, err
	}
	length := int64(0)
	for i, c := range in {
		length |= int64(c&0x7f) << (7 * i)
		if i == maxVarint32Bytes-1 && c > 0x0f {
			return Span{}, 0, badFrame("a length of more than 32 bits: % x", in[:i+1])
		}
		if c >= 0x80 {
			continue
		}
		start := i + 1
		total := int64(start) + length
		switch {
		case length > int64(v.max):
			n, err := v.skip.begin(in, total, tooLong(length, v.max), v.slow)
			return Span{}, n, err
		case total > int64(len(in)):
			return Span{}, int(total), ErrShort
		}
		return Span{start, int(total)}, int(total), nil
	}
	return Span{}, 0, ErrShort
}

func (v *varint32) Finish(in []byte) (Span, int, error) {
	if len(in) == 0 {
		return Span{}, 0, v.skip.finish()
	}
	return v.Decode(in)
}
