package watermark_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func small() watermark.Config {
	return watermark.Config{HighBytes: 1024, LowBytes: 256, HardLimitBytes: 4096}
}

// medium is for what is written: a block holds 4 KiB and more.
func medium() watermark.Config {
	return watermark.Config{HighBytes: 8 << 10, LowBytes: 3 << 10, HardLimitBytes: 32 << 10}
}

func TestConfigIsValidated(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  watermark.Config
		ok   bool
	}{
		{"zero", watermark.Config{}, true},
		{"the least", watermark.Config{LowBytes: 1, HighBytes: 2, HardLimitBytes: 3}, true},
		{"low follows high", watermark.Config{HighBytes: 4}, true},
		{"high too small for a low", watermark.Config{HighBytes: 3}, false},
		{"low at high", watermark.Config{LowBytes: 2, HighBytes: 2, HardLimitBytes: 3}, false},
		{"low negative", watermark.Config{LowBytes: -1, HighBytes: 2, HardLimitBytes: 3}, false},
		{"high at hard", watermark.Config{LowBytes: 1, HighBytes: 3, HardLimitBytes: 3}, false},
		{"hard at the channel's", watermark.Config{MaxPendingBytes: 1 << 20}, false},
		{"hard below the channel's", watermark.Config{MaxPendingBytes: 1<<20 + 1}, true},
		{"the smallest rate", watermark.Config{RateBytesPerSecond: 1}, true},
		{"a rate below nothing", watermark.Config{RateBytesPerSecond: -1}, false},
		{"a burst of no rate", watermark.Config{BurstBytes: 1}, false},
		{"a burst of a rate", watermark.Config{RateBytesPerSecond: 1, BurstBytes: 1}, true},
		{"negative burst", watermark.Config{BurstBytes: -1}, false},
		{"negative budget", watermark.Config{BudgetBytes: -1}, false},
		{"no shared level", watermark.Config{Shared: []*watermark.Shared{nil}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := watermark.New(tc.cfg)
			if tc.ok {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, watermark.ErrConfig)
			}
			assert.Equal(t, err == nil, tc.cfg.Validate() == nil)
		})
	}
}

func TestLevelsFollowWhatIsPending(t *testing.T) {
	h := newHandler(t, small())
	events := &handlerEvents{}
	ch, ctx := channel(t, h, events)
	for _, tc := range []struct {
		pending int
		reading bool
		level   watermark.Level
	}{
		{0, true, watermark.Normal},
		{1023, true, watermark.Normal},
		{1024, false, watermark.High},
		{512, false, watermark.High},
		{257, false, watermark.High},
		{256, true, watermark.Normal},
		{1024, false, watermark.High},
		{200, true, watermark.Normal},
		{5000, false, watermark.High}, // by one message
	} {
		ch.SetPending(tc.pending)
		assert.Equal(t, tc.reading, ctx.Reading(), "%d pending", tc.pending)
		assert.Equal(t, tc.level, h.Level(), "%d pending", tc.pending)
	}
	ch.Do(func() { assert.NoError(t, ctx.WriteBytes([]byte("x"))) })
	// The kernel took that: what is pending is as before, and nothing is over twice.
	require.Equal(t, watermark.High, h.Level())
	ch.SetPending(5001) // the next message finds it over
	assert.Equal(t, watermark.OverLimit, h.Level())
	assert.True(t, ch.Closed())
	assert.ErrorIs(t, ch.Cause(), watermark.ErrOverLimit)
	assert.Equal(t, []watermark.Level{
		watermark.High, watermark.Normal, watermark.High, watermark.Normal, watermark.High, watermark.OverLimit,
	}, changes(ch, events))
	assert.EqualValues(t, 1, h.Stats().Snapshot().OverLimits)
}

