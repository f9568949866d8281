package pipelinetest_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestCloseSendsWhatIsQueued(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Stalled: true}, pipelinetest.Named("r", r))
	r.take()
	ch.Do(func() { require.NoError(t, ch.Context("r").Write("abc")) })
	ch.Close()
	ch.Close()
	assert.False(t, ch.Open())
	assert.False(t, ch.Closed())
	ch.Do(func() { assert.ErrorIs(t, ch.Context("r").Write("d"), pipeline.ErrClosed) })
	ch.WriteInbound("thrown away")
	ch.Drain(2)
	assert.False(t, ch.FinSent())
	ch.Drain(1)
	assert.True(t, ch.FinSent())
	assert.True(t, ch.Closed())
	assert.Equal(t, []string{"inactive <nil>", "removed"}, r.take())
	assert.Equal(t, "abc", ch.OutboundString())
}

func TestCallbacksRunBeforeInactive(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Stalled: true}, pipelinetest.Named("r", r))
	r.take()
	ch.Do(func() {
		ctx := ch.Context("r")
		require.NoError(t, ctx.Write("abc"))
		ctx.Flushed(func(err error) { r.note("flushed %v", err) })
		require.NoError(t, ctx.Ref().Execute(func(*pipeline.Context) { r.note("posted") }))
		ctx.Abort(errTest)
	})
	log := r.take()
	assert.ElementsMatch(t, []string{"flushed pipeline: channel closed: test error", "posted"}, log[:2])
	assert.Equal(t, []string{"inactive test error", "removed"}, log[2:])
}

func TestAbortDoesNotDenyWhatTheKernelHas(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("r", &recorder{}))
	var got []error
	ch.Do(func() {
		ctx := ch.Context("r")
		require.NoError(t, ctx.Write("abc"))
		require.NoError(t, ctx.Flush())
		ctx.Flushed(func(err error) { got = append(got, err) })
		ctx.Abort(errTest)
	})
	assert.Equal(t, []error{nil}, got)
	assert.Equal(t, "abc", ch.OutboundString())
}

// gatherer keeps what is written until it is flushed, behind an encoder.
type gatherer struct{ kept []byte }

func (g *gatherer) Write(_ *pipeline.Context, msg any) error {
	g.kept = append(g.kept, msg.(*buffer.Buf).Bytes()...)
	return nil
}

func (g *gatherer) Flush(ctx *pipeline.Context) error {
	err := ctx.WriteBytes([]byte("["), g.kept, []byte("]"))
	g.kept = nil
	if err != nil {
		return err
	}
	return ctx.Flush()
}

func TestCloseForAnErrorSendsWhatHandlersKeep(t *testing.T) {
	ch := pipelinetest.New(t, &gatherer{}, onRead(func(ctx *pipeline.Context, _ any) error {
		if err := ctx.WriteBytes([]byte("sorry")); err != nil {
			return err
		}
		return errTest
	}))
	ch.WriteInbound("x")
	assert.Equal(t, "[sorry]", ch.OutboundString())
	assert.Equal(t, errTest, ch.TakeError())
}

func TestCloseIsBoundedWhateverThePeerDoes(t *testing.T) {
	for name, cfg := range map[string]pipelinetest.Config{
		"takes nothing":       {Stalled: true, CloseTimeout: time.Second},
		"keeps its side open": {SilentPeer: true, CloseTimeout: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ch := pipelinetest.NewConfig(t, cfg, pipelinetest.Named("r", &recorder{}))
			ch.Do(func() { require.NoError(t, ch.Context("r").Write("abc")) })
			ch.Close()
			ch.Advance(time.Second - 1)
			assert.False(t, ch.Closed())
			ch.Advance(1)
			assert.True(t, ch.Closed())
			assert.ErrorIs(t, ch.Cause(), pipelinetest.ErrCloseTimeout)
		})
	}
}

func TestClosingDiscardsInputUpToALimit(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{SilentPeer: true})
	ch.Close()
	ch.WriteInbound(make([]byte, 1<<20))
	assert.False(t, ch.Closed())
	ch.WriteInbound("x")
	assert.True(t, ch.Closed())
	assert.NoError(t, ch.Cause())
}

func TestSilentPeerClosesLater(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{SilentPeer: true})
	ch.Close()
	assert.True(t, ch.FinSent())
	assert.False(t, ch.Closed())
	ch.PeerClose()
	assert.True(t, ch.Closed())
}

func TestHalfClose(t *testing.T) {
	for name, first := range map[string]bool{"peer first": true, "channel first": false} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{keep: true}
			ch := pipelinetest.NewConfig(t, pipelinetest.Config{SilentPeer: true}, pipelinetest.Named("r", r))
			r.take()
			finish := func() { ch.Do(func() { assert.NoError(t, ch.Context("r").CloseWrite()) }) }
			if first {
				ch.PeerClose()
				assert.Equal(t, []string{"read closed"}, r.take())
				ch.Do(func() { assert.NoError(t, ch.Context("r").Write("still open")) })
				finish()
				assert.Equal(t, "still open", ch.OutboundString())
			} else {
				finish()
				assert.Equal(t, []string{"writable false"}, r.take())
				ch.WriteInbound("still open")
				assert.Equal(t, []string{"read still open", "complete"}, r.take())
				ch.PeerClose()
				assert.Equal(t, "read closed", r.take()[0])
			}
			assert.True(t, ch.Closed())
			assert.NoError(t, ch.Cause())
		})
	}
}

