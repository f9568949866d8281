package simtest

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/pipeline"
)

// framing is how the messages of a run are told apart on the wire. The zero value is a stream without messages.
type framing struct {
	split   func() (*codec.Framer, error)    // nil: none
	prepend func() (*codec.Prepender, error) // nil: who writes a message writes head and tail with it
	head    func(n int) string               // before a message of n bytes
	tail    string
}

// drawFraming draws one of the framers of package codec, with its counterpart. Messages have neither CR nor LF.
func drawFraming(rng *rand.Rand) framing {
	none := func(int) string { return "" }
	switch rng.IntN(6) {
	case 0:
		return framing{
			split: func() (*codec.Framer, error) { return codec.NewLines(codec.LinesConfig{}) },
			head:  none, tail: "\r\n"[rng.IntN(2):],
		}
	case 1:
		return framing{
			split: func() (*codec.Framer, error) { return codec.NewOctetCounting(codec.OctetCountingConfig{}) },
			head:  func(n int) string { return strconv.Itoa(n) + " " },
		}
	case 2:
		return framing{
			split:   func() (*codec.Framer, error) { return codec.NewVarint32(codec.Varint32Config{}) },
			prepend: func() (*codec.Prepender, error) { return codec.NewVarint32Prepender(), nil },
		}
	case 3, 4:
		return drawLengthField(rng)
	}
	return framing{}
}

func drawLengthField(rng *rand.Rand) framing {
	width := []int{3, 4, 8}[rng.IntN(3)]
	whole := rng.IntN(2) == 0
	var order binary.ByteOrder = binary.BigEndian
	if rng.IntN(2) == 0 {
		order = binary.LittleEndian
	}
	cfg := codec.LengthFieldConfig{ByteOrder: order, Width: width, Strip: width}
	if whole {
		cfg.Adjustment = -width
	}
	back := codec.LengthFieldPrependerConfig{ByteOrder: order, Width: width, IncludesLength: whole}
	return framing{
		split:   func() (*codec.Framer, error) { return codec.NewLengthField(cfg) },
		prepend: func() (*codec.Prepender, error) { return codec.NewLengthFieldPrepender(back) },
	}
}

// framed reports whether there are messages.
func (f *framing) framed() bool { return f.split != nil }

// text reports whether a message is framed by who writes it.
func (f *framing) text() bool { return f.framed() && f.prepend == nil }

// add puts the handlers of the framing into a pipeline.
func (f *framing) add(p *pipeline.Pipeline) error {
	if !f.framed() {
		return nil
	}
	if f.prepend != nil {
		h, err := f.prepend()
		if err == nil {
			err = p.AddLast("prepender", h)
		}
		if err != nil {
			return err
		}
	}
	h, err := f.split()
	if err != nil {
		return err
	}
	return p.AddLast("framer", h)
}

// write writes one message that is framed by who writes it.
func (f *framing) write(ctx *pipeline.Context, p []byte) error {
	return ctx.WriteBytes([]byte(f.head(len(p))), p, []byte(f.tail))
}

// whole is one message with what frames it.
func (f *framing) whole(p []byte) []byte {
	if !f.text() {
		return append([]byte(nil), p...)
	}
	return append(append([]byte(f.head(len(p))), p...), f.tail...)
}
