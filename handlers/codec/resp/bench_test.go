package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/buffer"
)

func BenchmarkDecodeCommands(b *testing.B) {
	for _, c := range []struct{ name, in string }{
		{"GET", wire("GET", "key:000000000001")},
		{"SET/value=3", wire("SET", "key:000000000001", "xxx")},
		{"SET/value=1024", wire("SET", "key:000000000001", strings.Repeat("x", 1024))},
		{"inline", "GET key:000000000001\r\n"},
	} {
		for _, depth := range []int{1, 16} {
			b.Run(fmt.Sprintf("request=%s/depth=%d", c.name, depth), func(b *testing.B) {
				in := []byte(strings.Repeat(c.in, depth))
				p, _ := NewCommandParser(Config{})
				b.SetBytes(int64(len(in)))
				b.ReportAllocs()
				for b.Loop() {
					for rest := in; len(rest) > 0; {
						_, n, err := p.Decode(rest)
						if err != nil {
							b.Fatal(err)
						}
						rest = rest[n:]
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*depth), "ns/command")
			})
		}
	}
}

func BenchmarkDecodeValues(b *testing.B) {
	for _, c := range []struct{ name, in string }{
		{"simple", "+OK\r\n"},
		{"integer", ":1234\r\n"},
		{"bulk=16", "$16\r\n0123456789abcdef\r\n"},
		{"array=10", "*10\r\n" + strings.Repeat("$3\r\nabc\r\n", 10)},
	} {
		b.Run("reply="+c.name, func(b *testing.B) {
			in := []byte(strings.Repeat(c.in, 16))
			p, _ := NewValueParser(Config{})
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				for rest := in; len(rest) > 0; {
					_, n, err := p.Decode(rest)
					if err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*16), "ns/value")
		})
	}
}

// BenchmarkDecodeBulkInPieces is a request of 1 MiB that arrives by blocks: linear, whatever their size.
func BenchmarkDecodeBulkInPieces(b *testing.B) {
	in := []byte(wire("SET", "k", strings.Repeat("x", 1<<20)))
	for _, block := range []int{256, 16 << 10} {
		b.Run(fmt.Sprintf("block=%d", block), func(b *testing.B) {
			p, _ := NewCommandParser(Config{})
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				for end := 0; end < len(in); {
					end = min(len(in), end+block)
					_, _, _ = p.Decode(in[:end])
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	out := buffer.New(64 << 10)
	value := []byte(strings.Repeat("x", 16))
	for _, c := range []struct {
		name string
		fn   func()
	}{
		{"simple", func() { _ = AppendSimple(out, "OK") }},
		{"integer", func() { AppendInt(out, 1234) }},
		{"bulk=16", func() { AppendBulk(out, value) }},
		{"null", func() { AppendNull(out) }},
	} {
		b.Run("reply="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if out.Room() < 64 {
					out.Truncate(0)
				}
				c.fn()
			}
		})
	}
}
