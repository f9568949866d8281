package codec

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// scripted is a Splitter that a test writes.
type scripted struct {
	decode func(in []byte) (Span, int, error)
	finish func(in []byte) (Span, int, error) // nil: as a Splitter without Finish
}

func (s *scripted) Decode(in []byte) (Span, int, error) { return s.decode(in) }

func (s *scripted) Finish(in []byte) (Span, int, error) {
	if s.finish == nil {
		return Span{}, 0, ErrShort
	}
	return s.finish(in)
}

// byByte makes a frame of each byte.
func byByte([]byte) (Span, int, error) { return Span{0, 1}, 1, nil }

// removing makes a frame or nothing of each byte and takes the framer out of the pipeline in the call of that number,
// counted from 1.
func removing(ch **pipelinetest.Channel, call int, err error) *scripted {
	calls := 0
	return &scripted{decode: func([]byte) (Span, int, error) {
		if calls++; calls == call {
			_, _ = (*ch).Pipeline().Remove("framer")
		}
		return Span{0, 1}, 1, err
	}}
}

func TestNettyWhatARemovedDecoderLeaves(t *testing.T) {
	t.Run("taken out by itself, without a frame", func(t *testing.T) {
		var ch *pipelinetest.Channel
		ch, a := start(t, NewFramer(removing(&ch, 1, ErrSkip)), nil)
		ch.WriteInbound("ab")
		assert.Equal(t, []string{"b"}, a.got)
		ch.Finish() // nothing is left in the pool
	})
	t.Run("taken out by who gets its first frame", func(t *testing.T) {
		ch, a := start(t, NewFramer(&scripted{decode: byByte}), nil)
		a.then = func(ctx *pipeline.Context, text string) {
			if text == "a" {
				_, err := ctx.Pipeline().Remove("framer")
				assert.NoError(t, err)
			}
		}
		ch.WriteInbound("abc")
		assert.Equal(t, []string{"a", "bc"}, a.got)
		ch.Finish()
	})
	t.Run("taken out by itself, behind the frame", func(t *testing.T) {
		var ch *pipelinetest.Channel
		ch, a := start(t, NewFramer(removing(&ch, 4, nil)), nil)
		ch.WriteInbound("\x01\x02\x03\x04\x05")
		assert.Equal(t, []string{"\x01", "\x02", "\x03", "\x04", "\x05"}, a.got)
		ch.Finish()
	})
}

// order records which events come, and closes when the stream has ended.
type order struct{ got []string }

func (o *order) ChannelRead(_ *pipeline.Context, msg any) error {
	o.got = append(o.got, "read "+string(msg.(*buffer.Buf).Bytes()))
	return nil
}

func (o *order) ChannelReadComplete(*pipeline.Context) error {
	o.got = append(o.got, "read complete")
	return nil
}

func (o *order) ChannelReadClosed(ctx *pipeline.Context) error {
	o.got = append(o.got, "read closed")
	return ctx.Close()
}

func (o *order) ChannelInactive(*pipeline.Context) error {
	o.got = append(o.got, "inactive")
	return nil
}

// lastWords takes all bytes and makes a message at the end of the stream.
type lastWords struct{}

func (lastWords) Decode(in []byte) (string, int, error) { return "", len(in), ErrSkip }

func (lastWords) Finish([]byte) (string, int, error) { return "data", 0, nil }

func TestNettyTheEndOfTheStream(t *testing.T) {
	t.Run("makes a frame of nothing", func(t *testing.T) {
		o := &order{}
		h := Handle(lastWords{}, func(ctx *pipeline.Context, text string) error {
			ctx.FireRead(buffer.Wrap([]byte(text)))
			return nil
		})
		ch := pipelinetest.New(t, h, o)
		ch.WriteInbound("ab")
		assert.Equal(t, []string{"read complete"}, o.got)
		ch.PeerClose()
		// Netty: read, read complete, inactive. What tells here that no more comes is the end of the stream.
		assert.Equal(t, []string{"read complete", "read data", "read closed", "inactive"}, o.got)
		assertReason(t, "The end of a batch at the end of the stream")
		ch.Finish()
	})
	t.Run("makes a frame of the last byte", func(t *testing.T) {
		s := &scripted{
			decode: func(in []byte) (Span, int, error) {
				if len(in) < 2 {
					return Span{}, 0, ErrShort
				}
				return Span{0, len(in) - 1}, len(in) - 1, nil
			},
			finish: func(in []byte) (Span, int, error) {
				if len(in) == 0 {
					return Span{}, 0, ErrShort
				}
				return Span{0, len(in)}, len(in), nil
			},
		}
		ch, a := start(t, NewFramer(s), nil)
		ch.WriteInbound(strings.Repeat("Z", 1024))
		assert.Equal(t, []string{strings.Repeat("Z", 1023)}, a.take())
		ch.PeerClose()
		assert.Equal(t, []string{"Z"}, a.take())
		ch.Finish()
	})
}

