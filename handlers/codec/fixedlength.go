package codec

// FixedLengthConfig describes frames that all have the same length.
type FixedLengthConfig struct {
	// Bytes is how many bytes a frame has, 1 to 1 GiB.
	Bytes int
}

// NewFixedLength returns a handler that cuts after every so many bytes.
func NewFixedLength(cfg FixedLengthConfig) (*Framer, error) { return framer(SplitFixedLength(cfg)) }

// SplitFixedLength is the Splitter of NewFixedLength.
func SplitFixedLength(cfg FixedLengthConfig) (Splitter, error) {
	if cfg.Bytes < 1 || cfg.Bytes > 1<<30 {
		return nil, badConfig("fixed length", "Bytes", cfg.Bytes)
	}
	return &fixedLength{cfg.Bytes}, nil
}

type fixedLength struct{ n int }

func (f *fixedLength) MaxMessageBytes() int { return f.n }

func (f *fixedLength) Decode(in []byte) (Span, int, error) {
	if len(in) < f.n {
		return Span{}, f.n, ErrShort
	}
	return Span{0, f.n}, f.n, nil
}