func TestTheHardLimitIsJudgedWithoutTheNewestMessage(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after int // pending at the ends of two turns in a row
		over          bool
	}{
		{"at the limit", 4096, 4097, false},
		{"from below to above", 4095, 9000, false},
		{"above, and more", 4097, 4098, true},
		{"above, and less", 5000, 4999, false},
		{"above, and the same", 5000, 5000, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHandler(t, small())
			ch, _ := channel(t, h)
			ch.SetPending(tc.before)
			ch.SetPending(tc.after)
			assert.Equal(t, tc.over, h.Level() == watermark.OverLimit)
			assert.Equal(t, tc.over, ch.Closed())
		})
	}
}

func TestWhatDrainsAndGrowsAgainAboveTheLimitIsOver(t *testing.T) {
	h := newHandler(t, small())
	ch, _ := channel(t, h)
	ch.SetPending(6000)
	ch.SetPending(5000)
	require.Equal(t, watermark.High, h.Level())
	ch.SetPending(5500)
	assert.Equal(t, watermark.OverLimit, h.Level())
}

func TestAReadThatFindsTooMuchPendingCloses(t *testing.T) {
	cfg := small()
	cfg.KeepReading = true // else nothing is read there
	h := newHandler(t, cfg)
	reads := 0
	ch, _ := channel(t, h, onRead(func(*pipeline.Context, any) error { reads++; return nil }))
	ch.SetPending(4096)
	ch.WriteInbound("a")
	assert.Equal(t, 1, reads, "at the limit")
	ch.SetPending(4097)
	ch.WriteInbound("b")
	assert.Equal(t, 1, reads, "above")
	assert.Equal(t, watermark.OverLimit, h.Level())
	assert.True(t, ch.Closed())
}

