package codec

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bounded is a format with a maximum of mostBytes.
type bounded struct {
	name  string
	split func(slow bool) (Splitter, error)
	wire  func(n int) string // a frame of n bytes, as the maximum counts them
	frame func(n int) string // what is handed on of it
}

const mostBytes = 9

func body(n int) string { return strings.Repeat("x", n) }

func boundedLines(cfg LinesConfig) func(slow bool) (Splitter, error) {
	cfg.MaxBytes = mostBytes
	return func(slow bool) (Splitter, error) {
		cfg.FailSlow = slow
		return SplitLines(cfg)
	}
}

func boundedDelimiters(cfg DelimiterConfig, delimiters ...string) func(slow bool) (Splitter, error) {
	cfg.MaxBytes = mostBytes
	return func(slow bool) (Splitter, error) {
		cfg.FailSlow = slow
		return delimited(cfg, delimiters...)()
	}
}

func boundedOctets(slow bool) (Splitter, error) {
	return SplitOctetCounting(OctetCountingConfig{MaxBytes: mostBytes, FailSlow: slow})
}

func behind(end string) func(n int) string { return func(n int) string { return body(n) + end } }

var boundedFormats = []bounded{
	{
		"length field",
		func(slow bool) (Splitter, error) {
			return SplitLengthField(LengthFieldConfig{Width: 1, Strip: 1, MaxBytes: mostBytes, FailSlow: slow})
		},
		func(n int) string { return string(rune(n-1)) + body(n-1) },
		func(n int) string { return body(n - 1) },
	},
	{
		"length of the whole frame behind a header",
		func(slow bool) (Splitter, error) {
			return SplitLengthField(LengthFieldConfig{
				Offset: 1, Width: 2, Adjustment: -3, MaxBytes: mostBytes, FailSlow: slow,
			})
		},
		func(n int) string { return "h\x00" + string(rune(max(n, 3))) + body(n-min(n, 3)) },
		func(n int) string { return "h\x00" + string(rune(max(n, 3))) + body(n-min(n, 3)) },
	},
	{"lines", boundedLines(LinesConfig{}), behind("\n"), body},
	{"lines with CR", boundedLines(LinesConfig{}), behind("\r\n"), body},
	{"lines with their ends", boundedLines(LinesConfig{KeepEnd: true}), behind("\n"), behind("\n")},
	{"lines with CR and their ends", boundedLines(LinesConfig{KeepEnd: true}), behind("\r\n"), behind("\r\n")},
	{"delimiter", boundedDelimiters(DelimiterConfig{}, "<>"), behind("<>"), body},
	{"delimiter with its end", boundedDelimiters(DelimiterConfig{KeepEnd: true}, "<>"), behind("<>"), behind("<>")},
	{"the short one of delimiters", boundedDelimiters(DelimiterConfig{}, "<end>", ";", "--"), behind(";"), body},
	{"the long one of delimiters", boundedDelimiters(DelimiterConfig{}, "<end>", ";", "--"), behind("<end>"), body},
	{"the one of delimiters in between", boundedDelimiters(DelimiterConfig{}, "<end>", ";", "--"), behind("--"), body},
	{"the long one of two that begin alike", boundedDelimiters(DelimiterConfig{}, ";;;;", ";"), behind(";;;;"), body},
	{
		"varint32",
		func(slow bool) (Splitter, error) {
			return SplitVarint32(Varint32Config{MaxBytes: mostBytes, FailSlow: slow})
		},
		func(n int) string { return string(rune(n)) + body(n) }, body,
	},
	{
		"varint32 with a length of five bytes",
		func(slow bool) (Splitter, error) {
			return SplitVarint32(Varint32Config{MaxBytes: mostBytes, FailSlow: slow})
		},
		func(n int) string { return string([]byte{byte(n) | 0x80, 0x80, 0x80, 0x80, 0}) + body(n) }, body,
	},
	{"octets counted", boundedOctets, func(n int) string { return strconv.Itoa(n) + " " + body(n) }, body},
	{
		"octets counted, behind the CR LF of others",
		boundedOctets,
		func(n int) string { return "\r\n" + strconv.Itoa(n) + " " + body(n) }, body,
	},
	{
		"octets to LF", boundedOctets,
		func(n int) string { return "<" + body(n-1) + "\n" },
		func(n int) string { return "<" + body(n-1) },
	},
	{
		"octets to CR LF", boundedOctets,
		func(n int) string { return "<" + body(n-1) + "\r\n" },
		func(n int) string { return "<" + body(n-1) },
	},
}

