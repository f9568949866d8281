package codec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestARemovedFramerPassesTheRestOnBehindTheFrame(t *testing.T) {
	for _, size := range []int{1 << 20, 3, 1} {
		f, err := NewLines(LinesConfig{})
		ch, a := start(t, f, err)
		a.then = func(ctx *pipeline.Context, text string) {
			if text == "upgrade" {
				_, err := ctx.Pipeline().Remove("framer")
				assert.NoError(t, err)
				assert.Len(t, a.got, 2, "nothing comes while the frame is handled")
			}
		}
		ch.WriteInboundSplit([]byte("a\nupgrade\nraw\nbytes"), size)
		got := a.take()
		assert.Equal(t, []string{"a", "upgrade"}, got[:2])
		assert.Equal(t, "raw\nbytes", strings.Join(got[2:], ""), "pieces of %d", size)
		ch.Finish()
	}
}

func TestNothingIsEmittedAfterCloseAndNoMemoryIsLeft(t *testing.T) {
	f, err := NewLines(LinesConfig{})
	ch, a := start(t, f, err)
	a.then = func(ctx *pipeline.Context, _ string) { ctx.Abort(errTest) }
	ch.WriteInboundSplit([]byte("a\nb\nc"), 3)
	assert.Equal(t, []string{"a"}, a.got)
	ch.Finish()
}

func TestAnErrorThatEndsTheStreamIsToldOnceAndCloses(t *testing.T) {
	f, err := NewOctetCounting(OctetCountingConfig{})
	ch, a := start(t, f, err)
	ch.WriteInbound("1 axyz1 b")
	require.Len(t, a.errors, 1)
	assert.ErrorIs(t, a.errors[0], ErrBadFrame)
	assert.False(t, ch.Open())
	ch.Finish()
}

func TestAnnouncedLengthsAllocateNothing(t *testing.T) {
	f, err := NewLengthField(LengthFieldConfig{Width: 4, MaxBytes: 1 << 30})
	ch, _ := start(t, f, err)
	ch.WriteInbound("\x3f\x00\x00\x00abc")
	assert.LessOrEqual(t, f.rest.Cap(), 256)
}

func TestFramesInOneBufAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds remember where each Buf came from")
	}
	f, err := NewLines(LinesConfig{})
	require.NoError(t, err)
	c := &counter{}
	ch := pipelinetest.New(t, f, c)
	in := buffer.Wrap([]byte(strings.Repeat("a line\n", 100)))
	assert.Zero(t, testing.AllocsPerRun(100, func() { ch.Pipeline().FireRead(in) }))
	assert.Equal(t, 101*100, c.frames)
}
