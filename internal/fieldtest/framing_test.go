//go:build linux

package fieldtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/handlers/proxyproto"
	"github.com/weirnet/weir/pipeline"
)

// format is a framing.
type format struct {
	name   string
	framer func() (*codec.Framer, error)
	text   bool // frames hold letters only
	size   int  // of each frame, where that is fixed
	encode func(out, frame []byte) []byte
}

var formats = []format{
	{
		name: "length field",
		framer: func() (*codec.Framer, error) {
			return codec.NewLengthField(codec.LengthFieldConfig{Width: 4, Strip: 4})
		},
		encode: func(out, f []byte) []byte {
			return append(binary.BigEndian.AppendUint32(out, uint32(len(f))), f...)
		},
	},
	{
		name:   "varint",
		framer: func() (*codec.Framer, error) { return codec.NewVarint32(codec.Varint32Config{}) },
		encode: func(out, f []byte) []byte { return append(binary.AppendUvarint(out, uint64(len(f))), f...) },
	},
	{
		name: "delimiter", text: true,
		framer: func() (*codec.Framer, error) {
			return codec.NewDelimiter(codec.DelimiterConfig{Delimiters: [][]byte{[]byte("\r\n\r\n")}})
		},
		encode: func(out, f []byte) []byte { return append(append(out, f...), "\r\n\r\n"...) },
	},
	{
		name: "lines", text: true,
		framer: func() (*codec.Framer, error) { return codec.NewLines(codec.LinesConfig{}) },
		encode: func(out, f []byte) []byte { return append(append(out, f...), '\n') },
	},
	{
		name: "octet counting", text: true,
		framer: func() (*codec.Framer, error) { return codec.NewOctetCounting(codec.OctetCountingConfig{}) },
		encode: func(out, f []byte) []byte { return append(fmt.Appendf(out, "%d ", len(f)), f...) },
	},
	{
		name: "fixed length", size: 61,
		framer: func() (*codec.Framer, error) { return codec.NewFixedLength(codec.FixedLengthConfig{Bytes: 61}) },
		encode: func(out, f []byte) []byte { return append(out, f...) },
	},
}

// frames returns n frames of the format.
func (f *format) frames(rnd *rand.Rand, n, most int) (frames [][]byte) {
	for range n {
		frame := make([]byte, between(rnd, 1, most))
		if f.size > 0 {
			frame = make([]byte, f.size)
		}
		for i := range frame {
			if frame[i] = byte(rnd.Uint32()); f.text {
				frame[i] = 'a' + frame[i]%26
			}
		}
		frames = append(frames, frame)
	}
	return frames
}

// prefixed answers each frame with its length in four bytes before it, whatever format it came in.
type prefixed struct {
	echo
	header [4]byte
}

func (p *prefixed) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf)
	binary.BigEndian.PutUint32(p.header[:], uint32(b.Len()))
	return errors.Join(ctx.WriteBytes(p.header[:]), ctx.Write(b))
}

func TestFramesArriveHoweverTheirStreamIsCut(t *testing.T) {
	covers(t, "panjf2000/gnet#448")
	cuts := []struct {
		name         string
		frames, most int
		piece        func(rnd *rand.Rand, rest int) int
	}{
		{"byte by byte", 20, 100, func(*rand.Rand, int) int { return 1 }},
		{"in any pieces", 300, 2000, func(rnd *rand.Rand, rest int) int { return between(rnd, 1, min(rest, 5000)) }},
		{"at once", 2000, 300, func(_ *rand.Rand, rest int) int { return rest }},
	}
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, func(p *pipeline.Pipeline) error {
					framer, err := f.framer()
					if err != nil {
						return err
					}
					return errors.Join(p.AddLast("framer", framer), p.AddLast("prefixed", &prefixed{}))
				})
				for i, cut := range cuts {
					rnd := rand.New(rand.NewPCG(uint64(i), 21))
					var out, want []byte
					for _, frame := range f.frames(rnd, cut.frames, cut.most) {
						out = f.encode(out, frame)
						want = append(binary.BigEndian.AppendUint32(want, uint32(len(frame))), frame...)
					}
					c := r.dial()
					sent := make(chan error, 1)
					go func() {
						var err error
						for rest := out; len(rest) > 0 && err == nil; {
							n := cut.piece(rnd, len(rest))
							_, err = c.Write(rest[:n])
							rest = rest[n:]
						}
						sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
					}()
					got, err := io.ReadAll(c)
					require.NoError(t, err, cut.name)
					require.NoError(t, receive(t, sent, "the end of sending"), cut.name)
					assert.True(t, bytes.Equal(want, got), "%s: %d bytes of answers, want %d", cut.name, len(got), len(want))
					c.Close()
				}
			})
		})
	}
}

