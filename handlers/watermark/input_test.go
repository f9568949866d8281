package watermark_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// follower is a channel that follows what is pending on another, on the same loop.
func follower(t *testing.T, l *pipelinetest.Loop, of *watermark.Handler) (*pipelinetest.Channel, *watermark.Handler) {
	h := newHandler(t, small())
	ch := l.New(pipelinetest.Named("watermark", h))
	ch.Do(func() { h.Follow(of) })
	return ch, h
}

func TestWhoFollowsIsForgottenWhenItEnds(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	far, near := newHandler(t, small()), newHandler(t, small())
	farChannel := l.New(pipelinetest.Named("watermark", far))
	for range 100 {
		ch, _ := follower(t, l, far)
		ch.Abort(nil)
	}
	assert.Zero(t, far.Followers())

	l.New(pipelinetest.Named("watermark", near))
	for range 100 { // and the other way round: whom it followed
		h := newHandler(t, small())
		ch := l.New(pipelinetest.Named("watermark", h))
		near.Follow(h)
		ch.Abort(nil)
	}
	assert.Zero(t, near.Follows())

	ch, h := follower(t, l, far)
	farChannel.SetPending(2000)
	require.True(t, ch.Paused())
	farChannel.Abort(nil)
	assert.False(t, ch.Paused())
	assert.Zero(t, h.Follows())
}

// The side of a proxy that ended while it was high drains no more.
func TestNobodyFollowsAHandlerThatHasEnded(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	far := newHandler(t, small())
	farChannel := l.New(pipelinetest.Named("watermark", far))
	farChannel.SetPending(2000)
	farChannel.Abort(nil)
	ch, h := follower(t, l, far)
	assert.False(t, ch.Paused())
	assert.Equal(t, watermark.Normal, h.Level())

	near := newHandler(t, small()) // nor does one that has ended follow anybody
	l.New(pipelinetest.Named("watermark", near)).Abort(nil)
	near.Follow(h)
	assert.Zero(t, h.Followers())
}

func TestAnInputThatIsHighBeforeItsHandlerIsAddedCounts(t *testing.T) {
	h := newHandler(t, small())
	in := h.NewInput()
	in.Set(true)
	ch, _ := channel(t, h)
	assert.True(t, ch.Paused())
	assert.Equal(t, watermark.High, h.Level())
	ch.Do(func() { in.Set(false) })
	assert.False(t, ch.Paused())
	assert.Equal(t, watermark.Normal, h.Level())
}

// Each direction of a proxy is held at its own level: full ones in both directions must not wait for each other.
func TestWhoFollowsReadsWhateverIsPendingOnItsOwn(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	far := newHandler(t, small())
	farChannel := l.New(pipelinetest.Named("watermark", far))
	near := newHandler(t, small())
	ch := l.New(pipelinetest.Named("watermark", near))
	ch.SetPending(2000)
	require.True(t, ch.Paused(), "it follows nobody yet")
	ch.Do(func() {
		near.Follow(far)
		far.Follow(near)
	})
	assert.False(t, ch.Paused())
	assert.True(t, farChannel.Paused(), "what it reads goes to the full one")
	farChannel.SetPending(2000)
	assert.True(t, ch.Paused())
	farChannel.SetPending(0)
	assert.False(t, ch.Paused())
	farChannel.Abort(nil)
	assert.True(t, ch.Paused(), "it follows nobody any more")
}

// A level that crosses its marks while something else keeps the Handler high is noticed all the same: somebody may
// follow.
func TestWhoFollowsLearnsOfAFallBehindAnotherReason(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	far := newHandler(t, small())
	farChannel := l.New(pipelinetest.Named("watermark", far))
	ch, _ := follower(t, l, far)
	in := far.NewInput()
	farChannel.Do(func() { in.Set(true) })
	farChannel.Do(func() {
		ctx := farChannel.Context("watermark")
		ctx.Hold(1100)
		in.Set(false) // looks at what is pending
		in.Set(true)
		ctx.Hold(-600) // the end of the turn finds it between the marks
	})
	require.True(t, ch.Paused())
	farChannel.Do(func() { farChannel.Context("watermark").Hold(-500) })
	assert.False(t, ch.Paused())
}
