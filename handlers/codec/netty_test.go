package codec

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// The rows in this file and in nettyhandler_test.go are what Netty's decoders of the same formats are held to by its
// own tests and documentation. Where weir answers otherwise, a row has both answers and the place in docs/codecs.md
// that says why.

// nettyRow is a stream in pieces and what comes out of it after each, and after the end of the stream. What comes out
// is frames, and errors as errorText writes them.
type nettyRow struct {
	name  string
	split func() (Splitter, error)
	in    []string
	want  [][]string
	netty []string // all that Netty answers, where that is something else; an error of its is "error"
	why   string   // a deviation that docs/codecs.md lists
}

// The deviations in docs/codecs.md that frames show.
const (
	whyTail   = "An unfinished tail"
	whyLength = "A length that cannot be"
)

func lf(cfg LengthFieldConfig) func() (Splitter, error) {
	return func() (Splitter, error) { return SplitLengthField(cfg) }
}

func delimited(cfg DelimiterConfig, delimiters ...string) func() (Splitter, error) {
	for _, d := range delimiters {
		cfg.Delimiters = append(cfg.Delimiters, []byte(d))
	}
	return func() (Splitter, error) { return SplitDelimiter(cfg) }
}

func linesOf(cfg LinesConfig) func() (Splitter, error) {
	return func() (Splitter, error) { return SplitLines(cfg) }
}

func fixed(n int) func() (Splitter, error) {
	return func() (Splitter, error) { return SplitFixedLength(FixedLengthConfig{Bytes: n}) }
}

func varints(cfg Varint32Config) func() (Splitter, error) {
	return func() (Splitter, error) { return SplitVarint32(cfg) }
}

func longText(n int64, limit int) string { return errorText(tooLong(n, limit)) }

func badText(format string, args ...any) string { return errorText(badFrame(format, args...)) }

