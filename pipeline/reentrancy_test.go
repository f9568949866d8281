package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestFlushInsideWriteSendsAtOnce(t *testing.T) {
	ch, app := chainOf(t, onWrite(func(ctx *pipeline.Context, msg any) error {
		if err := ctx.Write(msg); err != nil {
			return err
		}
		return ctx.Flush()
	}))
	ch.Do(func() {
		assert.NoError(t, app.Write("x"))
		assert.Equal(t, "x", ch.OutboundString(), "before the end of the turn")
	})
}

func TestFlushInsideFlushEnds(t *testing.T) {
	flushes := 0
	ch, app := chainOf(t, onFlush(func(ctx *pipeline.Context) error {
		flushes++
		if err := ctx.WriteBytes([]byte("f")); err != nil { // writing on a flush, as a compressor does
			return err
		}
		return ctx.Flush()
	}))
	ch.Do(func() {
		assert.NoError(t, app.Write("x"))
		assert.NoError(t, app.Flush())
	})
	assert.Equal(t, "xf", ch.OutboundString()[:2])
	assert.LessOrEqual(t, flushes, 3)
}

func TestCloseInsideReadStopsTheRestOfTheBatch(t *testing.T) {
	var log journal
	ch := pipelinetest.New(t,
		onRead(func(ctx *pipeline.Context, msg any) error {
			log.add("read %s", text(msg))
			if err := ctx.WriteBytes([]byte("bye")); err != nil {
				return err
			}
			return ctx.Close()
		}),
		onInactive(func(*pipeline.Context) error { log.add("inactive"); return nil }))
	ch.WriteInbound("a", "b", "c")
	assert.Equal(t, journal{"read a", "inactive"}, log)
	assert.Equal(t, "bye", ch.OutboundString())
}

func TestCloseHandlerMayWriteItsGoodbye(t *testing.T) {
	ch, app := chainOf(t, wrap("[]"), onClose(func(ctx *pipeline.Context) error {
		if err := ctx.WriteBytes([]byte("goodbye")); err != nil {
			return err
		}
		return ctx.Close()
	}))
	ch.Do(func() {
		assert.NoError(t, app.WriteBytes([]byte("last")))
		assert.NoError(t, app.Close())
	})
	assert.Equal(t, "[last][goodbye]", ch.OutboundString())
	assert.True(t, ch.Closed())
}

func TestCloseThatComesBackToItsHandlerPassesItBy(t *testing.T) {
	calls := 0
	ch, app := chainOf(t, onClose(func(ctx *pipeline.Context) error {
		calls++
		return ctx.Pipeline().Close()
	}))
	ch.Do(func() { assert.NoError(t, app.Close()) })
	assert.Equal(t, 1, calls)
	assert.True(t, ch.Closed())
}

func TestCloseHandlerMayCloseLater(t *testing.T) {
	calls := 0
	late := onClose(func(*pipeline.Context) error { calls++; return nil })
	ch := pipelinetest.New(t, pipelinetest.Named("late", late))
	ch.Close()
	assert.True(t, ch.Open())
	ch.Close()
	assert.Equal(t, 2, calls, "it is asked each time")
	ch.Do(func() { assert.NoError(t, ch.Context("late").Close()) })
	assert.True(t, ch.Closed())
}

func TestWriteInsideFlushedCallbackIsSent(t *testing.T) {
	ch, app := chainOf(t, wrap("[]"))
	ch.Do(func() {
		assert.NoError(t, app.WriteBytes([]byte("a")))
		app.Flushed(func(err error) {
			assert.NoError(t, err)
			assert.NoError(t, app.WriteBytes([]byte("b")))
			app.Flushed(func(err error) {
				assert.NoError(t, err)
				assert.NoError(t, app.Close())
			})
		})
	})
	assert.Equal(t, "[a][b]", ch.OutboundString())
	assert.True(t, ch.Closed())
}

func TestWriteInsideWriteKeepsOrder(t *testing.T) {
	ch, app := chainOf(t, onWrite(func(ctx *pipeline.Context, msg any) error {
		if err := ctx.Write("<"); err != nil {
			return err
		}
		if err := ctx.Write(msg); err != nil {
			return err
		}
		return ctx.Write(">")
	}), pass{})
	ch.Do(func() {
		assert.NoError(t, app.WriteBytes([]byte("a")))
		assert.NoError(t, app.Write("b"))
	})
	assert.Equal(t, "<a><b>", ch.OutboundString())
}

func TestAbortInsideWriteHandlerOfPostponedOutput(t *testing.T) {
	errors := 0
	app := struct {
		onRead
		onError
	}{
		func(ctx *pipeline.Context, _ any) error { return appendOut(ctx, "x") },
		func(_ *pipeline.Context, err error) error { errors++; return err },
	}
	ch := pipelinetest.New(t, onWrite(func(ctx *pipeline.Context, msg any) error {
		ctx.Abort(errTest)
		return ctx.Write(msg)
	}), app)
	ch.WriteInbound("x")
	assert.True(t, ch.Closed())
	assert.Equal(t, errTest, ch.Cause())
	assert.Zero(t, errors, "that the channel is closed is no error of a write that nobody waits for")
}

func TestPendingLimitInsideEncoderClosesOnce(t *testing.T) {
	inactive := 0
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{MaxPendingBytes: 4096, Stalled: true}, pass{},
		pipelinetest.Named("app", onInactive(func(*pipeline.Context) error { inactive++; return nil })))
	app := ch.Context("app")
	ch.Do(func() {
		check(app.Write(make([]byte, 4096)))
		check(app.Write(make([]byte, 4096))) // at the limit, not above it
		assert.ErrorIs(t, app.Write(make([]byte, 1)), pipeline.ErrPendingLimit)
		assert.ErrorIs(t, app.Write(make([]byte, 1)), pipeline.ErrClosed)
		assert.False(t, app.Reading())
	})
	assert.Equal(t, 1, inactive)
	assert.ErrorIs(t, ch.Cause(), pipeline.ErrPendingLimit)
}

func TestTimersAreTheHandlers(t *testing.T) {
	var log journal
	var timer pipeline.Timer
	ch := pipelinetest.New(t, pipelinetest.Named("h", struct {
		onActive
		onError
	}{
		func(ctx *pipeline.Context) error {
			timer = ctx.NewTimer(func(ctx *pipeline.Context) error {
				log.add("fired at %v", ctx.Now())
				return errTest
			})
			return nil
		},
		func(_ *pipeline.Context, err error) error { log.add("caught %v", err); return nil },
	}))
	timer.Reset(10)
	ch.Advance(9)
	assert.Empty(t, log)
	ch.Advance(1)
	assert.Equal(t, journal{"fired at 1h0m0.00000001s", "caught test error"}, log)
	assert.False(t, timer.Stop())
	timer.Reset(5)
	ch.Do(func() {
		_, err := ch.Pipeline().Remove("h")
		assert.NoError(t, err)
	})
	ch.Advance(100)
	assert.Len(t, log, 2, "a handler that has left gets nothing")
}
