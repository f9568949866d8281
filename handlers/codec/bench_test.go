package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

const blockBytes = 64 << 10

// counter is a handler that looks at the length of each frame.
type counter struct{ frames, bytes int }

func (c *counter) ChannelRead(_ *pipeline.Context, msg any) error {
	c.frames++
	c.bytes += msg.(*buffer.Buf).Len()
	return nil
}

// block is as many frames as fit into a block.
func block(frame []byte) (b []byte, frames int) {
	frames = blockBytes / len(frame)
	return bytes.Repeat(frame, frames), frames
}

func benchSplitter(b *testing.B, s Splitter, frame []byte) {
	in, frames := block(frame)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		for rest := in; len(rest) > 0; {
			_, n, err := s.Decode(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames), "ns/frame")
}

func benchHandler(b *testing.B, h any, frame []byte) {
	in, frames := block(frame)
	c := &counter{}
	ch := pipelinetest.New(b, h, c)
	buf := buffer.Wrap(in)
	p := ch.Pipeline()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		p.FireRead(buf)
	}
	if _, ok := h.(*Framer); ok && c.frames != b.N*frames {
		b.Fatalf("%d frames of %d", c.frames, b.N*frames)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames), "ns/frame")
}

func BenchmarkLines(b *testing.B) {
	for _, size := range []int{20, 100, 1024} {
		line := []byte(strings.Repeat("x", size-1) + "\n")
		b.Run(fmt.Sprintf("by=splitter/size=%d", size), func(b *testing.B) {
			benchSplitter(b, mustSplit(SplitLines(LinesConfig{})), line)
		})
		b.Run(fmt.Sprintf("by=handler/size=%d", size), func(b *testing.B) {
			benchHandler(b, NewFramer(mustSplit(SplitLines(LinesConfig{}))), line)
		})
		b.Run(fmt.Sprintf("by=typed/size=%d", size), func(b *testing.B) {
			n := 0
			benchHandler(b, Handle(mustSplit(SplitLines(LinesConfig{})), func(_ *pipeline.Context, s Span) error {
				n += s.End
				return nil
			}), line)
		})
		b.Run(fmt.Sprintf("by=bufio/size=%d", size), func(b *testing.B) {
			in, frames := block(line)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			r := bytes.NewReader(in)
			space := make([]byte, blockBytes)
			n := 0
			for b.Loop() {
				r.Reset(in)
				sc := bufio.NewScanner(r)
				sc.Buffer(space, blockBytes)
				for sc.Scan() {
					n += len(sc.Bytes())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames), "ns/frame")
		})
	}
}

func BenchmarkLengthField(b *testing.B) {
	for _, size := range []int{64, 1024, 16 << 10} {
		frame := make([]byte, size)
		binary.BigEndian.PutUint32(frame, uint32(size-4))
		s := func() Splitter { return mustSplit(SplitLengthField(LengthFieldConfig{Width: 4, Strip: 4})) }
		b.Run(fmt.Sprintf("by=splitter/size=%d", size), func(b *testing.B) { benchSplitter(b, s(), frame) })
		b.Run(fmt.Sprintf("by=handler/size=%d", size), func(b *testing.B) { benchHandler(b, NewFramer(s()), frame) })
	}
}
