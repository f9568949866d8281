package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// printer prints the frames it gets, and goes on after errors.
type printer struct{}

func (printer) ChannelRead(_ *pipeline.Context, msg any) error {
	fmt.Printf("%q\n", msg.(*buffer.Buf).Bytes())
	return nil
}

func (printer) ErrorCaught(_ *pipeline.Context, err error) error {
	fmt.Println(err)
	return nil
}

// receive prints what a framer makes of a stream that comes in pieces. It takes the results of a constructor. A program
// has a server or dialer instead, and adds the framer in its Init.
func receive(f *codec.Framer, err error) func(pieces ...string) {
	if err != nil {
		panic(err)
	}
	return func(pieces ...string) {
		var t testing.T
		ch := pipelinetest.New(&t, f, printer{})
		for _, p := range pieces {
			ch.WriteInbound(p)
		}
		ch.PeerClose()
	}
}

// send prints the bytes of messages behind a prepender.
func send(p *codec.Prepender, messages ...string) {
	var t testing.T
	ch := pipelinetest.New(&t, p)
	ch.Do(func() {
		for _, m := range messages {
			if err := ch.Pipeline().Write(m); err != nil {
				fmt.Println(err)
			}
		}
	})
	fmt.Printf("%q\n", ch.Outbound())
}

func ExampleNewLines() {
	receive(codec.NewLines(codec.LinesConfig{MaxBytes: 10}))("one\r\ntw", "o\na line that is too long\nthree\nfo")
	// Output:
	// "one"
	// "two"
	// codec: frame too long: more than 10 bytes
	// "three"
	// codec: stream ends inside a frame: after 2 bytes of it
}

func ExampleNewLengthField() {
	// A type, a length that counts all of the frame, the rest.
	receive(codec.NewLengthField(codec.LengthFieldConfig{
		ByteOrder: binary.LittleEndian, Offset: 1, Width: 2, Adjustment: -3,
	}))("\x01\x08\x00hel", "lo\x02\x03\x00")
	// Output:
	// "\x01\b\x00hello"
	// "\x02\x03\x00"
}

func ExampleNewDelimiter() {
	receive(codec.NewDelimiter(codec.DelimiterConfig{
		Delimiters: [][]byte{[]byte("|"), []byte("END")},
		FinalFrame: true,
	}))("a|bE", "NDc|", "d")
	// Output:
	// "a"
	// "b"
	// "c"
	// "d"
}

func ExampleNewFixedLength() {
	receive(codec.NewFixedLength(codec.FixedLengthConfig{Bytes: 3}))("ab", "cdefgh")
	// Output:
	// "abc"
	// "def"
	// codec: stream ends inside a frame: after 2 bytes of it
}

func ExampleNewVarint32() {
	receive(codec.NewVarint32(codec.Varint32Config{}))("\x05hel", "lo\x00\x02hi")
	// Output:
	// "hello"
	// ""
	// "hi"
}

func ExampleNewOctetCounting() {
	receive(codec.NewOctetCounting(codec.OctetCountingConfig{}))("11 <13>message<14>another\n", "4 <1>x")
	// Output:
	// "<13>message"
	// "<14>another"
	// "<1>x"
}

func ExampleNewLengthFieldPrepender() {
	p, err := codec.NewLengthFieldPrepender(codec.LengthFieldPrependerConfig{Width: 1, IncludesLength: true})
	if err != nil {
		panic(err)
	}
	send(p, "hello", string(make([]byte, 255)), "hi")
	// Output:
	// codec: cannot encode: a length of 255 and 1 in 1 bytes
	// "\x06hello\x03hi"
}

func ExampleNewVarint32Prepender() {
	send(codec.NewVarint32Prepender(), "hello", "", "hi")
	// Output:
	// "\x05hello\x00\x02hi"
}

// netstrings are a format of one's own (https://cr.yp.to/proto/netstrings.txt): "5:hello,".
type netstrings struct{}

func (netstrings) Decode(in []byte) (at codec.Span, n int, err error) {
	colon := bytes.IndexByte(in[:min(len(in), 5)], ':')
	if colon < 0 {
		if len(in) < 5 {
			return at, 0, codec.ErrShort
		}
		return at, 0, errors.New("netstring: a length of more than four digits")
	}
	length, err := strconv.ParseUint(string(in[:colon]), 10, 16)
	if err != nil {
		return at, 0, fmt.Errorf("netstring: %w", err) // nothing was taken: the stream ends here
	}
	at = codec.Span{Start: colon + 1, End: colon + 1 + int(length)}
	switch {
	case len(in) <= at.End:
		return at, at.End + 1, codec.ErrShort
	case in[at.End] != ',':
		return at, 0, errors.New("netstring: no comma at its end")
	}
	return at, at.End + 1, nil
}

// MaxMessageBytes is part of codec.Limiter.
func (netstrings) MaxMessageBytes() int { return len("9999:,") + 9999 }

func ExampleNewFramer() {
	receive(codec.NewFramer(netstrings{}), nil)("5:hel", "lo,0:,2:hi,x:")
	// Output:
	// "hello"
	// ""
	// "hi"
	// netstring: strconv.ParseUint: parsing "x": invalid syntax
}

// reading is a message of another type than bytes.
type reading struct {
	sensor  byte
	celsius int16
}

// readings decodes messages of three bytes.
type readings struct{}

func (readings) Decode(in []byte) (r reading, n int, err error) {
	if len(in) < 3 {
		return r, 3, codec.ErrShort
	}
	return reading{in[0], int16(binary.BigEndian.Uint16(in[1:]))}, 3, nil
}

func ExampleHandle() {
	h := codec.Handle(readings{}, func(ctx *pipeline.Context, r reading) error {
		fmt.Printf("sensor %d: %d °C\n", r.sensor, r.celsius)
		return ctx.WriteBytes([]byte{r.sensor})
	})
	var t testing.T // a program has a server instead
	ch := pipelinetest.New(&t, h)
	ch.WriteInbound("\x01\x00\x15\x02\xff", "\xf6")
	fmt.Printf("%q\n", ch.Outbound())
	// Output:
	// sensor 1: 21 °C
	// sensor 2: -10 °C
	// "\x01\x02"
}

func ExampleHandleFrames() {
	s, err := codec.SplitLines(codec.LinesConfig{})
	if err != nil {
		panic(err)
	}
	h := codec.HandleFrames(s, func(ctx *pipeline.Context, line []byte) error {
		return ctx.WriteBytes([]byte("> "), line, []byte("\n"))
	})
	var t testing.T // a program has a server instead
	ch := pipelinetest.New(&t, h)
	ch.WriteInbound("one\r\ntw", "o\n")
	fmt.Print(ch.OutboundString())
	// Output:
	// > one
	// > two
}

func ExampleTooLongError() {
	s, err := codec.SplitVarint32(codec.Varint32Config{MaxBytes: 100})
	if err != nil {
		panic(err)
	}
	_, _, err = s.Decode([]byte("\xac\x02..."))
	var tooLong *codec.TooLongError
	if errors.As(err, &tooLong) {
		fmt.Println(tooLong.Bytes, "of", tooLong.MaxBytes, errors.Is(err, codec.ErrFrameTooLong))
	}
	// Output:
	// 300 of 100 true
}

func ExampleSplitLines() {
	s, err := codec.SplitLines(codec.LinesConfig{})
	if err != nil {
		panic(err)
	}
	in := []byte("one\r\ntwo\nthr")
	for {
		at, n, err := s.Decode(in)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", in[at.Start:at.End])
		in = in[n:]
	}
	// Output:
	// one
	// two
	// codec: message is incomplete
}
