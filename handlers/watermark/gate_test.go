package watermark_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// frame is what a framer emits here.
type frame struct{ text string }

func (f *frame) Len() int { return len(f.text) }

// threeFrames is a framer that does not ask ctx.Reading.
var threeFrames = onRead(func(ctx *pipeline.Context, _ any) error {
	for _, text := range []string{"first", "second", "third"} {
		ctx.FireRead(&frame{text})
	}
	return nil
})

func TestAGateDropsWholeFramesAndCountsWhy(t *testing.T) {
	shared := newShared(t, watermark.SharedConfig{HighBytes: 1000})
	cfg := small()
	cfg.KeepReading, cfg.Shared = true, []*watermark.Shared{shared}
	cfg.RateBytesPerSecond, cfg.BurstBytes = 10, 10
	h := newHandler(t, cfg)
	var out []string
	ch, _ := channel(t, h, watermark.NewDropGate(h), onRead(func(_ *pipeline.Context, msg any) error {
		out = append(out, msg.(*frame).text)
		return nil
	}))
	send := func(text string) { ch.WriteInbound(&frame{text}) }
	in := h.NewInput()
	send("first")
	ch.SetPending(1024)
	assert.False(t, ch.Paused(), "it keeps reading")
	send("own")
	ch.SetPending(0)
	shared.Add(1000)
	send("shared")
	shared.Add(-1000)
	ch.RunTasks()
	ch.Do(func() { in.Set(true) })
	send("input!!")
	ch.Do(func() { in.Set(false) })
	send("again")
	send("x") // ten bytes were a second's
	ch.Advance(time.Second)
	send("last")
	assert.Equal(t, []string{"first", "again", "last"}, out)
	snap := h.Stats().Snapshot()
	assert.Equal(t, watermark.Count{Frames: 3, Bytes: 14}, snap.Delivered)
	assert.Equal(t, map[watermark.Reason]watermark.Count{
		watermark.ReasonPending: {Frames: 1, Bytes: 3},
		watermark.ReasonShared:  {Frames: 1, Bytes: 6},
		watermark.ReasonInput:   {Frames: 1, Bytes: 7},
		watermark.ReasonRate:    {Frames: 1, Bytes: 1},
	}, snap.Dropped)
}

// One read brings several frames, and the first makes the level high.
func TestAGateDropsNothingWhereReadingPauses(t *testing.T) {
	for _, tc := range []struct {
		name        string
		keepReading bool
		want        []string
	}{
		{"lossless", false, []string{"first", "second", "third"}},
		{"lossy", true, []string{"first"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := small()
			cfg.KeepReading = tc.keepReading
			h := newHandler(t, cfg)
			var out []string
			var app *pipeline.Context
			ch, ctx := channel(t, h, threeFrames, watermark.NewDropGate(h), onRead(func(ctx *pipeline.Context, msg any) error {
				out = append(out, msg.(*frame).text)
				app = ctx
				ctx.Hold(1024)
				return nil
			}))
			ch.WriteInbound("three frames")
			assert.Equal(t, watermark.High, h.Level())
			assert.Equal(t, tc.want, out)
			assert.Equal(t, tc.keepReading, ctx.Reading())
			snap := h.Stats().Snapshot()
			assert.EqualValues(t, len(tc.want), snap.Delivered.Frames)
			assert.EqualValues(t, 3-len(tc.want), snap.Dropped[watermark.ReasonPending].Frames)
			ch.Do(func() { app.Hold(-1024 * len(out)) })
		})
	}
}

// The gate looks behind each frame, so that a framer that asks ctx.Reading stops there.
func TestAFramerStopsBehindTheFrameThatIsTooMuch(t *testing.T) {
	h := newHandler(t, medium())
	framer := onRead(func(ctx *pipeline.Context, _ any) error {
		for i := 0; i < 3 && ctx.Reading(); i++ {
			ctx.FireRead(&frame{"one of three"})
		}
		return nil
	})
	seen := 0
	ch, _ := channel(t, h, framer, watermark.NewDropGate(h), onRead(func(ctx *pipeline.Context, _ any) error {
		seen++
		return ctx.WriteBytes(make([]byte, 3000))
	}))
	ch.Stall()
	ch.WriteInbound("three frames")
	assert.Equal(t, 2, seen)
	ch.Unstall()
}

// The second frame finds more than the hard limit pending, and the Probe closes: what the framer still emits is not for
// the application, nor was it delivered.
func TestAGateDropsWhatComesAfterTheEnd(t *testing.T) {
	h := newHandler(t, small())
	var out []string
	app := onRead(func(ctx *pipeline.Context, msg any) error {
		out = append(out, msg.(*frame).text)
		ctx.Hold(4097)
		return nil
	})
	ch, _ := channel(t, h, threeFrames, watermark.NewDropGate(h), watermark.NewProbe(h), app)
	ch.WriteInbound("three frames")
	assert.Equal(t, watermark.OverLimit, h.Level())
	assert.Equal(t, []string{"first"}, out)
	snap := h.Stats().Snapshot()
	assert.EqualValues(t, 2, snap.Delivered.Frames, "to the Probe")
	assert.Equal(t, map[watermark.Reason]watermark.Count{watermark.ReasonPending: {Frames: 1, Bytes: 5}}, snap.Dropped)
}

