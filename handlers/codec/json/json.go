// Package json cuts a stream into JSON texts (RFC 8259), one behind the other with or without white space between: it
// finds where objects and arrays end, aware of strings and escapes, and leaves the rest to whoever parses them.
package json

import (
	"fmt"

	"github.com/weirnet/weir/handlers/codec"
)

// Config says what a frame is. The zero value works.
type Config struct {
	// MaxBytes bounds a frame. Zero means 1 MiB.
	MaxBytes int
	// Elements makes a frame of each element of an array at the top, whatever it is, instead of the whole array: for an
	// array that has no end in sight.
	Elements bool
}

// New returns a handler whose frames are objects and arrays, without white space around them. A frame that is too long
// is reported and skipped; anything but an object or array at the top ends the stream. Brackets are counted, not
// matched: a frame that is no JSON is for its parser to refuse.
func New(cfg Config) (*codec.Framer, error) {
	s, err := Split(cfg)
	if err != nil {
		return nil, err
	}
	return codec.NewFramer(s), nil
}

// Split is the Splitter of New.
func Split(cfg Config) (codec.Splitter, error) {
	if cfg.MaxBytes < 0 || cfg.MaxBytes > 1<<30 {
		return nil, fmt.Errorf("%w: json: MaxBytes is %d", codec.ErrConfig, cfg.MaxBytes)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = codec.DefaultMaxBytes
	}
	return &splitter{max: cfg.MaxBytes, elements: cfg.Elements}, nil
}

// place is where in a stream the next frame may begin.
type place uint8

const (
	top          place = iota
	firstElement       // behind the '[' of an array whose elements are frames
	element            // behind a ','
	behind             // behind an element
)

// kind is what a frame that has begun is.
type kind uint8

const (
	none   kind = iota
	nested      // an object or array
	text        // a string
	scalar      // a number, true, false, null
)

type splitter struct {
	max      int
	elements bool

	place    place
	kind     kind
	quoted   bool // within a string
	escaped  bool // behind a backslash
	skipping bool // a frame that is too long
	depth    int
	pos      int // bytes of the frame that have been looked at
}

// MaxMessageBytes is part of codec.Limiter.
func (s *splitter) MaxMessageBytes() int { return s.max + 1 }

// Decode is part of codec.Decoder.
func (s *splitter) Decode(in []byte) (codec.Span, int, error) {
	if s.kind == none {
		if n, err := s.begin(in); err != nil {
			return codec.Span{}, n, err
		}
	}
	switch end := s.scan(in); {
	case end == 0: // a number that was skipped ended where the last bytes did
		s.ended()
		return s.Decode(in)
	case end > 0:
		return s.frame(end)
	case s.skipping:
		s.pos = 0
		return codec.Span{}, len(in), codec.ErrSkip
	case s.pos < s.max || s.pos == s.max && s.kind == scalar:
		return codec.Span{}, 0, codec.ErrShort
	}
	s.skipping, s.pos = true, 0
	return codec.Span{}, len(in), s.tooLong()
}

// Finish is part of codec.Finisher: a frame at the top says itself where it ends, so only what is incomplete is left.
func (s *splitter) Finish(in []byte) (codec.Span, int, error) {
	if len(in) > 0 {
		return s.Decode(in)
	}
	if s.place == top {
		return codec.Span{}, 0, codec.ErrShort
	}
	s.place = top
	return codec.Span{}, 0, fmt.Errorf("%w: an array is open", codec.ErrTruncated)
}

// begin looks at what stands at the front, where no frame has begun. Without an error, one begins there.
func (s *splitter) begin(in []byte) (n int, err error) {
	for n < len(in) && isSpace(in[n]) {
		n++
	}
	if n > 0 {
		return n, codec.ErrSkip
	}
	c := in[0]
	switch {
	case s.place == behind && c == ',':
		s.place = element
		return 1, codec.ErrSkip
	case (s.place == behind || s.place == firstElement) && c == ']':
		s.place = top
		return 1, codec.ErrSkip
	case s.place == behind:
		return 0, s.bad(c)
	case s.place == top && c == '[' && s.elements:
		s.place = firstElement
		return 1, codec.ErrSkip
	case c == '{' || c == '[':
		s.kind = nested
	case s.place == top:
		return 0, s.bad(c)
	case c == '"':
		s.kind = text
	case isScalar(c):
		s.kind = scalar
	default:
		return 0, s.bad(c)
	}
	return 0, nil
}

// scan goes on looking for the end of the frame; -1: it is not in in.
func (s *splitter) scan(in []byte) int {
	if s.kind == scalar {
		for s.pos < len(in) {
			if !isScalar(in[s.pos]) {
				return s.pos
			}
			s.pos++
		}
		return -1
	}
	for i, c := range in[s.pos:] {
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted && c == '\\':
			s.escaped = true
		case c == '"':
			s.quoted = !s.quoted
			if s.kind == text && !s.quoted {
				return s.pos + i + 1
			}
		case s.quoted:
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			if s.depth--; s.depth == 0 {
				return s.pos + i + 1
			}
		}
	}
	s.pos = len(in)
	return -1
}

// frame returns the frame that ends at end.
func (s *splitter) frame(end int) (codec.Span, int, error) {
	skipped := s.skipping
	s.ended()
	switch {
	case skipped:
		return codec.Span{}, end, codec.ErrSkip
	case end > s.max:
		return codec.Span{}, end, s.tooLong()
	}
	return codec.Span{Start: 0, End: end}, end, nil
}

func (s *splitter) ended() {
	s.kind, s.depth, s.pos, s.skipping = none, 0, 0, false
	if s.place != top {
		s.place = behind
	}
}

func (s *splitter) tooLong() error { return &codec.TooLongError{MaxBytes: s.max} }

func (s *splitter) bad(c byte) error { return fmt.Errorf("%w: json: %q", codec.ErrBadFrame, c) }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func isScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '+' || c == '.'
}