func TestTheFirstFrameMayComeWithWhatPrecedesIt(t *testing.T) {
	covers(t, "lesismal/nbio#75")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		everybody := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		filter, err := ipfilter.New(ipfilter.Config{Allow: everybody})
		require.NoError(t, err)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, func(p *pipeline.Pipeline) error {
			proxy, err := proxyproto.NewDecoder(proxyproto.DecoderConfig{Trusted: everybody})
			if err != nil {
				return err
			}
			lines, err := codec.NewLines(codec.LinesConfig{})
			if err != nil {
				return err
			}
			return errors.Join(p.AddLast("filter", filter), p.AddLast("proxy", proxy), p.AddLast("lines", lines),
				p.AddLast("prefixed", &prefixed{}))
		})
		const header = "PROXY TCP4 192.0.2.1 192.0.2.2 50000 80\r\n"
		for i := range 100 {
			c := r.dial()
			text := fmt.Sprintf("%sfirst %02d\nsecond\n", header, i)
			cut := len(text) * (i % 10) / 10 // none: all in one segment
			for _, part := range []string{text[:cut], text[cut:]} {
				_, err := io.WriteString(c, part)
				require.NoError(t, err)
			}
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("\x00\x00\x00\x08first %02d\x00\x00\x00\x06second", i), string(got))
			c.Close()
		}
	})
}

func TestFramesThatAreKeptPastTheirChannelStayWhatTheyWere(t *testing.T) {
	covers(t, "cloudwego/netpoll#143", "lesismal/nbio#113")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, frames := scaled(200, 40), 60
		var wrong, kept, made atomic.Int64
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, func(p *pipeline.Pipeline) error {
			framer, err := codec.NewLengthField(codec.LengthFieldConfig{Width: 4, Strip: 4})
			if err != nil {
				return err
			}
			var bufs []*buffer.Buf
			seed := uint64(made.Add(1))
			rnd := rand.New(rand.NewPCG(seed, 1))
			return errors.Join(p.AddLast("framer", framer), p.AddLast("keeper", &hooks{
				read: func(_ *pipeline.Context, b *buffer.Buf) error {
					if rnd.IntN(2) == 0 {
						bufs = append(bufs, b.Retain())
						kept.Add(1)
					}
					return nil
				},
				inactive: func(*pipeline.Context) error {
					for _, b := range bufs { // a frame begins with which stream it is of
						p := b.Bytes()
						want := stream(binary.BigEndian.Uint64(p), len(p)-8)
						if !bytes.Equal(want, p[8:]) {
							wrong.Add(1)
						}
						b.Release()
					}
					return nil
				},
			}))
		})
		require.NoError(t, all(8, func(k int) error {
			for i := range conns / 8 {
				rnd := rand.New(rand.NewPCG(uint64(i), uint64(k)))
				var out []byte
				for range frames {
					id := rnd.Uint64() >> 32
					n := between(rnd, 0, 3000)
					out = binary.BigEndian.AppendUint32(out, uint32(8+n))
					out = append(binary.BigEndian.AppendUint64(out, id), stream(id, n)...)
				}
				c, err := r.tryDial()
				if err != nil {
					return err
				}
				for len(out) > 0 && err == nil {
					n := between(rnd, 1, min(len(out), 20_000))
					_, err = c.Write(out[:n])
					out = out[n:]
				}
				if i%3 == 0 {
					err = errors.Join(err, reset(c))
				} else {
					err = errors.Join(err, c.Close())
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
		r.eventually(func() bool { return r.Closed.Load() == int64(conns) }, "all are closed")
		assert.Zero(t, wrong.Load(), "frames with bytes of somebody else")
		assert.NotZero(t, kept.Load())
	})
}

func TestAFrameThatDoesNotComeNeitherSpinsNorTakesItsMemory(t *testing.T) {
	covers(t, "cloudwego/netpoll#201")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns, announced, came = 10, 1 << 20, 3000
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, func(p *pipeline.Pipeline) error {
			framer, err := codec.NewLengthField(codec.LengthFieldConfig{Width: 4, Strip: 4, MaxBytes: announced + 4})
			if err != nil {
				return err
			}
			return errors.Join(p.AddLast("framer", framer), p.AddLast("prefixed", &prefixed{}))
		})
		text := append(binary.BigEndian.AppendUint32(nil, announced), stream(3, announced)...)
		for i := range conns {
			_, err := r.dial().Write(text[:came+i])
			require.NoError(t, err)
		}
		r.eventually(func() bool { bufs, _ := r.Held(); return bufs >= conns }, "all have a part")
		r.asleep(200 * time.Millisecond)
		_, held := r.Held()
		assert.Less(t, held, conns*8*came, "bytes that the beginnings take")
		for i, c := range r.clients {
			sent := make(chan error, 1)
			go func() {
				_, err := c.Write(text[came+i:])
				sent <- err
			}()
			got := make([]byte, len(text))
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			require.NoError(t, receive(t, sent, "the rest is sent"))
			assert.True(t, bytes.Equal(text, got))
		}
	})
}
