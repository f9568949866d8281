package codec

import "bytes"

// OctetCountingConfig describes syslog messages on TCP (RFC 6587). The zero value works.
type OctetCountingConfig struct {
	// MaxBytes bounds a message, its count or LF not counted. Zero means 1 MiB.
	MaxBytes int
	// FailSlow reports a message that is too long when all of it has come, instead of at once.
	FailSlow bool
	// FinalLine makes a message without its LF, when the peer has finished sending, a message all the same. Otherwise it
	// is reported as ErrTruncated.
	FinalLine bool
	// Resync makes a line a message whatever it begins with, when the message before it ended with LF: a sender of lines
	// has sent a text of several. Such a line begins a count only where the message behind it begins with '<'. Otherwise
	// it ends the stream, as it always does behind a count, where nobody knows how far to go.
	Resync bool
}

// maxCountDigits bounds a count: what has more is not a length.
const maxCountDigits = 10

// NewOctetCounting returns a handler for both framings of RFC 6587, decided for each message by its first byte: a digit
// from 1 to 9 begins a count (section 3.4.1, octet counting: "11 <13>message"), '<' a message that ends with LF or CR
// LF (section 3.4.2, non-transparent framing). An LF or CR LF between messages is passed over: some senders end a
// counted message with one. A message that is too long is reported and skipped; everything else ends the stream.
func NewOctetCounting(cfg OctetCountingConfig) (*Framer, error) {
	return framer(SplitOctetCounting(cfg))
}

// SplitOctetCounting is the Splitter of NewOctetCounting.
func SplitOctetCounting(cfg OctetCountingConfig) (Splitter, error) {
	most, err := limit("octet counting", cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	return &octetCounting{
		lines: lines{max: most, slow: cfg.FailSlow, final: cfg.FinalLine}, resync: cfg.Resync,
	}, nil
}

type octetCounting struct {
	lines  lines
	skip   skip
	resync bool
	lined  bool // the last message was a line
}

func (o *octetCounting) MaxMessageBytes() int { return o.lines.max + maxCountDigits + 1 }

func (o *octetCounting) Decode(in []byte) (Span, int, error) {
	switch c := in[0]; {
	case o.skip.left > 0:
		n, err := o.skip.next(in)
		return Span{}, n, err
	case o.lines.skipping || c == '<':
		o.lined = true
		return o.lines.Decode(in)
	case '1' <= c && c <= '9':
		switch counts, known := beginsCounted(in); {
		case !o.resync || !o.lined || counts:
			o.lined = false
			return o.counted(in)
		case !known:
			return Span{}, 0, ErrShort
		}
		return o.lines.Decode(in)
	case c == '\n':
		return Span{}, 1, ErrSkip
	case c == '\r' && len(in) == 1:
		return Span{}, 2, ErrShort
	case c == '\r' && in[1] == '\n':
		return Span{}, 2, ErrSkip
	case o.resync && o.lined:
		return o.lines.Decode(in)
	default:
		return Span{}, 0, badFrame("a message begins with %q", c)
	}
}

// beginsCounted reports whether in begins with a count, a space and '<', and whether that is known by now.
func beginsCounted(in []byte) (counts, known bool) {
	if in[0] < '1' || in[0] > '9' {
		return false, true
	}
	digits := 1
	for digits < len(in) && digits < maxCountDigits && '0' <= in[digits] && in[digits] <= '9' {
		digits++
	}
	const behind = " <"
	for i := range len(behind) {
		if digits+i == len(in) {
			return false, false
		}
		if in[digits+i] != behind[i] {
			return false, true
		}
	}
	return true, true
}

func (o *octetCounting) counted(in []byte) (Span, int, error) {
	count := int64(0)
	for i, c := range in {
		switch {
		case '0' <= c && c <= '9' && i < maxCountDigits:
			count = count*10 + int64(c-'0')
			continue
		case c != ' ':
			return Span{}, 0, badFrame("a count of %q", in[:i+1])
		}
		start := i + 1
		total := int64(start) + count
		switch {
		case count > int64(o.lines.max):
			n, err := o.skip.begin(in, total, tooLong(count, o.lines.max), o.lines.slow)
			return Span{}, n, err
		case total > int64(len(in)):
			return Span{}, int(total), ErrShort
		}
		return Span{start, int(total)}, int(total), nil
	}
	return Span{}, 0, ErrShort
}

func (o *octetCounting) Finish(in []byte) (Span, int, error) {
	switch {
	case len(in) == 0 && o.skip.err != nil:
		return Span{}, 0, o.skip.finish()
	case len(in) == 0 || o.lines.skipping || in[0] == '<':
		return o.lines.Finish(in)
	case o.resync && o.lined && in[0] != '\n' && string(in) != "\r" && !bytes.HasPrefix(in, []byte("\r\n")):
		if counts, _ := beginsCounted(in); !counts {
			return o.lines.Finish(in)
		}
	}
	return o.Decode(in)
}