var nettyLengthFields = []nettyRow{
	{
		name:  "a frame that is too long is left out and the next one found",
		split: lf(LengthFieldConfig{Width: 4, MaxBytes: 16}),
		in:    []string{"\x00\x00\x00\x20" + sequence(0, 32) + "\x00\x00\x00\x01a"},
		// Netty hands out the frame at the next read or at the end of the stream.
		want: [][]string{{longText(36, 16), "\x00\x00\x00\x01a"}, nil},
	},
	{
		name:  "reported late, twice in a row",
		split: lf(LengthFieldConfig{Width: 4, Strip: 4, MaxBytes: 5, FailSlow: true}),
		in: []string{
			"\x00\x00\x00\x02", "\x00\x00", "\x00\x00\x00\x01A", "\x00\x00\x00\x02", "\x00\x00",
			"\x00\x00\x00\x01A",
		},
		want: [][]string{nil, {longText(6, 5)}, {"A"}, nil, {longText(6, 5)}, {"A"}, nil},
	},
	{
		name: "length in front, stripped", split: lf(LengthFieldConfig{Width: 2, Strip: 2, MaxBytes: 1024}),
		in: []string{"\x00\x0cHELLO, WORLD"}, want: [][]string{{"HELLO, WORLD"}, nil},
	},
	{
		name: "length of the whole frame", split: lf(LengthFieldConfig{Width: 2, Adjustment: -2, MaxBytes: 1024}),
		in: []string{"\x00\x0eHELLO, WORLD"}, want: [][]string{{"\x00\x0eHELLO, WORLD"}, nil},
	},
	{
		name: "a header before a length of three bytes", split: lf(LengthFieldConfig{Offset: 2, Width: 3, MaxBytes: 1024}),
		in: []string{"\xca\xfe\x00\x00\x0cHELLO, WORLD"}, want: [][]string{{"\xca\xfe\x00\x00\x0cHELLO, WORLD"}, nil},
	},
	{
		name: "a header behind the length", split: lf(LengthFieldConfig{Width: 3, Adjustment: 2, MaxBytes: 1024}),
		in: []string{"\x00\x00\x0c\xca\xfeHELLO, WORLD"}, want: [][]string{{"\x00\x00\x0c\xca\xfeHELLO, WORLD"}, nil},
	},
	{
		name:  "headers on both sides, the first stripped",
		split: lf(LengthFieldConfig{Offset: 1, Width: 2, Adjustment: 1, Strip: 3, MaxBytes: 1024}),
		in:    []string{"\xca\x00\x0c\xfeHELLO, WORLD"}, want: [][]string{{"\xfeHELLO, WORLD"}, nil},
	},
	{
		name:  "headers on both sides, and the length of all",
		split: lf(LengthFieldConfig{Offset: 1, Width: 2, Adjustment: -3, Strip: 3, MaxBytes: 1024}),
		in:    []string{"\xca\x00\x10\xfeHELLO, WORLD"}, want: [][]string{{"\xfeHELLO, WORLD"}, nil},
	},
	{
		name: "no bytes are one empty frame", split: lf(LengthFieldConfig{Width: 4, Strip: 4, MaxBytes: 1024}),
		in: []string{"\x00\x00\x00\x00"}, want: [][]string{{""}, nil},
	},
	{
		name:  "little endian, three bytes",
		split: lf(LengthFieldConfig{ByteOrder: binary.LittleEndian, Width: 3, Strip: 3, MaxBytes: 1024}),
		in:    []string{"\x02\x00\x00\xaa\xbb"}, want: [][]string{{"\xaa\xbb"}, nil},
	},
	{
		name: "one byte is unsigned", split: lf(LengthFieldConfig{Width: 1, Strip: 1, MaxBytes: 1024}),
		in: []string{"\xff" + strings.Repeat("\x11", 255)}, want: [][]string{{strings.Repeat("\x11", 255)}, nil},
	},
	{
		name: "eight bytes", split: lf(LengthFieldConfig{Width: 8, Strip: 8, MaxBytes: 1024}),
		in: []string{"\x00\x00\x00\x00\x00\x00\x00\x02\xaa\xbb"}, want: [][]string{{"\xaa\xbb"}, nil},
	},
	{
		name: "eight bytes with the top bit", split: lf(LengthFieldConfig{Width: 8, Strip: 8, MaxBytes: 1024}),
		in:    []string{strings.Repeat("\xff", 8), "\x00\x00\x00\x00\x00\x00\x00\x01\xcc"},
		want:  [][]string{{badText("a length of %d", uint64(1<<64-1))}, nil, nil},
		netty: []string{"error", "\xcc"}, why: whyLength,
	},
	{
		name: "four bytes with the top bit are 4294967295", split: lf(LengthFieldConfig{Width: 4, MaxBytes: 1024}),
		in: []string{"\xff\xff\xff\xff"}, want: [][]string{{longText(4294967299, 1024)}, nil},
	},
	{
		name: "a frame that ends inside its header", split: lf(LengthFieldConfig{Width: 2, Adjustment: -4, MaxBytes: 1024}),
		in:    []string{"\x00\x01", "\x00\x04"},
		want:  [][]string{{badText("a length of 1 makes a frame of -1 bytes, its header has 2")}, nil, nil},
		netty: []string{"error", "\x00\x04"}, why: whyLength,
	},
	{
		name: "a frame shorter than what is to be stripped", split: lf(LengthFieldConfig{Width: 2, Strip: 5, MaxBytes: 1024}),
		in:   []string{"\x00\x01\xaa", "\x00\x04\xaa\xbb\xcc\xdd"},
		want: [][]string{{badText("a frame of 3 bytes, of which 5 are to be stripped")}, {"\xdd"}, nil},
	},
	{
		name:  "the maximum counts the header",
		split: lf(LengthFieldConfig{Width: 2, Strip: 2, MaxBytes: 6}),
		in:    []string{"\x00\x04\xaa\xbb\xcc\xdd", "\x00\x05\xaa\xbb\xcc\xdd\xee", "\x00\x01\xff"},
		want:  [][]string{{"\xaa\xbb\xcc\xdd"}, {longText(7, 6)}, {"\xff"}, nil},
	},
}

var nettyDelimiters = []nettyRow{
	{
		name: "lines", split: delimited(DelimiterConfig{MaxBytes: 8192}, "\r\n", "\n"),
		in: []string{"TestLine\r\ng\r\n"}, want: [][]string{{"TestLine", "g"}, nil},
	},
	{
		name: "lines in pieces", split: delimited(DelimiterConfig{MaxBytes: 8192}, "\r\n", "\n"),
		in: []string{"Test", "Line\r\ng\r\n"}, want: [][]string{nil, {"TestLine", "g"}, nil},
	},
	{
		name: "lines with their ends", split: delimited(DelimiterConfig{MaxBytes: 8192, KeepEnd: true}, "\r\n", "\n"),
		in: []string{"Test", "Line\r\ng\r\n"}, want: [][]string{nil, {"TestLine\r\n", "g\r\n"}, nil},
	},
	{
		name: "a line that does not end", split: delimited(DelimiterConfig{MaxBytes: 8192}, "\r\n", "\n"),
		in: []string{"first\r\nsecond\nthird"}, want: [][]string{{"first", "second"}, {truncated(5)}},
		netty: []string{"first", "second"}, why: whyTail,
	},
	{
		name: "the first in the list where two begin", split: delimited(DelimiterConfig{MaxBytes: 100}, "\xab\xcd", "\xab"),
		in: []string{"\x01\xab\xcd\x02\xab\x03\xab\xcd"}, want: [][]string{{"\x01", "\x02", "\x03"}, nil},
	},
	{
		name: "the other order", split: delimited(DelimiterConfig{MaxBytes: 100}, "\xab", "\xab\xcd"),
		in: []string{"\x01\xab\xcd\x02\xab"}, want: [][]string{{"\x01", "\xcd\x02"}, nil},
	},
}

