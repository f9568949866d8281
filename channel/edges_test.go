package channel_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

func TestFlushInDoneOfAFileRegionSendsItOnce(t *testing.T) {
	content := randomBytes(7, 10_000)
	f := openFile(t, content)
	p := newPair(t, sim.Config{})
	server := &probe{}
	done := 0
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		return ctx.Write(&pipeline.FileRegion{File: f, Length: 10_000, Done: func(error) {
			done++
			_ = ctx.Write("end")
			_ = ctx.Flush()
		}})
	}}
	p.connect(server, client)
	p.run(50 * time.Millisecond)
	assert.Equal(t, 1, done)
	assert.Equal(t, 10_003, server.got.Len())
	assert.True(t, bytes.HasSuffix(server.got.Bytes(), []byte("end")))
}

func TestFlushedCallbackThatAsksAgainEndsWithTheChannel(t *testing.T) {
	p := newPair(t, sim.Config{})
	calls := 0
	stop := errors.New("hung")
	server := &probe{}
	var pump func()
	pump = func() {
		calls++
		if calls > 100_000 {
			panic(stop)
		}
		_ = server.ctx.Write("chunk")
		server.ctx.Flushed(func(err error) {
			if err == nil {
				pump()
			}
		})
	}
	server.onActive = func(ctx *pipeline.Context) error { server.ctx = ctx; pump(); return nil }
	client := &probe{}
	p.connect(server, client)
	p.run(time.Millisecond)
	require.NoError(t, client.ctx.CloseWrite())
	p.until("closed", func() bool { return server.inactive == 1 })
	assert.NotErrorIs(t, server.cause, channel.ErrPanic)
	assert.Less(t, calls, 10_000)
}

func TestFlushedCallbackThatAsksAgainDoesNotKeepTheLoop(t *testing.T) {
	p := newPair(t, sim.Config{})
	client := &probe{}
	p.connect(&probe{}, client)
	p.until("active", func() bool { return client.active == 1 })
	n, inTurn := 0, 0
	stopAt := 50_000
	var fn func(error)
	fn = func(error) {
		n++
		inTurn++
		if n < stopAt {
			client.ctx.Flushed(fn)
		}
	}
	client.ctx.Flushed(fn)
	_, err := p.client.RunOnce(0)
	require.NoError(t, err)
	assert.Less(t, inTurn, 1000, "callbacks in one turn")
}

func TestFlushedAfterCloseIsAnsweredWithoutRecursion(t *testing.T) {
	p := newPair(t, sim.Config{})
	client := &probe{}
	p.connect(&probe{}, client)
	p.until("active", func() bool { return client.active == 1 })
	depth, most, n := 0, 0, 0
	var fn func(error)
	fn = func(error) {
		n++
		depth++
		most = max(most, depth)
		if n < 5000 {
			_ = client.ctx.Write("x")
			client.ctx.Flushed(fn)
		}
		depth--
	}
	require.NoError(t, client.ctx.Write(make([]byte, 1<<20)))
	client.ctx.Flushed(fn)
	client.ctx.Abort(errTest)
	p.until("closed", func() bool { return client.inactive == 1 })
	assert.Less(t, most, 3, "depth of recursion")
}

func TestCloseAndCloseWriteSendWhatAFlushHandlerHolds(t *testing.T) {
	for _, how := range []string{"Close", "CloseWrite"} {
		t.Run(how, func(t *testing.T) {
			p := newPair(t, sim.Config{})
			server := &probe{}
			client := &probe{onActive: func(ctx *pipeline.Context) error {
				if err := ctx.Write("hello"); err != nil {
					return err
				}
				if how == "Close" {
					return ctx.Close()
				}
				return ctx.CloseWrite()
			}}
			p.connect(server, &batcher{}, client)
			p.until("both are closed", func() bool { return len(p.closed) == 2 })
			assert.Equal(t, "hello", server.got.String())
			assert.NoError(t, client.cause)
		})
	}
}

// batcher keeps what is written until the flush.
type batcher struct{ held bytes.Buffer }

func (b *batcher) Write(_ *pipeline.Context, msg any) error {
	b.held.WriteString(msg.(string))
	return nil
}

func (b *batcher) Flush(ctx *pipeline.Context) error {
	if b.held.Len() > 0 {
		s := b.held.String()
		b.held.Reset()
		if err := ctx.Write(s); err != nil {
			return err
		}
	}
	return ctx.Flush()
}