func TestPeerReset(t *testing.T) {
	t.Run("what was sent before comes first", func(t *testing.T) {
		r := &recorder{}
		ch := pipelinetest.NewConfig(t, pipelinetest.Config{Inactive: true}, r)
		ch.WriteInbound("a")
		ch.PeerReset()
		ch.Activate()
		assert.ErrorIs(t, ch.Cause(), syscall.ECONNRESET)
		assert.Equal(t, []string{"active", "read a", "complete"}, r.take()[:3])
	})
	t.Run("a write finds out", func(t *testing.T) {
		ch := pipelinetest.New(t, pipelinetest.Named("r", &recorder{}))
		ch.Do(ch.Context("r").Pause)
		ch.PeerReset()
		assert.True(t, ch.Open(), "paused: nobody reads")
		ch.Do(func() { require.NoError(t, ch.Context("r").Write("x")) })
		assert.True(t, ch.Closed())
		assert.ErrorIs(t, ch.Cause(), syscall.ECONNRESET)
	})
	t.Run("half-closed", func(t *testing.T) {
		ch := pipelinetest.New(t, &recorder{keep: true})
		ch.PeerClose()
		assert.True(t, ch.Open())
		ch.PeerReset()
		assert.ErrorIs(t, ch.Cause(), syscall.ECONNRESET)
	})
	t.Run("while closing", func(t *testing.T) {
		ch := pipelinetest.NewConfig(t, pipelinetest.Config{Stalled: true}, pipelinetest.Named("r", &recorder{}))
		ch.Do(func() { require.NoError(t, ch.Context("r").Write("x")) })
		ch.Close()
		ch.PeerReset()
		assert.True(t, ch.Closed())
	})
}

func TestPeerThatLeftIsForgottenAfterAWhile(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{PausedCloseTimeout: time.Minute}, pipelinetest.Named("r", r))
	ch.Do(ch.Context("r").Pause)
	ch.WriteInbound("a")
	ch.PeerClose()
	ch.Advance(time.Minute - 1)
	assert.True(t, ch.Open())
	ch.Advance(1)
	assert.ErrorIs(t, ch.Cause(), pipelinetest.ErrPausedClose)
	assert.NotContains(t, r.take(), "read a")
}

func TestShutdownAsksTheHandlersFirst(t *testing.T) {
	ch := pipelinetest.New(t, &recorder{})
	ch.Shutdown()
	assert.True(t, ch.Closed())
	ch.Shutdown()
}

// lastWords writes something before the channel closes.
type lastWords struct{}

func (lastWords) Close(ctx *pipeline.Context) error {
	if err := ctx.Write("bye"); err != nil {
		return err
	}
	return ctx.Close()
}

// onward passes on what it is asked.
type onward struct{}

func (onward) ChannelReadClosed(ctx *pipeline.Context) error { ctx.FireReadClosed(); return nil }
func (onward) ChannelShutdown(ctx *pipeline.Context) error   { ctx.FireShutdown(); return nil }

func TestOrderlyClosesThatNobodyAskedForGoThroughTheCloseHandlers(t *testing.T) {
	for name, end := range map[string]func(*pipelinetest.Channel){
		"peer":     func(c *pipelinetest.Channel) { c.PeerClose() },
		"shutdown": func(c *pipelinetest.Channel) { c.Shutdown() },
	} {
		for _, handlers := range [][]any{{lastWords{}}, {lastWords{}, onward{}}} {
			c := pipelinetest.New(t, handlers...)
			end(c)
			c.RunTasks()
			assert.Equal(t, "bye", string(c.Outbound()), "%s, %d handlers", name, len(handlers))
			assert.False(t, c.Open())
			c.Finish()
		}
	}
}

// keeper keeps strings until the flush.
type keeper struct{ kept string }

func (k *keeper) Write(_ *pipeline.Context, msg any) error { k.kept += msg.(string); return nil }

func (k *keeper) Flush(ctx *pipeline.Context) error {
	kept := k.kept
	k.kept = ""
	if kept != "" {
		if err := ctx.Write(kept); err != nil {
			return err
		}
	}
	return ctx.Flush()
}

func TestHandlerThatKeepsWritesIsFlushedAtTheEndOfTheTurn(t *testing.T) {
	k := &keeper{}
	ch := pipelinetest.New(t, k, pipelinetest.Named("r", &recorder{}))
	ch.Do(func() { require.NoError(t, ch.Context("r").Write("kept")) })
	assert.Equal(t, "kept", ch.OutboundString())
}