func TestNettyAFrameOfNoBytesTakenIsAnError(t *testing.T) {
	ch, a := start(t, NewFramer(&scripted{decode: func([]byte) (Span, int, error) { return Span{}, 0, nil }}), nil)
	ch.WriteInbound("\x01")
	require.Len(t, a.errors, 1)
	assert.ErrorIs(t, a.errors[0], ErrDecoder)
	assert.False(t, ch.Open())
	ch.Finish()
}

// injecting makes one frame of all there is and, in the first call, delivers more.
func injecting(ch **pipelinetest.Channel, frames *[]int, more ...string) *scripted {
	return &scripted{decode: func(in []byte) (Span, int, error) {
		first := len(*frames) == 0
		*frames = append(*frames, len(in))
		if first {
			for _, m := range more {
				(*ch).Pipeline().FireRead(buffer.Wrap([]byte(m)))
			}
		} else {
			_, _ = (*ch).Pipeline().Remove("framer")
		}
		return Span{0, len(in)}, len(in), nil
	}}
}

func TestNettyInputFromWithin(t *testing.T) {
	for _, c := range []struct {
		more []string
		want []int
	}{
		{[]string{"12345678"}, []int{4, 8}},
		// Netty: 4, 8, 2. A stream has no borders: what waits is one piece.
		{[]string{"12345678", "90"}, []int{4, 10}},
	} {
		var ch *pipelinetest.Channel
		var lengths []int
		ch, a := start(t, NewFramer(injecting(&ch, &lengths, c.more...)), nil)
		ch.WriteInbound("\x00\x00\x00\x2a")
		assert.Equal(t, c.want, lengths)
		assert.Equal(t, "\x00\x00\x00\x2a"+strings.Join(c.more, ""), strings.Join(a.got, ""))
		ch.Finish()
	}
	assertReason(t, "Bytes delivered from within")
}

// Netty's reads are asked for one by one, when a channel is told so. Here a receive stays armed unless somebody pauses.
func TestNettyReadsAreNotAskedForOneByOne(t *testing.T) {
	t.Run("by a decoder that waits", func(t *testing.T) {
		f := NewFramer(&scripted{decode: func([]byte) (Span, int, error) { return Span{}, 0, ErrShort }})
		ch, a := start(t, f, nil)
		ch.Operations()
		for range 2 {
			ch.Do(ch.Pipeline().FireReadComplete)
			ch.WriteInbound("12345678")
			ch.Do(ch.Pipeline().FireReadComplete)
		}
		assert.NotContains(t, ch.Operations(), "start-reading")
		assert.False(t, ch.Paused())
		assert.Empty(t, a.got)
		ch.Finish()
	})
	t.Run("by one that is replaced", func(t *testing.T) {
		ch := pipelinetest.New(t, pipelinetest.Named("first", &replaced{t}), &app{})
		ch.Operations()
		ch.WriteInbound("\x01")
		operations := ch.Operations()
		assert.NotContains(t, operations, "start-reading")
		assert.NotContains(t, operations, "stop-reading")
		ch.Finish()
	})
	assertReason(t, "Reads asked for one by one")
}

// replaced puts a framer in its place and gives it the first message.
type replaced struct{ t *testing.T }

func (r *replaced) ChannelRead(ctx *pipeline.Context, msg any) error {
	f, err := NewFixedLength(FixedLengthConfig{Bytes: 3})
	assert.NoError(r.t, err)
	_, err = ctx.Pipeline().Replace("first", "fixed", f)
	assert.NoError(r.t, err)
	ctx.FireRead(msg)
	return nil
}

func TestNettyMessagesAndPauses(t *testing.T) {
	assertReason(t, "Messages behind a pause")
	for _, c := range []struct {
		name  string
		pause func(seen int) bool
		after []int // messages seen after the input, and after each resume
	}{
		// Netty: 3 at once, because only reading from the socket was turned off. With a FlowControlHandler: as here.
		{"reading paused at the first", func(seen int) bool { return seen == 1 }, []int{1, 3}},
		{"never paused", func(int) bool { return false }, []int{3}},
		{"paused at each", func(int) bool { return true }, []int{1, 2, 3}},
	} {
		seen := 0
		h := Handle(digits{}, func(ctx *pipeline.Context, _ int) error {
			if seen++; c.pause(seen) {
				ctx.Pause()
			}
			return nil
		})
		ch := pipelinetest.New(t, pipelinetest.Named("decoder", h))
		ch.WriteInbound("123")
		for i, want := range c.after {
			if i > 0 {
				ch.Do(ch.Context("decoder").Resume)
			}
			assert.Equal(t, want, seen, "%s: after %d resumes", c.name, i)
		}
		ch.Finish()
	}
}

func assertReason(t *testing.T, name string) {
	t.Helper()
	reasons, err := os.ReadFile("../../docs/codecs.md")
	require.NoError(t, err)
	assert.Contains(t, string(reasons), "| "+name+" |")
}