var nettyLines = []nettyRow{
	{
		name: "LF and CR LF", split: linesOf(LinesConfig{MaxBytes: 8192, FailSlow: true}),
		in: []string{"first\r\nsecond\nthird"}, want: [][]string{{"first", "second"}, {truncated(5)}},
		netty: []string{"first", "second"}, why: whyTail,
	},
	{
		name: "too long, reported once and at once", split: linesOf(LinesConfig{MaxBytes: 16, KeepEnd: true}),
		in:   []string{"12345678901234567", "890", "123\r\nfirst\r\n"},
		want: [][]string{{longText(0, 16)}, nil, {"first\r\n"}, nil},
	},
	{
		name: "CR and LF in two pieces", split: linesOf(LinesConfig{MaxBytes: 8192, KeepEnd: true, FailSlow: true}),
		in: []string{"huu", "haa\r", "\nhuuhaa\r\n"}, want: [][]string{nil, nil, {"huuhaa\r\n", "huuhaa\r\n"}, nil},
	},
	{
		name: "an empty line", split: linesOf(LinesConfig{MaxBytes: 8192, FailSlow: true}),
		in: []string{"\nabcna\r\n"}, want: [][]string{{"", "abcna"}, nil},
	},
	{
		name: "too long, reported at its end", split: linesOf(LinesConfig{MaxBytes: 2, KeepEnd: true, FailSlow: true}),
		in:   []string{"\x00\x01\x02", "\x03\x04", "\n", "5", "\n"},
		want: [][]string{nil, nil, {longText(0, 2)}, nil, {"5\n"}, nil},
	},
}

var nettyOthers = []nettyRow{
	{
		name: "fixed length", split: fixed(4), in: []string{sequence(0, 10)},
		want:  [][]string{{sequence(0, 4), sequence(4, 4)}, {truncated(2)}},
		netty: []string{sequence(0, 4), sequence(4, 4)}, why: whyTail,
	},
	{
		// Netty's varint32 decoder has no maximum.
		name: "a varint length in pieces, whose bits are mostly 0", split: varints(Varint32Config{MaxBytes: 4 << 20}),
		in:   []string{"\x80\x80\x80", "\x01", strings.Repeat("\x01", 2<<20)},
		want: [][]string{nil, nil, {strings.Repeat("\x01", 2<<20)}, nil},
	},
	{
		name: "four bytes of a length that goes on", split: varints(Varint32Config{MaxBytes: 1 << 30}),
		in: []string{"\x80\x80\x80\x80", "\x01"}, want: [][]string{nil, nil, {truncated(5)}},
		netty: []string{}, why: whyTail,
	},
	{
		name: "five bytes that go on", split: varints(Varint32Config{}),
		in:   []string{"\x80\x80\x80\x80\x80"},
		want: [][]string{{badText("a length of more than 32 bits: 80 80 80 80 80")}, nil},
	},
	{
		name: "no bytes are an empty message", split: varints(Varint32Config{}),
		in: []string{"\x00", "\x01A"}, want: [][]string{{""}, {"A"}, nil},
	},
	{
		name: "a length with more bytes than it needs", split: varints(Varint32Config{}),
		in: []string{"\x81\x00", "A"}, want: [][]string{nil, {"A"}, nil},
	},
}

func TestNettyFrames(t *testing.T) {
	reasons, err := os.ReadFile("../../docs/codecs.md")
	require.NoError(t, err)
	for kind, rows := range map[string][]nettyRow{
		"length field": nettyLengthFields, "delimiter": nettyDelimiters, "lines": nettyLines, "others": nettyOthers,
	} {
		for _, r := range rows {
			t.Run(kind+"/"+r.name, func(t *testing.T) {
				r.run(t)
				r.checkDeviation(t, string(reasons))
			})
		}
	}
}

