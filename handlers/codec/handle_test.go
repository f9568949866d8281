package codec

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// digits decodes one digit at a time; 'x' is bad, and 'X' ends the stream.
type digits struct{}

func (digits) Decode(in []byte) (int, int, error) {
	switch in[0] {
	case 'x':
		return 0, 1, badFrame("x")
	case 'X':
		return 0, 0, badFrame("X")
	}
	return int(in[0] - '0'), 1, nil
}

func TestHandleHoldsMessagesWhileReadingIsPausedAndTheEndOfTheStreamToo(t *testing.T) {
	var got []int
	a := &app{}
	h := Handle(digits{}, func(ctx *pipeline.Context, d int) error {
		got = append(got, d)
		if d == 2 {
			ctx.Pause()
		}
		return nil
	})
	ch := pipelinetest.New(t, pipelinetest.Named("digits", h), a)
	ch.WriteInbound("1234")
	ch.PeerClose()
	assert.Equal(t, []int{1, 2}, got)
	assert.Zero(t, a.closed)
	ch.Do(ch.Context("digits").Resume)
	assert.Equal(t, []int{1, 2, 3, 4}, got)
	assert.Equal(t, 1, a.closed)
	ch.Finish()
}

func TestHandleGoesOnBehindASwallowedErrorAndEndsAtAFinalOne(t *testing.T) {
	var got []int
	a := &app{}
	h := Handle(digits{}, func(_ *pipeline.Context, d int) error {
		got = append(got, d)
		if d == 5 {
			return errTest
		}
		return nil
	})
	ch := pipelinetest.New(t, h, a)
	ch.WriteInbound("1x253X4")
	assert.Equal(t, []int{1, 2, 5, 3}, got)
	require.Len(t, a.errors, 3)
	assert.ErrorIs(t, a.errors[0], ErrBadFrame)
	assert.ErrorIs(t, a.errors[1], errTest)
	assert.ErrorIs(t, a.errors[2], ErrBadFrame)
	assert.False(t, ch.Open())
	ch.Finish()
}

// careful is a decoder that is part of a larger handler.
type careful struct {
	*Handler[int]
	caught []error
}

func (c *careful) ErrorCaught(_ *pipeline.Context, err error) error {
	c.caught = append(c.caught, err)
	if len(c.caught) == 1 {
		return nil
	}
	return err
}

func TestErrorsGoToTheHandlerThatADecoderIsPartOfFirst(t *testing.T) {
	c := &careful{Handler: Handle(digits{}, func(*pipeline.Context, int) error { return nil })}
	a := &app{}
	ch := pipelinetest.New(t, c, a)
	ch.WriteInbound("1x2x3")
	assert.Len(t, c.caught, 2)
	assert.Len(t, a.errors, 1, "the first was swallowed")
	ch.Finish()
}

func TestWhatIsNotBytesPassesADecoder(t *testing.T) {
	a := &app{}
	ch := pipelinetest.New(t, mustLines(t, LinesConfig{}), a)
	ch.WriteInbound("one\ntw", 42, "o\n")
	assert.Equal(t, []string{"one", "int", "two"}, a.got)
	ch.Finish()
}

func TestBehindAnErrorThatEndsTheStreamOnlyItsEndIsTold(t *testing.T) {
	h := Handle(digits{}, func(*pipeline.Context, int) error { return nil })
	a := &app{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{SilentPeer: true}, h, a)
	ch.WriteInbound("X")
	ch.Do(func() {
		ch.Pipeline().FireRead(buffer.Wrap([]byte("1X"))) // a channel that closes would deliver nothing
		fireReadClosed(t, ch.Pipeline())
	})
	assert.Len(t, a.errors, 1)
	assert.Equal(t, 1, a.closed)
	ch.PeerClose()
	ch.Finish()
}

// trimming counts how often it may let go of memory.
type trimming struct {
	digits
	trims int
}

func (d *trimming) Trim() { d.trims++ }

func TestADecoderLearnsThatWhatCameIsDecoded(t *testing.T) {
	d := &trimming{}
	ch := pipelinetest.New(t, Handle(d, func(*pipeline.Context, int) error { return nil }))
	ch.WriteInbound("123", "45")
	assert.Equal(t, 2, d.trims)
	ch.Finish()
}
