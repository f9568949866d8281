package resp

import (
	"reflect"
	"testing"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
)

// fuzzLimits are small, so that short inputs reach them.
var fuzzLimits = Config{
	MaxBulkBytes: 64, MaxElements: 16, MaxLineBytes: 48, MaxDepth: 4, MaxMessageBytes: 256, Inline: true,
}

var fuzzSeeds = []string{
	"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n*1\r\n$4\r\nPING\r\n",
	"*0\r\n*-1\r\n\r\nPING \"a\\x41\\n\" 'b\\'' c\"d\"\nGET k\r\n",
	"*1\r\n$4\r\nPINGxx", "*1\r\n#4\r\n", "PING \"a\n", "*2\r\n$-1\r\n", "*99999999999\r\n",
	"+OK\r\n-ERR x\r\n:-12\r\n$-1\r\n*-1\r\n*2\r\n*1\r\n:1\r\n$2\r\n\r\n\r\n",
	"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", ":1x\r\n", "+a\rb\r\n",
}

// outcome is all that a stream gave: its messages, how many bytes they took, and whether it failed.
type outcome struct {
	messages []any
	taken    int
	failed   string
}

// decodeAll runs dec over in, which grows by the lengths in splits, cyclically (0 counts as 1). keep makes a message
// last.
func decodeAll[M any](t *testing.T, dec codec.Decoder[M], keep func(M) any, in, splits []byte) outcome {
	var o outcome
	end := len(in)
	if len(splits) > 0 {
		end = 0
	}
	for turn := 0; ; turn++ {
		if len(splits) > 0 {
			end = min(len(in), end+max(1, int(splits[turn%len(splits)])))
		}
		// A copy of what there is, with nothing behind it: the input moves between calls, as a buffer that grows does.
		window := append([]byte(nil), in[o.taken:end]...)
		for {
			m, n, err := dec.Decode(window)
			if err == codec.ErrShort {
				if n != 0 {
					t.Fatalf("ErrShort took %d bytes", n)
				}
				break
			}
			if err != nil {
				o.failed = err.Error()
				return o
			}
			if n <= 0 || n > len(window) {
				t.Fatalf("a message of %d bytes from %d", n, len(window))
			}
			o.messages = append(o.messages, keep(m))
			o.taken += n
			window = window[n:]
		}
		if end == len(in) {
			return o
		}
	}
}

func sameOutcome(t *testing.T, whole, split outcome) {
	if !reflect.DeepEqual(whole, split) {
		t.Fatalf("at once: %v\nin pieces: %v", whole, split)
	}
}

func keepCommand(c *Command) any { return texts(c.Args) }
func keepValue(v *Value) any     { return v.Clone() }

func FuzzCommandsDoNotDependOnSplits(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add([]byte(s), []byte{1, 3, 2})
	}
	f.Fuzz(func(t *testing.T, in, splits []byte) {
		for _, cfg := range []Config{{}, fuzzLimits} {
			whole, _ := NewCommandParser(cfg)
			split, _ := NewCommandParser(cfg)
			sameOutcome(t, decodeAll(t, whole, keepCommand, in, nil), decodeAll(t, split, keepCommand, in, splits))
			if held := 8*cap(split.spans) + 24*cap(split.cmd.Args) + cap(split.plain); held > 1024+32*len(in) {
				t.Fatalf("%d bytes held after an input of %d", held, len(in))
			}
		}
	})
}

func FuzzValuesDoNotDependOnSplits(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add([]byte(s), []byte{1, 3, 2})
	}
	f.Fuzz(func(t *testing.T, in, splits []byte) {
		for _, cfg := range []Config{{}, fuzzLimits} {
			whole, _ := NewValueParser(cfg)
			split, _ := NewValueParser(cfg)
			sameOutcome(t, decodeAll(t, whole, keepValue, in, nil), decodeAll(t, split, keepValue, in, splits))
			held := 16*cap(split.nodes) + 64*cap(split.arena) + 4*cap(split.open) + 8*cap(split.frames)
			if held > 2048+128*len(in) {
				t.Fatalf("%d bytes held after an input of %d", held, len(in))
			}
		}
	})
}

// FuzzEncodedValuesDecodeToThemselves builds a value from the fuzzer's bytes; whatever can be written reads as the
// same.
func FuzzEncodedValuesDecodeToThemselves(f *testing.F) {
	f.Add([]byte{6, 3, 2, 3, 'a', 'b', 'c', 5, 2, 'x', 'y', 4, 9, 0, 1})
	f.Add([]byte{2, 1, '\n'})
	f.Add([]byte{7, 1, '+'})
	f.Fuzz(func(t *testing.T, in []byte) {
		v, _ := makeValue(in, 0)
		b := buffer.New(0)
		if err := AppendValue(b, &v); err != nil {
			if b.Len() != 0 {
				t.Fatalf("%q written in spite of %v", b.Bytes(), err)
			}
			return
		}
		p, _ := NewValueParser(Config{Inline: true})
		got, n, err := p.Decode(b.Bytes())
		if err != nil || n != b.Len() {
			t.Fatalf("%q: took %d: %v", b.Bytes(), n, err)
		}
		if !reflect.DeepEqual(&v, got.Clone()) {
			t.Fatalf("%v came back as %v", v, *got)
		}
	})
}

// makeValue reads a value in a form of its own: kind, length or count, bytes. It returns what is left of in.
func makeValue(in []byte, depth int) (Value, []byte) {
	if len(in) < 2 {
		return Value{}, nil
	}
	v, n := Value{Kind: Kind(in[0] % 9)}, int(in[1])
	in = in[2:]
	switch v.Kind {
	case Integer:
		v.Int = int64(int8(n)) << (n % 57)
	case Simple, Error, Bulk, Inline:
		n = min(n, len(in))
		v.Bytes = append([]byte{}, in[:n]...)
		in = in[n:]
	case Array:
		v.Elems = []Value{}
		for range n % 8 {
			var e Value
			if e, in = makeValue(in, depth+1); depth < 8 && e.Kind != Inline {
				v.Elems = append(v.Elems, e)
			}
		}
	}
	return v, in
}
