package codec

import "bytes"

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

// NewLines answers a handler that cuts at LF and CR LF. A CR elsewhere is a byte as any other. A line that is too long is
// reported and skipped.
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