func TestEachPauseAfterThePeerHasGoneHasItsDeadline(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.PausedCloseTimeout = time.Second
	server := &probe{}
	server.onActive = func(ctx *pipeline.Context) error { ctx.Pause(); return nil }
	server.onRead = func(ctx *pipeline.Context, _ []byte) error { ctx.Pause(); return nil }
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, 60_000)); err != nil {
			return err
		}
		return ctx.CloseWrite()
	}}
	p.clientConfig.CloseTimeout = time.Hour
	p.connect(server, client)
	p.run(100 * time.Millisecond) // paused; the peer has gone
	require.Zero(t, server.inactive)
	server.ctx.Resume()
	p.until("read", func() bool { return server.got.Len() > 0 })
	p.run(5 * time.Millisecond)
	// paused again, with the rest of the input unread
	require.False(t, server.ctx.Reading())
	p.run(60 * time.Second)
	assert.Equal(t, 1, server.inactive, "paused for 60 s, PausedCloseTimeout is 1 s")
}

func TestEachPauseAfterThePeerHasGoneHasItsDeadlineWithSmallGrants(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.PausedCloseTimeout = time.Second
	g := &granter{n: 1000}
	server := &probe{}
	server.onActive = func(ctx *pipeline.Context) error { ctx.Pause(); return nil }
	server.onRead = func(ctx *pipeline.Context, _ []byte) error { ctx.Pause(); return nil }
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, 50_000)); err != nil {
			return err
		}
		return ctx.CloseWrite()
	}}
	p.connect([]any{g, server}, client)
	p.run(100 * time.Millisecond)
	server.ctx.Resume()
	p.until("read", func() bool { return server.got.Len() > 0 })
	p.run(60 * time.Second)
	assert.Equal(t, 1, server.inactive)
}

func TestPauseAfterTheEndWasToldHasNoDeadline(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.PausedCloseTimeout = time.Second
	server := &halfProbe{}
	server.onActive = func(ctx *pipeline.Context) error { ctx.Pause(); return nil }
	server.onClosed = func(ctx *pipeline.Context) error { ctx.Pause(); return nil } // as a watermark does, say
	client := &halfProbe{}
	p.connect(server, client)
	p.until("active", func() bool { return server.active == 1 && client.active == 1 })
	// EOF is received while a pause takes effect.
	require.NoError(t, client.ctx.Write("request"))
	require.NoError(t, client.ctx.CloseWrite())
	p.run(100 * time.Millisecond)
	server.ctx.Resume()
	p.until("the end was told", func() bool { return server.readClosed == 1 })
	p.run(10 * time.Second)
	assert.Zero(t, server.inactive, "everything was delivered; the answer is still to come")
}

func TestPauseAfterTheEndWasToldHasNoDeadlineWithAStash(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.PausedCloseTimeout = time.Second
	server := &halfProbe{}
	server.onRead = func(ctx *pipeline.Context, _ []byte) error {
		if server.got.Len() < 40_000 {
			ctx.Pause()
		}
		return nil
	}
	server.onClosed = func(ctx *pipeline.Context) error { ctx.Pause(); return nil }
	client := &halfProbe{}
	p.connect(server, client)
	p.until("the server is active", func() bool { return server.active == 1 })
	require.NoError(t, client.ctx.Write(randomBytes(1, 40_000)))
	require.NoError(t, client.ctx.CloseWrite())
	for range 200 {
		_, err := p.client.RunOnce(50 * time.Microsecond)
		require.NoError(t, err)
	}
	p.run(10 * time.Millisecond)
	for server.readClosed == 0 {
		server.ctx.Resume()
		p.run(time.Millisecond)
	}
	p.run(10 * time.Second)
	assert.Zero(t, server.inactive)
}

// Handlers ask before each message they emit: the answer must not wait for the end of the turn.
func TestCloseAndAbortAreSeenAtOnce(t *testing.T) {
	for name, end := range map[string]func(*pipeline.Context) error{
		"close": (*pipeline.Context).Close,
		"abort": func(ctx *pipeline.Context) error { ctx.Abort(errTest); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, sim.Config{})
			server := &probe{onRead: func(ctx *pipeline.Context, _ []byte) error {
				assert.True(t, ctx.Open())
				assert.True(t, ctx.Reading())
				assert.NoError(t, end(ctx))
				assert.False(t, ctx.Open())
				assert.False(t, ctx.Reading())
				assert.ErrorIs(t, ctx.Write("late"), pipeline.ErrClosed)
				return nil
			}}
			p.connect(server, &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("end") }})
			p.until("closed", func() bool { return server.inactive == 1 })
			assert.Equal(t, "end", server.got.String())
		})
	}
}