func TestAFrameOfTheMaximumPassesAndOneByteMoreDoesNot(t *testing.T) {
	for _, c := range boundedFormats {
		for _, slow := range []bool{false, true} {
			for n := mostBytes - 1; n <= mostBytes+2; n++ {
				for _, size := range []byte{0xff, 3, 1} {
					about := fmt.Sprintf("%s: %d bytes in pieces of %d, reported late: %v", c.name, n, size, slow)
					got := outcome(t, mustSplit(c.split(slow)), []byte(c.wire(n)+c.wire(2)), []byte{size}, nil)
					require.Len(t, got, 2, "%s: %q", about, got)
					if n <= mostBytes {
						assert.Equal(t, c.frame(n), got[0], about)
					} else {
						assert.Contains(t, got[0], ErrFrameTooLong.Error(), about)
					}
					assert.Equal(t, c.frame(2), got[1], "what comes behind: %s", about)
				}
			}
		}
	}
}

// TestATooLongFrameIsReportedOnce follows one frame that is too long: its error comes with the byte that makes it too
// long or with its length, or at its end, and never twice, also when the stream ends within it.
func TestATooLongFrameIsReportedOnce(t *testing.T) {
	for _, c := range boundedFormats {
		wire := c.wire(100)
		for _, slow := range []bool{false, true} {
			for _, whole := range []bool{false, true} {
				about := fmt.Sprintf("%s, reported late: %v, whole: %v", c.name, slow, whole)
				ch, a := start(t, NewFramer(mustSplit(c.split(slow))), nil)
				last := len(wire) - 1
				ch.WriteInboundSplit([]byte(wire[:last]), 7)
				if slow {
					assert.Empty(t, a.got, about)
				} else {
					assert.Len(t, a.got, 1, about)
				}
				if whole {
					ch.WriteInbound(wire[last:], c.wire(2))
					require.Len(t, a.got, 2, about)
					assert.Equal(t, c.frame(2), a.got[1], about)
				}
				ch.PeerClose()
				require.NotEmpty(t, a.got, about)
				require.Len(t, a.errors, 1, about)
				assert.ErrorIs(t, a.errors[0], ErrFrameTooLong, about)
				tooLong := &TooLongError{}
				require.ErrorAs(t, a.errors[0], &tooLong, about)
				assert.Equal(t, mostBytes, tooLong.MaxBytes, about)
				ch.Finish()
			}
		}
	}
}