func TestItResumesHoweverPendingFell(t *testing.T) {
	for name, tc := range map[string]struct {
		up, down func(ch *pipelinetest.Channel, ctx *pipeline.Context)
	}{
		"held bytes are given back": {
			func(ch *pipelinetest.Channel, ctx *pipeline.Context) { ch.Do(func() { ctx.Hold(2000) }) },
			func(ch *pipelinetest.Channel, ctx *pipeline.Context) { ch.Do(func() { ctx.Hold(-2000) }) },
		},
		"the kernel takes them": {
			func(ch *pipelinetest.Channel, ctx *pipeline.Context) {
				ch.Stall()
				ch.Do(func() { check(ctx.WriteBytes(make([]byte, 2000))) })
			},
			func(ch *pipelinetest.Channel, _ *pipeline.Context) { ch.Drain(2000) },
		},
		"they were posted": {
			func(ch *pipelinetest.Channel, ctx *pipeline.Context) {
				ch.Stall()
				check(ctx.Ref().TryWrite(make([]byte, 2000)))
				ch.RunTasks()
			},
			func(ch *pipelinetest.Channel, _ *pipeline.Context) { ch.Drain(2000) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandler(t, small())
			ch, ctx := channel(t, h)
			tc.up(ch, ctx)
			require.Equal(t, watermark.High, h.Level())
			require.True(t, ch.Paused())
			ch.WriteInbound("later")
			require.Empty(t, ch.InboundString())
			tc.down(ch, ctx)
			assert.Equal(t, watermark.Normal, h.Level())
			assert.False(t, ch.Paused())
			assert.Equal(t, "later", ch.InboundString())
			ch.Unstall()
		})
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func TestItUndoesNobodyElsesPause(t *testing.T) {
	h := newHandler(t, small())
	other := onRead(func(*pipeline.Context, any) error { return nil })
	ch, _ := channel(t, h, pipelinetest.Named("other", other))
	ch.Do(func() { ch.Context("other").Pause() })
	ch.SetPending(1024)
	ch.SetPending(0)
	assert.Equal(t, watermark.Normal, h.Level())
	assert.True(t, ch.Paused())
	ch.Do(func() { ch.Context("other").Resume() })
	assert.False(t, ch.Paused())
}

func TestWritingGoesOnWhileReadingIsPaused(t *testing.T) {
	h := newHandler(t, small())
	ch, ctx := channel(t, h)
	ch.SetPending(2000)
	require.True(t, ch.Paused())
	assert.True(t, ctx.Writable())
	ch.Operations()
	ch.Do(func() { check(ctx.Write("out")) })
	assert.Equal(t, "out", ch.OutboundString())
	assert.Equal(t, []string{"send 3"}, ch.Operations(), "what is written does not touch it either")
}

func TestABatchStopsAtTheMessageThatIsTooMuch(t *testing.T) {
	h := newHandler(t, medium())
	seen := 0
	// A decoder that makes ten messages of one, and asks before each.
	decoder := onRead(func(ctx *pipeline.Context, msg any) error {
		for i := 0; i < 10 && ctx.Reading(); i++ {
			ctx.FireRead(msg)
		}
		return nil
	})
	app := onRead(func(ctx *pipeline.Context, _ any) error {
		seen++
		return ctx.WriteBytes(make([]byte, 3000))
	})
	ch, _ := channel(t, h, decoder, watermark.NewProbe(h), app)
	ch.Stall()
	ch.WriteInbound("x")
	assert.Equal(t, 2, seen)
	assert.Equal(t, watermark.High, h.Level())
	ch.Unstall()
}

func TestADecoderThatNeverStopsIsClosed(t *testing.T) {
	h := newHandler(t, small())
	seen := 0
	decoder := onRead(func(ctx *pipeline.Context, msg any) error {
		for range 100 {
			ctx.FireRead(msg)
		}
		return nil
	})
	app := onRead(func(ctx *pipeline.Context, _ any) error {
		seen++
		return ctx.WriteBytes(make([]byte, 1000))
	})
	ch, _ := channel(t, h, decoder, watermark.NewProbe(h), app)
	ch.Stall()
	ch.WriteInbound("x")
	assert.Equal(t, 5, seen, "4096 are exceeded by the fifth, which is accepted")
	assert.Equal(t, watermark.OverLimit, h.Level())
	assert.ErrorIs(t, ch.Cause(), watermark.ErrOverLimit)
}

func TestGrants(t *testing.T) {
	cfg := small()
	cfg.BudgetBytes = 100
	h := newHandler(t, cfg)
	ch, ctx := channel(t, h)
	for _, tc := range []struct{ pending, want int }{
		{0, 100}, {511, 100}, {512, 50}, {1023, 50}, {1024, 0}, {257, 0}, {256, 100},
	} {
		ch.SetPending(tc.pending)
		n, retry := h.ReadGrant(ctx)
		assert.Equal(t, tc.want, n, "%d pending", tc.pending)
		assert.Zero(t, retry, "%d pending: who resumes makes it ask again", tc.pending)
	}
}

func TestTheRateIsKeptExactlyInTheLongRun(t *testing.T) {
	cfg := watermark.Config{RateBytesPerSecond: 1024, BurstBytes: 1024, BudgetBytes: 512}
	h := newHandler(t, cfg)
	read := 0
	ch, _ := channel(t, h, onRead(func(_ *pipeline.Context, msg any) error { read += bytesOf(msg); return nil }))
	for range 300 {
		ch.WriteInbound(make([]byte, 64))
	}
	assert.Equal(t, 1024, read, "the burst")
	ch.Advance(10 * time.Second)
	assert.InDelta(t, 1024+10*1024, read, 64, "each read may overshoot, and pays for it")
	assert.LessOrEqual(t, read, 1024+10*1024+64)
}

func TestOvershootIsDebt(t *testing.T) {
	h := newHandler(t, watermark.Config{RateBytesPerSecond: 1000, BurstBytes: 1000, BudgetBytes: 1000})
	ch, ctx := channel(t, h)
	ch.WriteInbound(make([]byte, 3000))
	n, retry := h.ReadGrant(ctx)
	assert.Zero(t, n)
	assert.Equal(t, 2*time.Second+15*time.Millisecond, retry, "the debt, and 1/64 s worth a receive")
	ch.Advance(retry)
	n, _ = h.ReadGrant(ctx)
	assert.Equal(t, 15, n)
}

func TestAnEmptyBucketIsAskedAtMost64TimesASecond(t *testing.T) {
	h := newHandler(t, watermark.Config{RateBytesPerSecond: 64_000, BurstBytes: 64_000})
	ch, ctx := channel(t, h)
	ch.WriteInbound(make([]byte, 64_000))
	n, retry := h.ReadGrant(ctx)
	assert.Zero(t, n)
	assert.GreaterOrEqual(t, retry, time.Second/64)
}

func TestCountersTellPausesAndTime(t *testing.T) {
	stats := &watermark.Stats{}
	cfg := small()
	cfg.Stats = stats
	h := newHandler(t, cfg)
	ch, _ := channel(t, h)
	for range 3 {
		ch.SetPending(1024)
		ch.Advance(time.Second)
		ch.SetPending(0)
		ch.Advance(time.Minute)
	}
	ch.SetPending(1024)
	ch.Advance(time.Second)
	snap := stats.Snapshot()
	assert.EqualValues(t, 4, snap.Pauses)
	assert.EqualValues(t, 3, snap.Resumes)
	assert.Equal(t, 3*time.Second, snap.High)
	ch.Abort(nil)
	assert.Equal(t, 4*time.Second, stats.Snapshot().High, "closing ends it")
	assert.Equal(t, watermark.Closed, h.Level())
}

func TestAHandlerIsForOneChannel(t *testing.T) {
	h := newHandler(t, small())
	channel(t, h)
	other := pipelinetest.New(t)
	assert.ErrorIs(t, other.Pipeline().AddLast("", h), watermark.ErrPlace)
	assert.Error(t, other.TakeError())
	third := pipelinetest.New(t)
	assert.ErrorIs(t, third.Pipeline().AddLast("", watermark.NewDropGate(h)), watermark.ErrPlace)
	assert.Error(t, third.TakeError())
}

func TestARemovedHandlerHoldsNothing(t *testing.T) {
	shared := newShared(t, watermark.SharedConfig{HighBytes: 1000})
	cfg := small()
	cfg.Shared = []*watermark.Shared{shared}
	h := newHandler(t, cfg)
	ch, _ := channel(t, h)
	require.Positive(t, shared.ReservedBytes())
	ch.SetPending(2000)
	require.True(t, ch.Paused())
	ch.Do(func() {
		_, err := ch.Pipeline().Remove("watermark")
		check(err)
	})
	assert.False(t, ch.Paused())
	assert.Zero(t, shared.ReservedBytes())
	assert.Equal(t, watermark.Closed, h.Level())
	ch.SetPending(9000)
	ch.SetPending(9001)
	assert.True(t, ch.Open())
}

func TestNothingIsAllocatedPerReadOrCrossing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds write down who holds buffers")
	}
	shared := newShared(t, watermark.SharedConfig{HighBytes: 1000})
	cfg := small()
	cfg.Shared = []*watermark.Shared{shared}
	h := newHandler(t, cfg)
	ch, ctx := channel(t, h, onRead(func(*pipeline.Context, any) error { return nil }), &silent{})
	msg := any(&struct{}{})
	assert.Zero(t, testing.AllocsPerRun(100, func() { check(h.ChannelRead(ctx, msg)) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { h.ReadGrant(ctx) }))
	in := h.NewInput()
	assert.Zero(t, testing.AllocsPerRun(100, func() { in.Set(true); in.Set(false) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		ctx.Hold(2000)
		check(h.ChannelRead(ctx, msg))
		ctx.Hold(-2000)
		check(h.ChannelRead(ctx, msg))
	}))
	ch.RunTasks()
}

// silent takes events without keeping them.
type silent struct{}

func (*silent) ChannelEvent(*pipeline.Context, any) error { return nil }