// Ten bytes are a second's, and all that the bucket holds. A larger frame needs a full one and leaves a debt.
func TestAGatePassesFramesUpToTheRate(t *testing.T) {
	for _, tc := range []struct {
		before, frame int // bytes
		passes        bool
	}{
		{0, 9, true},
		{0, 10, true},
		{0, 11, true},
		{1, 8, true},
		{1, 9, true},
		{1, 10, false},
		{1, 11, false},
		{10, 0, true},
		{10, 1, false},
		{11, 0, false},
	} {
		t.Run(fmt.Sprintf("%d after %d", tc.frame, tc.before), func(t *testing.T) {
			cfg := small()
			cfg.KeepReading, cfg.RateBytesPerSecond, cfg.BurstBytes = true, 10, 10
			h := newHandler(t, cfg)
			ch, _ := channel(t, h, watermark.NewDropGate(h), onRead(func(*pipeline.Context, any) error { return nil }))
			send := func(n int) { ch.WriteInbound(&frame{strings.Repeat("x", n)}) }
			send(tc.before)
			before := h.Stats().Snapshot().Delivered.Frames
			send(tc.frame)
			snap := h.Stats().Snapshot()
			assert.Equal(t, tc.passes, snap.Delivered.Frames == before+1)
			assert.Equal(t, !tc.passes, snap.Dropped[watermark.ReasonRate].Frames == 1)
			if tc.before+tc.frame == 11 && tc.passes {
				ch.Advance(time.Second) // pays the debt: nine are there
				send(10)
				assert.EqualValues(t, 1, h.Stats().Snapshot().Dropped[watermark.ReasonRate].Frames)
				send(9)
				assert.EqualValues(t, before+2, h.Stats().Snapshot().Delivered.Frames)
			}
		})
	}
}

func TestDeliveredAndDroppedAreWhatArrived(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		cfg := small()
		cfg.KeepReading, cfg.RateBytesPerSecond = true, 2000
		h := newHandler(t, cfg)
		delivered := 0
		ch, _ := channel(t, h, watermark.NewDropGate(h), onRead(func(_ *pipeline.Context, msg any) error {
			delivered++
			return nil
		}))
		arrived, bytes := 0, 0
		for range 100 {
			switch rng.IntN(3) {
			case 0:
				ch.SetPending(rng.IntN(2000))
			case 1:
				ch.Advance(time.Duration(rng.IntN(100)) * time.Millisecond)
			case 2:
				f := &frame{string(make([]byte, 1+rng.IntN(200)))}
				arrived++
				bytes += f.Len()
				ch.WriteInbound(f)
			}
		}
		snap := h.Stats().Snapshot()
		frames, sum := snap.Delivered.Frames, snap.Delivered.Bytes
		for _, c := range snap.Dropped {
			frames, sum = frames+c.Frames, sum+c.Bytes
		}
		require.EqualValues(t, arrived, frames, "seed %d", seed)
		require.EqualValues(t, bytes, sum, "seed %d", seed)
		require.EqualValues(t, delivered, snap.Delivered.Frames, "seed %d", seed)
		ch.SetPending(0)
	}
}

func TestAnInputAndAnotherChannelMakeItHigh(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	source, sink := newHandler(t, small()), newHandler(t, small())
	from := l.New(pipelinetest.Named("watermark", source))
	to := l.New(pipelinetest.Named("watermark", sink))
	source.Follow(sink)
	to.SetPending(1024)
	assert.True(t, from.Paused())
	to.SetPending(256)
	assert.False(t, from.Paused())
	to.SetPending(1024)
	to.Abort(nil)
	assert.False(t, from.Paused(), "a closed one holds nobody")

	level, err := flow.NewLevel(flow.LevelConfig{High: 10, Low: 5})
	require.NoError(t, err)
	in := source.NewInput()
	from.Do(func() { in.Tell(level.Add(10)) })
	assert.True(t, from.Paused())
	from.Do(func() { in.Tell(level.Add(-4)) })
	assert.True(t, from.Paused())
	from.Do(func() { in.Tell(level.Add(-1)) })
	assert.False(t, from.Paused())
}

func BenchmarkHandlerRead(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprintf("watermark=%t", with), func(b *testing.B) {
			sink := onRead(func(*pipeline.Context, any) error { return nil })
			ch := pipelinetest.New(b, sink)
			if with {
				ch.Do(func() { check(ch.Pipeline().AddFirst("watermark", newHandler(b, watermark.Config{}))) })
			}
			buf := ch.Loop().Pool().Get(64)
			buf.Append(make([]byte, 64))
			b.ReportAllocs()
			for b.Loop() {
				ch.Pipeline().FireRead(buf)
			}
			buf.Release()
		})
	}
}

// Who decides has gone: the channel and its stream live on.
func TestAGateWhoseHandlerWasTakenOutPassesEverything(t *testing.T) {
	for name, gate := range map[string]func(h *watermark.Handler) any{
		"probe": func(h *watermark.Handler) any { return watermark.NewProbe(h) },
		"gate":  func(h *watermark.Handler) any { return watermark.NewDropGate(h) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandler(t, small())
			ch, _ := channel(t, h, gate(h))
			ch.WriteInbound("abc")
			_, err := ch.Pipeline().Replace("watermark", "another", newHandler(t, small()))
			require.NoError(t, err)
			ch.WriteInbound("def")
			assert.Equal(t, "abcdef", ch.InboundString())
		})
	}
}