func TestTheTailOfAStreamHasTheSameMaximum(t *testing.T) {
	line := LinesConfig{MaxBytes: mostBytes, FinalLine: true}
	kept := LinesConfig{MaxBytes: mostBytes, FinalLine: true, KeepEnd: true}
	slow := LinesConfig{MaxBytes: mostBytes, FinalLine: true, FailSlow: true}
	final := DelimiterConfig{MaxBytes: mostBytes, FinalFrame: true}
	octets := func() (Splitter, error) {
		return SplitOctetCounting(OctetCountingConfig{MaxBytes: mostBytes, FinalLine: true})
	}
	for _, c := range []struct {
		name  string
		split func() (Splitter, error)
		tail  func(n int) string
		frame func(n int) string
	}{
		{"line", linesOf(line), body, body},
		{"line with CR", linesOf(line), behind("\r"), body},
		{"line as it is", linesOf(kept), body, body},
		{"line with CR as it is", linesOf(kept), behind("\r"), behind("\r")},
		{"line reported late", linesOf(slow), body, body},
		{"delimiters", delimited(final, "<end>", ";"), body, body},
		{
			"delimiters and the beginning of one", delimited(final, "<end>", ";"),
			func(n int) string { return body(n-3) + "<en" }, func(n int) string { return body(n-3) + "<en" },
		},
		{"octets", octets, func(n int) string { return "<" + body(n-1) }, func(n int) string { return "<" + body(n-1) }},
	} {
		for n := mostBytes - 1; n <= mostBytes+1; n++ {
			for _, size := range []byte{0xff, 1} {
				got := outcome(t, mustSplit(c.split()), []byte(c.tail(n)), []byte{size}, nil)
				want := c.frame(n)
				if n > mostBytes {
					want = longText(0, mostBytes)
				}
				assert.Equal(t, []string{want}, got, "%s: %d bytes in pieces of %d", c.name, n, size)
			}
		}
	}
}

func TestATailThatIsNoFrameIsTruncated(t *testing.T) {
	lines := LinesConfig{MaxBytes: mostBytes}
	octets := func() (Splitter, error) {
		return SplitOctetCounting(OctetCountingConfig{MaxBytes: mostBytes, FinalLine: true})
	}
	for _, c := range []struct {
		name  string
		split func() (Splitter, error)
		tail  string
	}{
		{"length field: its header", lf(LengthFieldConfig{Width: 2}), "\x00"},
		{"length field: its body", lf(LengthFieldConfig{Width: 2}), "\x00\x03ab"},
		{"line", linesOf(lines), "line"},
		{"line with CR", linesOf(lines), "line\r"},
		{"line of the maximum", linesOf(lines), body(mostBytes) + "\r"},
		{"line, reported late", linesOf(LinesConfig{MaxBytes: mostBytes, FailSlow: true}), "line"},
		{"delimiter", delimited(DelimiterConfig{}, "<end>"), "frame<en"},
		{"fixed length", fixed(10), "123456789"},
		{"varint32: its length", varints(Varint32Config{}), "\x80\x80\x80\x80"},
		{"varint32: its message", varints(Varint32Config{}), "\x03ab"},
		{"octets: the count", octets, "12"},
		{"octets: the message", octets, "4 abc"},
		{"octets: CR", octets, "\r"},
	} {
		assert.Equal(t, []string{truncated(len(c.tail))}, outcome(t, mustSplit(c.split()), []byte(c.tail), []byte{1}, nil),
			c.name)
		assert.Equal(t, []string{truncated(len(c.tail))}, outcome(t, mustSplit(c.split()), []byte(c.tail), nil, nil), c.name)
	}
}

func TestLengthsAtTheEdgesOfTheirRange(t *testing.T) {
	const most = 1 << 30
	for _, c := range []struct {
		name  string
		split func() (Splitter, error)
		in    string
		want  string
	}{
		{
			"the longest length", lf(LengthFieldConfig{Width: 8, MaxBytes: most}), "\x7f" + strings.Repeat("\xff", 7),
			errorText(ErrFrameTooLong),
		},
		{
			"one more", lf(LengthFieldConfig{Width: 8, MaxBytes: most}), "\x80" + strings.Repeat("\x00", 7),
			badText("a length of %d", uint64(1<<63)),
		},
		{
			"four bytes and all that may be added", lf(LengthFieldConfig{Width: 4, Adjustment: 1<<31 - 1, MaxBytes: most}),
			"\xff\xff\xff\xff", longText(1<<32-1+1<<31-1+4, most),
		},
		{"32 bits of varint", varints(Varint32Config{MaxBytes: most}), "\xff\xff\xff\xff\x0f", longText(1<<32-1, most)},
		{
			"33 bits of varint", varints(Varint32Config{MaxBytes: most}), "\xff\xff\xff\xff\x1f",
			badText("a length of more than 32 bits: ff ff ff ff 1f"),
		},
		{
			"a varint of six bytes", varints(Varint32Config{MaxBytes: most}), "\x81\x80\x80\x80\x80\x00",
			badText("a length of more than 32 bits: 81 80 80 80 80"),
		},
		{
			"ten digits",
			func() (Splitter, error) { return SplitOctetCounting(OctetCountingConfig{MaxBytes: most}) },
			"9999999999 ", longText(9999999999, most),
		},
		{
			"eleven digits",
			func() (Splitter, error) { return SplitOctetCounting(OctetCountingConfig{MaxBytes: most}) },
			"10000000000 ", badText("a count of %q", "10000000000"),
		},
	} {
		for _, size := range []byte{0xff, 1} {
			got := outcome(t, mustSplit(c.split()), []byte(c.in), []byte{size}, nil)
			require.Len(t, got, 1, c.name)
			assert.True(t, strings.HasPrefix(got[0], c.want), "%s: %s", c.name, got[0])
		}
	}
}

