package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// format is a framing with an implementation that looks at the whole input.
type format struct {
	name  string
	split func() Splitter
	naive func(in []byte) []string
	seeds []string
}

// fuzzFormats checks that any split of an input, with pauses anywhere, gives what its naive implementation gives.
func fuzzFormats(f *testing.F, formats []format) {
	for _, m := range formats {
		for _, s := range m.seeds {
			f.Add([]byte(s), []byte{1}, []byte{0})
			f.Add([]byte(s), []byte{3, 1, 5}, []byte{1, 0, 3})
			f.Add([]byte(s), []byte{}, []byte{1, 7})
		}
	}
	f.Fuzz(func(t *testing.T, in, splits, pauses []byte) {
		for _, m := range formats {
			m.check(t, in, splits, pauses)
		}
	})
}

func (m format) check(t *testing.T, in, splits, pauses []byte) {
	t.Helper()
	want := m.naive(in)
	got := outcome(t, m.split(), in, splits, pauses)
	if !reflect.DeepEqual(want, got) && len(want)+len(got) > 0 {
		t.Fatalf("%s of %q in pieces of %v:\nwant %q\ngot  %q", m.name, in, splits, want, got)
	}
}

func truncated(n int) string { return fmt.Sprintf("error: %v: after %d bytes of it", ErrTruncated, n) }

func linesFormat(cfg LinesConfig) format {
	return format{
		name:  fmt.Sprintf("%+v", cfg),
		split: func() Splitter { return mustSplit(SplitLines(cfg)) },
		naive: func(in []byte) (events []string) {
			for len(in) > 0 {
				line, rest, whole := bytes.Cut(in, []byte("\n"))
				text := bytes.TrimSuffix(line, []byte("\r"))
				switch {
				case len(text) > cfg.MaxBytes:
					events = append(events, errorText(tooLong(0, cfg.MaxBytes)))
				case !whole && !cfg.FinalLine:
					return append(events, truncated(len(line)))
				case cfg.KeepEnd:
					events = append(events, string(in[:len(in)-len(rest)]))
				default:
					events = append(events, string(text))
				}
				in = rest
			}
			return events
		},
		seeds: []string{
			"a\nbc\r\n\r\n\nd\re\r\r\n", "123456789\r\n12345678\r\n12345678\r", "12345678901234567890\n1",
			"12345678\rx", strings.Repeat("a\n123456789\nbc\r\n", 24),
		},
	}
}

func FuzzLines(f *testing.F) {
	fuzzFormats(f, []format{
		linesFormat(LinesConfig{MaxBytes: 8}),
		linesFormat(LinesConfig{MaxBytes: 8, FailSlow: true, FinalLine: true}),
		linesFormat(LinesConfig{MaxBytes: 8, KeepEnd: true}),
		linesFormat(LinesConfig{MaxBytes: 1 << 20, KeepEnd: true, FinalLine: true}),
	})
}

// FuzzLinesAsBufio holds lines to bufio.ScanLines, where none is too long.
func FuzzLinesAsBufio(f *testing.F) {
	many := strings.Repeat("a\nbc\r\n\nlonger\r\n", 24)
	for _, s := range []string{"a\nbc\r\n\r\n\nd\re\r\r\nrest", "\r", "\n\r", "one\r\ntwo\r", many} {
		f.Add([]byte(s), []byte{1}, []byte{0})
		f.Add([]byte(s), []byte{2, 1}, []byte{1, 3})
	}
	f.Fuzz(func(t *testing.T, in, splits, pauses []byte) {
		var want []string
		for sc := bufio.NewScanner(bytes.NewReader(in)); sc.Scan(); {
			want = append(want, sc.Text())
		}
		s := mustSplit(SplitLines(LinesConfig{MaxBytes: bufio.MaxScanTokenSize, FinalLine: true}))
		got := outcome(t, s, in, splits, pauses)
		if len(in) < bufio.MaxScanTokenSize && !slices.Equal(want, got) {
			t.Fatalf("%q in pieces of %v:\nwant %q\ngot  %q", in, splits, want, got)
		}
	})
}

func octetFormat(cfg OctetCountingConfig) format {
	return format{
		name:  fmt.Sprintf("%+v", cfg),
		split: func() Splitter { return mustSplit(SplitOctetCounting(cfg)) },
		naive: func(in []byte) []string { return naiveOctets(cfg, in) },
		seeds: []string{
			"5 hello11 <13>message<1>a\n\r\n\n<2>b\r\n3 <x>", "99 " + string(make([]byte, 99)) + "1 a",
			"<1>" + string(make([]byte, 30)) + "\n1 b", "0 ", "12a", "12345678901 ", "x", "4 ab", "\r", "\rx", "<abc", "1",
			"999999999 ab", "<1>a\n\tat b\n\n12 c\n12345678901 \n0\n3 <x>x<2>c\n1", "<1>a\n3 <x>\tat",
			"<1>a\n\rb\n\r", "<1>a\n12 ",
			"<1>a\n <x>b", "<1>a\n0 <x>b",
		},
	}
}

