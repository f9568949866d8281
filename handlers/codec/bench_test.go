package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

const (
	blockBytes   = 64 << 10 // what one receive gives at most
	portionBytes = 1 << 20
	portions     = 16 // together more than the second-level cache, and more lines than a branch predictor remembers
)

// counter is a handler that looks at the length of each frame.
type counter struct{ frames, bytes int }

func (c *counter) ChannelRead(_ *pipeline.Context, msg any) error {
	c.add(msg.(*buffer.Buf).Bytes())
	return nil
}

func (c *counter) add(frame []byte) {
	c.frames++
	c.bytes += len(frame)
}

// socket gives the bytes of a portion as a kernel gives them: it copies at most a block at a time to where the reader
// wants them.
type socket struct{ rest []byte }

func (s *socket) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest[:min(len(s.rest), blockBytes)])
	s.rest = s.rest[n:]
	return n, nil
}

// side is one way to take the frames from a portion: a whole number of frames.
type side func(portion []byte, c *counter)

// throughPipeline is a side for a handler before the one that counts. It gets blocks that are there already or, with
// fromSocket, are copied to a block first.
func throughPipeline(b *testing.B, h any, c *counter, fromSocket bool) side {
	ch := pipelinetest.New(b, h, c)
	p, pool := ch.Pipeline(), buffer.NewPool(buffer.PoolConfig{})
	return func(portion []byte, _ *counter) {
		src := socket{portion}
		for len(src.rest) > 0 {
			var in *buffer.Buf
			if fromSocket {
				in = pool.Get(blockBytes)
				n, _ := src.Read(in.Tail())
				in.Extend(n)
			} else {
				n := min(len(src.rest), blockBytes)
				in = buffer.Wrap(src.rest[:n])
				src.rest = src.rest[n:]
			}
			p.FireRead(in)
			in.Release()
		}
	}
}

// splitting is a side without handlers: what a loop over a file would do.
func splitting(b *testing.B, s Splitter, fromSocket bool) side {
	space := make([]byte, blockBytes)
	decode := func(in []byte, c *counter) (left []byte) {
		for len(in) > 0 {
			at, n, err := s.Decode(in)
			if err == ErrShort {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			c.add(in[at.Start:at.End])
			in = in[n:]
		}
		return in
	}
	return func(portion []byte, c *counter) {
		if !fromSocket {
			decode(portion, c)
			return
		}
		src := socket{portion}
		for have := 0; ; {
			n, err := src.Read(space[have:])
			if err != nil {
				return
			}
			have = copy(space, decode(space[:have+n], c))
		}
	}
}

// scanning is bufio.Scanner with a buffer as large as our block. It reads from an io.Reader, so it always copies.
func scanning(b *testing.B) side {
	space := make([]byte, blockBytes)
	return func(portion []byte, c *counter) {
		sc := bufio.NewScanner(&socket{portion})
		sc.Buffer(space, blockBytes)
		for sc.Scan() {
			c.add(sc.Bytes())
		}
		if sc.Err() != nil {
			b.Fatal(sc.Err())
		}
	}
}

// linePortions are portions of lines of size bytes, end included, or between half and one and a half of it.
func linePortions(size int, varied bool) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([][]byte, portions)
	for i := range all {
		p := bytes.Repeat([]byte("x"), portionBytes)
		for end := 0; ; {
			n := size
			if varied {
				n = size/2 + r.IntN(size+1)
			}
			if end+n > len(p) {
				all[i] = p[:end]
				break
			}
			end += n
			p[end-1] = '\n'
		}
	}
	return all
}

// compare has ours and theirs take the same portions in turn, in alternating order, and reports medians per frame, and
// the median of the ratios: how many times as fast ours is.
func compare(b *testing.B, all [][]byte, ours, theirs side, c *counter) {
	var our, their, ratio []float64
	bytes := 0
	took := func(s side, portion []byte) float64 {
		frames, start := c.frames, time.Now()
		s(portion, c)
		d := time.Since(start)
		bytes = len(portion) / (c.frames - frames)
		return float64(d.Nanoseconds()) / float64(c.frames-frames)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i, portion := range all {
			first, second := ours, theirs
			if i&1 != 0 {
				first, second = theirs, ours
			}
			before := *c
			x := took(first, portion)
			between := *c
			y := took(second, portion)
			if c.frames-between.frames != between.frames-before.frames || c.bytes-between.bytes != between.bytes-before.bytes {
				b.Fatalf("one counted %+v, %+v, %+v", before, between, *c)
			}
			if i&1 != 0 {
				x, y = y, x
			}
			our, their, ratio = append(our, x), append(their, y), append(ratio, y/x)
		}
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bytes)/median(our)*1e3, "MB/s")
	b.ReportMetric(median(our), "ns/frame")
	b.ReportMetric(median(their), "bufio-ns/frame")
	b.ReportMetric(median(ratio), "x-bufio")
}

// BenchmarkLines takes lines beside bufio.Scanner. Both count the same lines of the same portions. From memory, weir is
// handed blocks that are there and Scanner copies them, for that is what it is; on a connection both get bytes from a
// socket, so from=socket copies each block for both, as the kernel does. A line's length is constant, which makes every
// branch predictable, or varies between half and one and a half of its mean, as in the real world. by=handler is a
// Framer and a handler behind it, by=function is HandleFrames.
func BenchmarkLines(b *testing.B) {
	for _, size := range []int{20, 100, 1024} {
		for _, length := range []string{"constant", "varied"} {
			all := linePortions(size, length == "varied")
			for _, from := range []string{"memory", "socket"} {
				for _, by := range []string{"splitter", "handler", "function"} {
					b.Run(fmt.Sprintf("by=%s/size=%d/length=%s/from=%s", by, size, length, from), func(b *testing.B) {
						c := &counter{}
						s := mustSplit(SplitLines(LinesConfig{}))
						var ours side
						switch by {
						case "splitter":
							ours = splitting(b, s, from == "socket")
						case "handler":
							ours = throughPipeline(b, NewFramer(s), c, from == "socket")
						case "function":
							ours = throughPipeline(b, HandleFrames(s, func(_ *pipeline.Context, line []byte) error {
								c.add(line)
								return nil
							}), c, from == "socket")
						}
						compare(b, all, ours, scanning(b), c)
					})
				}
			}
		}
	}
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
	if c.frames != b.N*frames {
		b.Fatalf("%d frames of %d", c.frames, b.N*frames)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames), "ns/frame")
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
