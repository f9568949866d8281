package channel_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// pauser is a second reason to pause.
type pauser struct{ ctx *pipeline.Context }

func (h *pauser) HandlerAdded(ctx *pipeline.Context) error  { h.ctx = ctx; return nil }
func (h *pauser) ChannelEvent(*pipeline.Context, any) error { return nil }

func TestPauseHoldsInputBackAndResumeDeliversItInOrder(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		p := newSeededPair(t, seed, sim.Config{Faults: sim.Mild()})
		other := &pauser{}
		server := &probe{}
		paused := false
		server.onRead = func(ctx *pipeline.Context, _ []byte) error {
			assert.False(t, paused, "read while paused")
			paused = true
			ctx.Pause()
			assert.False(t, ctx.Reading())
			return nil
		}
		want := randomBytes(seed, 300_000)
		client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(want) }}
		p.connect([]any{other, server}, client)
		for round := 0; server.got.Len() < len(want); round++ {
			require.Less(t, round, 10_000)
			p.until("something was read", func() bool { return paused })
			had := server.got.Len()
			p.run(2 * time.Millisecond)
			require.Equal(t, had, server.got.Len(), "nothing is delivered while paused")
			if round%3 == 0 { // the second reason keeps it paused
				other.ctx.Pause()
				server.ctx.Resume()
				p.run(2 * time.Millisecond)
				require.Equal(t, had, server.got.Len())
				paused = false
				other.ctx.Resume()
			} else {
				paused = false
				server.ctx.Resume()
			}
		}
		require.True(t, bytes.Equal(want, server.got.Bytes()))
	}
}

func TestPauseBoundsWhatIsHeldBack(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{onActive: func(ctx *pipeline.Context) error { ctx.Pause(); return nil }}
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 4<<20)) }}
	p.connect(server, client)
	p.run(100 * time.Millisecond)
	assert.Zero(t, server.got.Len())
	assert.LessOrEqual(t, p.server.Pool().OutstandingBytes(), 0, "nothing was read at all")
	assert.Greater(t, client.ctx.Pending(), 3<<20, "the kernel's buffers are full, the rest waits at its source")
	server.ctx.Resume()
	p.until("all arrived", func() bool { return server.got.Len() == 4<<20 })
}

func TestPausedChannelKeepsWhatThePeerSentBeforeItsFin(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		p := newSeededPair(t, seed, sim.Config{Faults: sim.Mild()})
		server := &probe{onActive: func(ctx *pipeline.Context) error { ctx.Pause(); return nil }}
		want := randomBytes(seed, 30_000)
		client := &probe{onActive: func(ctx *pipeline.Context) error {
			if err := ctx.Write(want); err != nil {
				return err
			}
			return ctx.Close()
		}}
		p.connect(server, client)
		p.run(time.Second)
		require.Equal(t, []string{"active"}, server.events)
		server.ctx.Resume()
		p.until("both are closed", func() bool { return len(p.closed) == 2 })
		require.True(t, bytes.Equal(want, server.got.Bytes()))
		require.NoError(t, server.cause)
	}
}

func TestPausedChannelWhosePeerIsGoneClosesInTime(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.PausedCloseTimeout = 2 * time.Second
	server := &probe{onActive: func(ctx *pipeline.Context) error { ctx.Pause(); return nil }}
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Close() }}
	p.connect(server, client)
	p.run(time.Second)
	require.Zero(t, server.inactive)
	p.until("the server is closed", func() bool { return server.inactive == 1 })
	assert.ErrorIs(t, server.cause, channel.ErrPausedClose)
}

func TestCloseDiscardsWhatAPauseHeldBack(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	server.onRead = func(ctx *pipeline.Context, _ []byte) error { ctx.Pause(); return nil }
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 100_000)) }}
	p.connect(server, client)
	p.run(10 * time.Millisecond)
	had := server.got.Len()
	require.NoError(t, server.ctx.Close())
	server.ctx.Resume()
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.Equal(t, had, server.got.Len())
}

