package channel_test

import (
	"bytes"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

func TestStoppedTimersAreNotKept(t *testing.T) {
	p := newPair(t, sim.Config{})
	client := &probe{}
	p.connect(&probe{}, client)
	p.until("active", func() bool { return client.active == 1 })
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 100_000 { // a timeout per request
		tm := client.ctx.NewTimer(func(*pipeline.Context) error { return nil })
		tm.Reset(time.Second)
		tm.Stop()
		if i%1000 == 0 {
			p.step()
		}
	}
	grown := int64(heap()) - int64(before)
	assert.Less(t, grown, int64(1<<20))
}

func TestPanicInAcceptedLeavesTheConnectionServed(t *testing.T) {
	p := newPair(t, sim.Config{})
	cfg := channel.Config{}
	ln, err := channel.Listen(p.server, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: address}, Channel: &cfg,
		Accepted: func(*channel.Channel, any) { panic("accepted") },
	})
	require.NoError(t, err)
	p.listener = ln
	client := &probe{}
	p.dial(client)
	p.run(time.Second)
	require.NoError(t, client.ctx.Close())
	p.until("closed", func() bool { return client.inactive == 1 })
	assert.NoError(t, client.cause, "the connection is served or closed")
}

func TestCloseWithTheLargestDiscardLimitDeliversTheOutput(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.CloseDiscardBytes = math.MaxInt
	p.listen(func() []any {
		return []any{&probe{onRead: func(ctx *pipeline.Context, _ []byte) error {
			if err := ctx.Write(bytes.Repeat([]byte{'x'}, 200<<10)); err != nil {
				return err
			}
			return ctx.Close()
		}}}
	})
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 300<<10)) }}
	p.dial(client)
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.Equal(t, 200<<10, client.got.Len())
	assert.NoError(t, client.cause)
}

func TestCloseInInitSendsWhatWasWritten(t *testing.T) {
	p := newPair(t, sim.Config{})
	cfg := channel.Config{Init: func(pl *pipeline.Pipeline) error {
		if err := pl.Write("busy, come back later"); err != nil {
			return err
		}
		return pl.Close()
	}}
	ln, err := channel.Listen(p.server, channel.ListenerConfig{
		Transport: transport.ListenConfig{Network: "tcp", Address: address}, Channel: &cfg,
	})
	require.NoError(t, err)
	p.listener = ln
	client := &probe{}
	p.dial(client)
	p.until("closed", func() bool { return client.inactive == 1 })
	assert.Equal(t, "busy, come back later", client.got.String())
}

func TestAcceptedTryWritesNeverAbortTheChannel(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.clientConfig.MaxPendingBytes = 1 << 20
	server := &probe{}
	client := &probe{}
	p.connect(server, client)
	p.until("active", func() bool { return client.active == 1 })
	r := client.ctx.Ref()
	n := 0
	for r.TryWrite(make([]byte, 33<<10)) == nil {
		n++
	}
	p.run(100 * time.Millisecond)
	assert.Zero(t, client.inactive, "%v", client.cause)
	assert.Equal(t, n*33<<10, server.got.Len())
}

func TestDataBeforeResetIsDeliveredThoughASendFailed(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	server.onRead = func(ctx *pipeline.Context, _ []byte) error { _ = ctx.Write("ack"); return nil }
	g := &granter{n: 1000}
	client := &probe{}
	p.connect([]any{g, server}, client)
	p.until("active", func() bool { return client.active == 1 && server.active == 1 })
	require.NoError(t, client.ctx.Write(make([]byte, 30_000)))
	client.ctx.Flushed(func(error) { client.ctx.Abort(errTest) })
	for range 300 { // it all waits when the server's loop turns again
		_, err := p.client.RunOnce(50 * time.Microsecond)
		require.NoError(t, err)
	}
	p.until("closed", func() bool { return server.inactive == 1 })
	assert.Equal(t, 30_000, server.got.Len())
}

type slowCloser struct{ calls int }