func (r *nettyRow) run(t *testing.T) {
	s, err := r.split()
	require.NoError(t, err)
	ch, a := start(t, NewFramer(s), nil)
	require.Len(t, r.want, len(r.in)+1)
	for i, piece := range r.in {
		ch.WriteInbound(piece)
		assert.Equal(t, r.want[i], a.take(), "after piece %d", i)
	}
	ch.PeerClose()
	assert.Equal(t, r.want[len(r.in)], a.take(), "after the end of the stream")
	ch.Finish()

	all := []byte(strings.Join(r.in, ""))
	want := slices.Concat(r.want...)
	small := []byte{1}
	if len(all) > 1<<16 { // else it takes minutes
		small = []byte{1, 1, 1, 1, 1, 1, 251, 255, 1, 253, 255, 255}
	}
	assert.Equal(t, want, outcome(t, mustSplit(r.split()), all, small, nil), "byte by byte")
	assert.Equal(t, want, outcome(t, mustSplit(r.split()), all, nil, nil), "whole")
}

func (r *nettyRow) checkDeviation(t *testing.T, reasons string) {
	if r.why == "" {
		assert.Nil(t, r.netty)
		return
	}
	assert.Contains(t, reasons, "| "+r.why+" |")
	got := slices.Concat(r.want...)
	for i, text := range got {
		if strings.HasPrefix(text, "error: ") {
			got[i] = "error"
		}
	}
	assert.NotEqual(t, r.netty, got, "this is no deviation any more")
}

func TestNettyPrepends(t *testing.T) {
	field := func(cfg LengthFieldPrependerConfig) *Prepender {
		p, err := NewLengthFieldPrepender(cfg)
		require.NoError(t, err)
		return p
	}
	zeros := func(n int) string { return strings.Repeat("\x00", n) }
	ones := func(n int) string { return strings.Repeat("\x01", n) }
	for _, c := range []struct {
		name   string
		p      *Prepender
		msg    string
		header string // empty: refused
	}{
		{"adjusted", field(LengthFieldPrependerConfig{Width: 4, Adjustment: -1}), "A", "\x00\x00\x00\x00"},
		{
			"little endian", field(LengthFieldPrependerConfig{Width: 4, ByteOrder: binary.LittleEndian}), "A",
			"\x01\x00\x00\x00",
		},
		{"the most in one byte", field(LengthFieldPrependerConfig{Width: 1}), zeros(255), "\xff"},
		{"too much for one byte", field(LengthFieldPrependerConfig{Width: 1}), zeros(256), ""},
		{"too much for two bytes", field(LengthFieldPrependerConfig{Width: 2}), zeros(65536), ""},
		{"eight bytes", field(LengthFieldPrependerConfig{Width: 8}), "A", "\x00\x00\x00\x00\x00\x00\x00\x01"},
		{"counting itself", field(LengthFieldPrependerConfig{Width: 3, IncludesLength: true}), "A", "\x00\x00\x04"},
		{"varint of 4", NewVarint32Prepender(), ones(4), "\x04"},
		{"varint of 10", NewVarint32Prepender(), ones(10), "\x0a"},
		{"varint of 266", NewVarint32Prepender(), ones(266), "\x8a\x02"},
		{"varint of 2046", NewVarint32Prepender(), ones(2046), "\xfe\x0f"},
		{"varint of 2 MiB", NewVarint32Prepender(), ones(2 << 20), "\x80\x80\x80\x01"},
		{"varint of 128", NewVarint32Prepender(), ones(128), "\x80\x01"},
	} {
		for _, msg := range []any{c.msg, []byte(c.msg), buffer.Wrap([]byte(c.msg))} {
			var err error
			again := *c.p
			ch := pipelinetest.New(t, &again)
			ch.Do(func() { err = ch.Pipeline().Write(msg) })
			if c.header == "" {
				assert.ErrorIs(t, err, ErrEncode, "%s: %T", c.name, msg)
				assert.Empty(t, ch.OutboundString(), "%s: %T", c.name, msg)
			} else {
				assert.NoError(t, err, "%s: %T", c.name, msg)
				assert.True(t, c.header+c.msg == ch.OutboundString(), "%s: %T", c.name, msg)
			}
			ch.Finish()
		}
	}
}

func TestNettyRefusals(t *testing.T) {
	_, err := NewLengthFieldPrepender(LengthFieldPrependerConfig{Width: 5})
	assert.ErrorIs(t, err, ErrConfig)
	_, err = delimited(DelimiterConfig{MaxBytes: 10}, "")()
	assert.ErrorIs(t, err, ErrConfig)
	_, err = fixed(0)()
	assert.ErrorIs(t, err, ErrConfig)
}

// sequence is n bytes that count up from first.
func sequence(first, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(first + i)
	}
	return string(b)
}