func naiveOctets(cfg OctetCountingConfig, in []byte) (events []string) {
	lined := false
	for len(in) > 0 {
		counts := regexp.MustCompile(`^[1-9][0-9]{0,9} <`).Match(in)
		switch c := in[0]; {
		case c == '\n':
			in = in[1:]
		case bytes.HasPrefix(in, []byte("\r\n")):
			in = in[2:]
		case string(in) == "\r":
			return append(events, truncated(1))
		case c == '<', cfg.Resync && lined && !counts:
			lined = true
			line, _, whole := bytes.Cut(in, []byte("\n"))
			next := len(line)
			if whole {
				next++
			}
			one := linesFormat(LinesConfig{MaxBytes: cfg.MaxBytes, FinalLine: cfg.FinalLine}).naive(in[:next])
			events, in = append(events, one...), in[next:]
		default:
			lined = false
			digits := 0
			for digits < len(in) && '0' <= in[digits] && in[digits] <= '9' && digits < maxCountDigits {
				digits++
			}
			if c < '1' || c > '9' {
				return append(events, errorText(badFrame("a message begins with %q", c)))
			}
			if digits == len(in) {
				return append(events, truncated(len(in)))
			}
			if in[digits] != ' ' {
				return append(events, errorText(badFrame("a count of %q", in[:digits+1])))
			}
			count := 0
			fmt.Sscan(string(in[:digits]), &count)
			body := in[digits+1:]
			if count > cfg.MaxBytes {
				events, in = append(events, errorText(tooLong(int64(count), cfg.MaxBytes))), body[min(len(body), count):]
				continue
			}
			if len(body) < count {
				return append(events, truncated(len(in)))
			}
			events, in = append(events, string(body[:count])), body[count:]
		}
	}
	return events
}

func FuzzOctetCounting(f *testing.F) {
	fuzzFormats(f, []format{
		octetFormat(OctetCountingConfig{MaxBytes: 12}),
		octetFormat(OctetCountingConfig{MaxBytes: 12, FailSlow: true, FinalLine: true}),
		octetFormat(OctetCountingConfig{MaxBytes: 12, Resync: true}),
		octetFormat(OctetCountingConfig{MaxBytes: 12, Resync: true, FailSlow: true, FinalLine: true}),
	})
}

func lengthFieldFormat(cfg LengthFieldConfig) format {
	little, _ := isLittle(cfg.ByteOrder)
	header := cfg.Offset + cfg.Width
	naive := func(in []byte) (events []string) {
		for len(in) > 0 {
			if len(in) < header {
				return append(events, truncated(len(in)))
			}
			length := uint64(0)
			for i := range cfg.Width {
				c := in[cfg.Offset+i]
				if little {
					c = in[header-1-i]
				}
				length = length<<8 | uint64(c)
			}
			total := int64(length) + int64(header+cfg.Adjustment)
			switch {
			case length > 1<<63-1:
				return append(events, errorText(badFrame("a length of %d", length)))
			case total < int64(header):
				return append(events, errorText(badFrame("a length of %d makes a frame of %d bytes, its header has %d", length,
					total, header)))
			case total > int64(cfg.MaxBytes):
				events = append(events, errorText(tooLong(total, cfg.MaxBytes)))
				in = in[min(int64(len(in)), total):]
			case total > int64(len(in)):
				return append(events, truncated(len(in)))
			case total < int64(cfg.Strip):
				events = append(events, errorText(badFrame("a frame of %d bytes, of which %d are to be stripped", total,
					cfg.Strip)))
				in = in[total:]
			default:
				events = append(events, string(in[cfg.Strip:total]))
				in = in[total:]
			}
		}
		return events
	}
	return format{
		name: fmt.Sprintf("%+v", cfg), naive: naive,
		split: func() Splitter { return mustSplit(SplitLengthField(cfg)) },
		seeds: []string{
			"\x00\x05hello\x00\x00\x00\x01x", "\x00\x00\x05hello\x00\x00\x00\x00\x00\x01",
			"\x7f\x00" + string(make([]byte, 40)) + "\x00\x01a",
			"\x00\x00\x00\x00\x00\x00\x00\x02ab\xff\xff\xff\xff\xff\xff\xff\xff", "\x01",
		},
	}
}