// granter grants what the test says.
type granter struct {
	ctx   *pipeline.Context
	n     int
	retry time.Duration
	asked int
}

func (g *granter) HandlerAdded(ctx *pipeline.Context) error { g.ctx = ctx; return nil }
func (g *granter) ReadGrant(*pipeline.Context) (int, time.Duration) {
	g.asked++
	return g.n, g.retry
}

func TestGrantOfNothingStopsReadingUntilItChanges(t *testing.T) {
	p := newPair(t, sim.Config{})
	g := &granter{}
	server := &probe{}
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 1000)) }}
	p.connect([]any{g, server}, client)
	p.run(50 * time.Millisecond)
	require.Zero(t, server.got.Len())
	require.Equal(t, 1, g.asked, "a grant of nothing without a time is not asked for again")
	g.n = 100
	g.ctx.GrantChanged()
	p.until("all arrived", func() bool { return server.got.Len() == 1000 })
	assert.GreaterOrEqual(t, g.asked, 1+1000/(100+16<<10))
}

func TestGrantOfNothingIsAskedForAgainAfterItsTime(t *testing.T) {
	p := newPair(t, sim.Config{})
	g := &granter{retry: 10 * time.Millisecond}
	server := &probe{}
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 1000)) }}
	p.connect([]any{g, server}, client)
	p.run(101 * time.Millisecond)
	require.Zero(t, server.got.Len())
	assert.InDelta(t, 10, g.asked, 2)
	g.n, g.retry = 5000, 0
	p.until("all arrived", func() bool { return server.got.Len() == 1000 })
}

func TestGrantsBoundWhatIsReadAndOvershootIsPaid(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		f := sim.Mild()
		f.Overshoot = 1
		p := newSeededPair(t, seed, sim.Config{Faults: f, BlockBytes: 256})
		g := &granter{n: 1000, retry: time.Millisecond}
		server := &probe{}
		want := randomBytes(seed, 200_000)
		client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(want) }}
		p.connect([]any{g, server}, client)
		for server.got.Len() < len(want) {
			p.step()
			require.LessOrEqual(t, server.got.Len(), g.asked*1000+256,
				"the grants bound what was read, one block aside")
		}
		require.True(t, bytes.Equal(want, server.got.Bytes()))
	}
}

// Who has finished sending and still reads has not gone, however slowly it reads, and what is queued for it is not
// lost.
func TestAPausedChannelWaitsForAPeerThatStillReads(t *testing.T) {
	for name, world := range map[string]sim.Config{
		"send":     {SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10},
		"send now": {SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10, SendNow: true},
	} {
		t.Run(name, func(t *testing.T) { pausedAndReading(t, world) })
	}
}

func pausedAndReading(t *testing.T, world sim.Config) {
	want := randomBytes(3, 200_000)
	p := newPair(t, world)
	p.serverConfig.PausedCloseTimeout = 2 * time.Second
	server := &halfProbe{}
	server.onActive = func(ctx *pipeline.Context) error {
		ctx.Pause()
		return ctx.Write(want)
	}
	client := &halfProbe{}
	client.onActive = func(ctx *pipeline.Context) error { return ctx.CloseWrite() }
	client.onRead = func(ctx *pipeline.Context, _ []byte) error {
		ctx.Pause()
		ctx.NewTimer(func(ctx *pipeline.Context) error { ctx.Resume(); return nil }).Reset(200 * time.Millisecond)
		return nil
	}
	p.connect(server, client)
	p.until("everything has come", func() bool { return client.got.Len() == len(want) || server.inactive > 0 })
	require.NoError(t, server.cause)
	require.True(t, bytes.Equal(want, client.got.Bytes()))
	require.Greater(t, p.world.Now(), 3*p.serverConfig.PausedCloseTimeout)
	p.until("and then it has gone", func() bool { return server.inactive == 1 })
	assert.ErrorIs(t, server.cause, channel.ErrPausedClose)
}
