package codec

import "bytes"

// DelimiterConfig describes frames that end with one of several delimiters.
type DelimiterConfig struct {
	// Delimiters are one or more byte strings, none of them empty. The one that makes the shortest frame counts, and of
	// those that begin at the same place the first in this list.
	Delimiters [][]byte
	// KeepEnd hands on a frame with its delimiter.
	KeepEnd bool
	// MaxBytes bounds a frame, its delimiter not counted. Zero means 1 MiB.
	MaxBytes int
	// FailSlow reports a frame that is too long when all of it has come, instead of at once.
	FailSlow bool
	// FinalFrame makes what comes behind the last delimiter, when the peer has finished sending, a frame of its own.
	// Otherwise it is reported as ErrTruncated.
	FinalFrame bool
}

// NewDelimiter returns a handler that cuts at delimiters. A frame that is too long is reported and skipped. What a
// frame is does not depend on how its bytes arrive: where a delimiter has come and, with more bytes, one that counts
// more could still be found, it waits for them.
func NewDelimiter(cfg DelimiterConfig) (*Framer, error) { return framer(SplitDelimiter(cfg)) }

// SplitDelimiter is the Splitter of NewDelimiter.
func SplitDelimiter(cfg DelimiterConfig) (Splitter, error) {
	const what = "delimiter"
	most, err := limit(what, cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	if len(cfg.Delimiters) == 0 {
		return nil, badConfig(what, "len(Delimiters)", 0)
	}
	d := &delimiter{max: most, keep: cfg.KeepEnd, slow: cfg.FailSlow, final: cfg.FinalFrame}
	for _, b := range cfg.Delimiters {
		if len(b) == 0 || len(b) > 1<<10 {
			return nil, badConfig(what, "the length of one of Delimiters", len(b))
		}
		d.marks = append(d.marks, mark{text: bytes.Clone(b)})
		d.longest = max(d.longest, len(b))
	}
	return d, nil
}

type delimiter struct {
	marks    []mark
	longest  int
	max      int
	skipping bool // a frame that is too long
	keep     bool
	slow     bool
	final    bool
}

// mark is one delimiter and where it is in what comes: each byte is looked at once for each of them.
type mark struct {
	text  []byte
	at    int // the first place where it is or, when it has not been found, where it may still be
	found bool
}

func (d *delimiter) MaxMessageBytes() int { return d.max + d.longest }

func (d *delimiter) Decode(in []byte) (Span, int, error) { return d.decode(in, false) }

func (d *delimiter) Finish(in []byte) (Span, int, error) {
	if len(in) == 0 {
		if d.skipping && d.slow {
			d.skipping = false
			return Span{}, 0, tooLong(0, d.max)
		}
		return Span{}, 0, ErrShort
	}
	at, n, err := d.decode(in, true)
	switch {
	case err != ErrShort:
	case len(in) > d.max:
		d.skipping = false
		return Span{}, len(in), tooLong(0, d.max)
	case d.final:
		return Span{0, len(in)}, len(in), nil
	}
	return at, n, err
}

func (d *delimiter) decode(in []byte, last bool) (Span, int, error) {
	first := d.first(in)
	if first == nil || !last && d.undecided(in, first) {
		return d.without(in, last)
	}
	end := first.at
	n := end + len(first.text)
	d.take(n)
	switch {
	case d.skipping && d.slow, !d.skipping && end > d.max:
		d.skipping = false
		return Span{}, n, tooLong(0, d.max)
	case d.skipping:
		d.skipping = false
		return Span{}, n, ErrSkip
	case d.keep:
		end = n
	}
	return Span{0, end}, n, nil
}

// without is Decode where no frame ends in in.
func (d *delimiter) without(in []byte, last bool) (Span, int, error) {
	sure := len(in) - d.longest + 1 // bytes in which no delimiter begins
	if last && d.skipping {
		return Span{}, len(in), ErrSkip
	}
	if sure <= 0 || !d.skipping && sure <= d.max {
		return Span{}, 0, ErrShort
	}
	d.take(sure)
	if d.skipping || d.slow {
		d.skipping = true
		return Span{}, sure, ErrSkip
	}
	d.skipping = true
	return Span{}, sure, tooLong(0, d.max)
}

// first returns the delimiter that ends the first frame, or nil.
func (d *delimiter) first(in []byte) (first *mark) {
	for i := range d.marks {
		m := &d.marks[i]
		if !m.found {
			if k := bytes.Index(in[m.at:], m.text); k >= 0 {
				m.found = true
				m.at += k
			} else {
				m.at = max(m.at, len(in)-len(m.text)+1)
				continue
			}
		}
		if first == nil || m.at < first.at {
			first = m
		}
	}
	return first
}

// undecided reports whether, with more bytes, a delimiter could be found that counts more than first.
func (d *delimiter) undecided(in []byte, first *mark) bool {
	before := true
	for i := range d.marks {
		m := &d.marks[i]
		if m == first {
			before = false
			continue
		}
		if m.found {
			continue
		}
		to := first.at
		if before {
			to++
		}
		for at := m.at; at < to; at++ {
			if bytes.HasPrefix(m.text, in[at:]) {
				return true
			}
		}
	}
	return false
}

// take consumes n bytes.
func (d *delimiter) take(n int) {
	for i := range d.marks {
		m := &d.marks[i]
		m.found = m.found && m.at >= n
		m.at = max(m.at-n, 0)
	}
}