func FuzzLengthField(f *testing.F) {
	var formats []format
	for width := 1; width <= 8; width++ {
		formats = append(formats, lengthFieldFormat(LengthFieldConfig{Width: width, MaxBytes: 32}))
	}
	formats = append(
		formats,
		lengthFieldFormat(LengthFieldConfig{Width: 3, Offset: 1, Adjustment: -4, Strip: 5, MaxBytes: 32, FailSlow: true}),
		lengthFieldFormat(LengthFieldConfig{ByteOrder: binary.LittleEndian, Width: 2, Strip: 2, MaxBytes: 1 << 16}),
		lengthFieldFormat(LengthFieldConfig{ByteOrder: binary.LittleEndian, Width: 6, Adjustment: 2, Strip: 1, MaxBytes: 32}),
		lengthFieldFormat(LengthFieldConfig{ByteOrder: binary.BigEndian, Width: 1, Strip: 3, MaxBytes: 200, FailSlow: true}),
	)
	fuzzFormats(f, formats)
}

func delimiterFormat(cfg DelimiterConfig) format {
	naive := func(in []byte) (events []string) {
	frames:
		for len(in) > 0 {
			for i := range in {
				for _, d := range cfg.Delimiters {
					if !bytes.HasPrefix(in[i:], d) {
						continue
					}
					switch {
					case i > cfg.MaxBytes:
						events = append(events, errorText(tooLong(0, cfg.MaxBytes)))
					case cfg.KeepEnd:
						events = append(events, string(in[:i+len(d)]))
					default:
						events = append(events, string(in[:i]))
					}
					in = in[i+len(d):]
					continue frames
				}
			}
			switch {
			case len(in) > cfg.MaxBytes:
				return append(events, errorText(tooLong(0, cfg.MaxBytes)))
			case cfg.FinalFrame:
				return append(events, string(in))
			}
			return append(events, truncated(len(in)))
		}
		return events
	}
	return format{
		name: fmt.Sprintf("%+v", cfg), naive: naive,
		split: func() Splitter { return mustSplit(SplitDelimiter(cfg)) },
		seeds: []string{"01abcd02ab03abcd", "aab\nabcabcd", "x\r\ny\nz\r", "123456789012\r\nab1", "abc\nXab"},
	}
}

func FuzzDelimiter(f *testing.F) {
	marks := func(s ...string) (d [][]byte) {
		for _, m := range s {
			d = append(d, []byte(m))
		}
		return d
	}
	fuzzFormats(f, []format{
		delimiterFormat(DelimiterConfig{Delimiters: marks("\r\n", "\n"), MaxBytes: 8}),
		delimiterFormat(DelimiterConfig{
			Delimiters: marks("abcd", "ab", "bc\nX"), MaxBytes: 6, KeepEnd: true,
			FinalFrame: true,
		}),
		delimiterFormat(DelimiterConfig{Delimiters: marks("ab", "abcd", "aa"), MaxBytes: 4, FailSlow: true}),
	})
}

func fixedFormat(n int) format {
	return format{
		name:  fmt.Sprintf("%d bytes", n),
		split: func() Splitter { return mustSplit(SplitFixedLength(FixedLengthConfig{Bytes: n})) },
		naive: func(in []byte) (events []string) {
			for frame := range slices.Chunk(in, n) {
				if len(frame) < n {
					return append(events, truncated(len(frame)))
				}
				events = append(events, string(frame))
			}
			return events
		},
		seeds: []string{"", "a", "abcdefg", "0123456789abcdef0123456789abcdef0"},
	}
}

func FuzzFixedLength(f *testing.F) {
	fuzzFormats(f, []format{fixedFormat(1), fixedFormat(3), fixedFormat(16), fixedFormat(1000)})
}

func varintFormat(cfg Varint32Config) format {
	naive := func(in []byte) (events []string) {
		for len(in) > 0 {
			length, n := binary.Uvarint(in[:min(len(in), maxVarint32Bytes)])
			switch {
			case n > 0 && length > 1<<32-1 || n == 0 && len(in) >= maxVarint32Bytes:
				return append(events, errorText(badFrame("a length of more than 32 bits: % x", in[:maxVarint32Bytes])))
			case n == 0:
				return append(events, truncated(len(in)))
			case length > uint64(cfg.MaxBytes):
				events = append(events, errorText(tooLong(int64(length), cfg.MaxBytes)))
				in = in[min(uint64(len(in)), length+uint64(n)):]
				continue
			case uint64(len(in)-n) < length:
				return append(events, truncated(len(in)))
			}
			events, in = append(events, string(in[n:n+int(length)])), in[n+int(length):]
		}
		return events
	}
	return format{
		name: fmt.Sprintf("%+v", cfg), naive: naive,
		split: func() Splitter { return mustSplit(SplitVarint32(cfg)) },
		seeds: []string{
			"\x00\x01A\x81\x00A", "\x80\x80\x80\x80\x80", "\x80\x80\x80\x80\x01",
			"\x80\x01" + string(make([]byte, 128)) + "\x02ab", "\xff\xff\xff\xff\x1f",
		},
	}
}

func FuzzVarint32(f *testing.F) {
	fuzzFormats(f, []format{
		varintFormat(Varint32Config{MaxBytes: 20}),
		varintFormat(Varint32Config{MaxBytes: 200, FailSlow: true}),
	})
}
