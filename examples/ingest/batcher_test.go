package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// recorder gets batches, as text.
type recorder struct{ got []string }

func (r *recorder) ChannelRead(_ *pipeline.Context, msg any) error {
	b := msg.(*batch)
	var frames []string
	b.frames(func(frame []byte) { frames = append(frames, string(frame)) })
	r.got = append(r.got, strings.Join(frames, ","))
	return nil
}

// stopper pauses at a frame.
type stopper struct {
	at  string
	ctx *pipeline.Context
}

func (s *stopper) ChannelRead(ctx *pipeline.Context, msg any) error {
	s.ctx = ctx
	if string(msg.(interface{ Bytes() []byte }).Bytes()) == s.at {
		ctx.Pause()
	}
	ctx.FireRead(msg)
	return nil
}

func newBatcher(t *testing.T, maxBytes int) (*pipelinetest.Channel, *recorder, *stopper) {
	framer, err := codec.NewLines(codec.LinesConfig{})
	require.NoError(t, err)
	level, err := watermark.NewShared(watermark.SharedConfig{HighBytes: 1 << 20})
	require.NoError(t, err)
	r, s := &recorder{}, &stopper{}
	return pipelinetest.New(t, framer, s, &batcher{batches: &batches{}, level: level, maxBytes: maxBytes}, r), r, s
}

func TestTheFramesOfAReadTravelTogether(t *testing.T) {
	ch, r, _ := newBatcher(t, 10_000)
	ch.WriteInbound("a\nb\nc\nd")
	ch.WriteInbound("e\n")
	assert.Equal(t, []string{"a,b,c", "de"}, r.got)
	ch.Finish()
}

func TestABatchIsBounded(t *testing.T) {
	const two = 2 * (frameOverheadBytes + 1) // bytes of a batch of two frames
	for _, c := range []struct {
		maxBytes int
		want     []string
	}{{two - 1, []string{"a,b", "c"}}, {two, []string{"a,b", "c"}}, {two + 1, []string{"a,b,c"}}} {
		ch, r, _ := newBatcher(t, c.maxBytes)
		ch.WriteInbound("a\nb\nc\n")
		assert.Equal(t, c.want, r.got, "%d", c.maxBytes)
		ch.Finish()
	}
}

// A framer that goes on after a pause emits without a read, and no end of a read follows.
func TestWhatAFramerHeldBackIsPassedOn(t *testing.T) {
	ch, r, s := newBatcher(t, 10_000)
	s.at = "b"
	ch.WriteInbound("a\nb\nc\nd\n")
	assert.Equal(t, []string{"a,b"}, r.got)
	ch.Do(func() { s.ctx.Resume() })
	ch.RunTasks()
	ch.Advance(time.Millisecond)
	assert.Equal(t, []string{"a,b", "c,d"}, r.got)
	ch.Finish()
}

func TestWhatCameBeforeTheEndIsPassedOn(t *testing.T) {
	for _, end := range []func(*pipelinetest.Channel){
		(*pipelinetest.Channel).PeerClose, (*pipelinetest.Channel).PeerReset, (*pipelinetest.Channel).Shutdown,
	} {
		ch, r, s := newBatcher(t, 10_000)
		s.at = "b"
		ch.WriteInbound("a\nb\nc\n")
		ch.Do(func() { s.ctx.Resume() })
		end(ch)
		ch.RunTasks()
		assert.Equal(t, "a,b", r.got[0])
		if len(r.got) > 1 {
			assert.Equal(t, "c", r.got[1])
		}
		ch.Finish()
	}
}

func TestABatchThatIsUsedAgainIsEmpty(t *testing.T) {
	p := &batches{}
	b := p.get()
	b.add([]byte("frame"))
	b.out, b.malformed = append(b.out, "out"...), 3
	p.put(b)
	b = p.get()
	assert.Zero(t, b.size())
	assert.Empty(t, b.out)
	assert.Zero(t, b.malformed)
}