func (h *slowCloser) Close(ctx *pipeline.Context) error {
	h.calls++
	if h.calls > 1 {
		return nil
	}
	ctx.NewTimer(func(ctx *pipeline.Context) error { return ctx.Close() }).Reset(10 * time.Millisecond)
	return nil
}

func TestCloseHandlerMayTakeItsTimeWhenBothSidesAreClosed(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &halfProbe{}
	sc := &slowCloser{}
	server.onClosed = func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, 50_000)); err != nil {
			return err
		}
		return ctx.CloseWrite()
	}
	client := &halfProbe{}
	client.onActive = func(ctx *pipeline.Context) error {
		ctx.Pause()
		ctx.NewTimer(func(ctx *pipeline.Context) error { ctx.Resume(); return nil }).Reset(20 * time.Millisecond)
		return ctx.CloseWrite()
	}
	p.connect([]any{sc, server}, client)
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.LessOrEqual(t, sc.calls, 2)
	assert.NoError(t, server.cause)
	assert.Equal(t, 50_000, client.got.Len())
}

func TestPendingFallsWhileAFileIsSent(t *testing.T) {
	f := openFile(t, make([]byte, 8<<20))
	p := newPair(t, sim.Config{})
	server := &probe{}
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		return ctx.Write(&pipeline.FileRegion{File: f, Length: 8 << 20})
	}}
	p.connect(server, client)
	p.until("half has arrived", func() bool { return server.got.Len() > 4<<20 })
	assert.Less(t, client.ctx.Pending(), 5<<20)
	p.until("all has arrived", func() bool { return server.got.Len() == 8<<20 })
}

func TestFileRegionsDoNotCountAgainstMaxPendingBytes(t *testing.T) {
	f := openFile(t, make([]byte, 17<<20))
	p := newPair(t, sim.Config{})
	server := &probe{}
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		if err := ctx.Write(&pipeline.FileRegion{File: f, Length: 17 << 20}); err != nil {
			return err
		}
		return ctx.Write("\r\n")
	}}
	p.connect(server, client)
	p.until("all or closed", func() bool { return server.got.Len() == 17<<20+2 || client.inactive == 1 })
	assert.NoError(t, client.cause)
}

func TestPanicInDoneOfAFileRegionLeavesNothingPending(t *testing.T) {
	f := openFile(t, make([]byte, 1000))
	p := newPair(t, sim.Config{})
	server := &probe{}
	pending := -1
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		return ctx.Write(&pipeline.FileRegion{File: f, Length: 1000, Done: func(error) { panic("done") }})
	}, onInactive: func(ctx *pipeline.Context) error { pending = ctx.Pending(); return nil }}
	p.connect(server, client)
	p.until("closed", func() bool { return client.inactive == 1 })
	assert.ErrorIs(t, client.cause, channel.ErrPanic)
	assert.Zero(t, pending)
}

func TestDeadlineOfAPauseBeginsWithThePause(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.PausedCloseTimeout = 10 * time.Second
	g := &granter{}
	server := &probe{}
	server.onRead = func(ctx *pipeline.Context, _ []byte) error { ctx.Pause(); return nil }
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, 50_000)); err != nil {
			return err
		}
		return ctx.CloseWrite()
	}}
	p.connect([]any{g, server}, client)
	p.run(9 * time.Second)
	g.n = 100
	g.ctx.GrantChanged()
	p.until("read", func() bool { return server.got.Len() > 0 })
	p.run(3 * time.Second)
	assert.Zero(t, server.inactive, "paused for 3 s of 10: %v", server.cause)
}

func TestTryWriteAfterRefCloseIsRefused(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, _ := stalled(t, p)
	require.NoError(t, client.ctx.Write(make([]byte, 1<<20)))
	r := client.ctx.Ref()
	require.NoError(t, r.Close())
	p.run(time.Millisecond)
	require.False(t, client.ctx.Open())
	assert.ErrorIs(t, r.TryWrite([]byte("x")), pipeline.ErrClosed)
}