func TestConfigurationsThatMakeNoSenseAreRefused(t *testing.T) {
	most := func(n int) []func() (Splitter, error) {
		return []func() (Splitter, error){
			lf(LengthFieldConfig{Width: 1, MaxBytes: n}), linesOf(LinesConfig{MaxBytes: n}),
			delimited(DelimiterConfig{MaxBytes: n}, ";"), varints(Varint32Config{MaxBytes: n}),
			func() (Splitter, error) { return SplitOctetCounting(OctetCountingConfig{MaxBytes: n}) },
		}
	}
	for n, ok := range map[int]bool{-1: false, 0: true, 1: true, 1 << 30: true, 1<<30 + 1: false} {
		for i, split := range append(most(n), fixed(n)) {
			s, err := split()
			if n == 0 && i == 5 { // a fixed length has no default
				assert.ErrorIs(t, err, ErrConfig)
				continue
			}
			assert.Equal(t, ok, err == nil, "%d: format %d", n, i)
			if !ok {
				assert.ErrorIs(t, err, ErrConfig)
				assert.Nil(t, s)
			}
		}
	}
	for _, c := range []LengthFieldConfig{
		{Width: 0},
		{Width: 9},
		{Width: 1, Offset: -1},
		{Width: 4, Offset: 7, MaxBytes: 10},
		{Width: 1, Strip: -1},
		{Width: 1, Strip: 11, MaxBytes: 10},
		{Width: 1, Adjustment: 1 << 31},
		{Width: 1, Adjustment: -1 << 31},
		{Width: 4, ByteOrder: middleEndian{}},
	} {
		f, err := NewLengthField(c)
		assert.ErrorIs(t, err, ErrConfig, "%+v", c)
		assert.Nil(t, f)
	}
	_, err := SplitLengthField(LengthFieldConfig{Width: 4, Offset: 6, Strip: 10, MaxBytes: 10})
	assert.NoError(t, err)
	for _, n := range []int{0, 1<<10 + 1} {
		_, err := delimited(DelimiterConfig{}, ";", strings.Repeat("-", n))()
		assert.ErrorIs(t, err, ErrConfig)
	}
	_, err = delimited(DelimiterConfig{})()
	assert.ErrorIs(t, err, ErrConfig)
	for _, c := range []LengthFieldPrependerConfig{
		{Width: 0}, {Width: 5}, {Width: 4, Adjustment: 1 << 31}, {Width: 4, ByteOrder: middleEndian{}},
	} {
		_, err := NewLengthFieldPrepender(c)
		assert.ErrorIs(t, err, ErrConfig, "%+v", c)
	}
}

// middleEndian is the order of the PDP-11.
type middleEndian struct{ binary.ByteOrder }

func (middleEndian) Uint32(b []byte) uint32 {
	return uint32(b[1])<<24 | uint32(b[0])<<16 | uint32(b[3])<<8 | uint32(b[2])
}
