package channel_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

func TestEchoReturnsEveryByteInOrder(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		for _, faults := range []sim.Faults{{}, sim.Mild()} {
			for _, n := range []int{1, 63, 1024, 1025, 5000, 200_000} {
				t.Run(fmt.Sprintf("seed=%d/faults=%v/bytes=%d", seed, faults != sim.Faults{}, n), func(t *testing.T) {
					p := newSeededPair(t, seed, sim.Config{Faults: faults})
					want := randomBytes(seed, n)
					h := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(want) }}
					p.connect(echo{}, h)
					p.until("all is back", func() bool { return h.got.Len() >= n })
					assert.True(t, bytes.Equal(want, h.got.Bytes()))
					assert.Equal(t, 1, h.active)
				})
			}
		}
	}
}

func TestCloseDeliversWhatWasQueued(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		p := newSeededPair(t, seed, sim.Config{Faults: sim.Mild()})
		server := &probe{}
		want := randomBytes(seed, 1<<20)
		client := &probe{onActive: func(ctx *pipeline.Context) error {
			if err := ctx.Write(want); err != nil {
				return err
			}
			return ctx.Close()
		}}
		p.connect(server, client)
		p.until("both are closed", func() bool { return len(p.closed) == 2 })
		require.True(t, bytes.Equal(want, server.got.Bytes()), "seed %d", seed)
		require.NoError(t, client.cause)
		require.NoError(t, server.cause)
		require.Equal(t, 1, client.inactive)
		require.Equal(t, "inactive", server.events[len(server.events)-1])
	}
}

func TestCloseWithUnreadInputDeliversTheOutput(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.listen(func() []any {
		return []any{&probe{onRead: func(ctx *pipeline.Context, _ []byte) error {
			if err := ctx.Write(bytes.Repeat([]byte{'x'}, 200<<10)); err != nil {
				return err
			}
			return ctx.Close() // most of the request has not been read
		}}}
	})
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 300<<10)) }}
	p.dial(client)
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.Equal(t, 200<<10, client.got.Len())
	assert.NoError(t, client.cause)
}

func TestCloseEndsAtItsDeadlineWhenThePeerNeverReads(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.listen(func() []any {
		return []any{&probe{onActive: func(ctx *pipeline.Context) error { ctx.Pause(); return nil }}}
	})
	p.clientConfig.CloseTimeout = 3 * time.Second
	var flushed []error
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		ctx.Flushed(func(err error) { flushed = append(flushed, err) })
		return ctx.Close()
	}}
	p.dial(client)
	started := p.world.Now()
	p.until("the client is closed", func() bool { return client.inactive == 1 })
	assert.ErrorIs(t, client.cause, channel.ErrCloseTimeout)
	assert.GreaterOrEqual(t, p.world.Now()-started, 3*time.Second)
	require.Len(t, flushed, 1)
	assert.ErrorIs(t, flushed[0], pipeline.ErrClosed)
}

func TestCloseDiscardsInputUpToItsLimit(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.serverConfig.CloseDiscardBytes = 100 << 10
	server := &probe{onRead: func(ctx *pipeline.Context, _ []byte) error { return ctx.Close() }}
	// The client ignores the FIN and goes on writing for ever.
	client := &halfProbe{}
	client.onActive = func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 100<<10)) }
	client.onWritable = func(ctx *pipeline.Context) error {
		if ctx.Writable() {
			return ctx.Write(make([]byte, 100<<10))
		}
		return nil
	}
	p.connect(server, client)
	p.until("the server is closed", func() bool { return server.inactive == 1 })
	assert.Less(t, p.world.Now(), 5*time.Second, "by the limit, not by the deadline")
	assert.NoError(t, server.cause)
}

func TestAbortResetsThePeer(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	client := &probe{}
	p.connect(server, client)
	p.until("the server is active", func() bool { return server.active == 1 })
	client.ctx.Abort(errTest)
	assert.ErrorIs(t, client.ctx.Write("x"), pipeline.ErrClosed)
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.ErrorIs(t, client.cause, errTest)
	assert.ErrorIs(t, server.cause, syscall.ECONNRESET)
}

func TestDataBeforeResetIsDeliveredBeforeInactive(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		p := newSeededPair(t, seed, sim.Config{Faults: sim.Mild()})
		server := &probe{}
		client := &probe{onActive: func(ctx *pipeline.Context) error {
			if err := ctx.Write(make([]byte, 10_000)); err != nil {
				return err
			}
			ctx.Flushed(func(error) {
				abort := func(ctx *pipeline.Context) error { ctx.Abort(errTest); return nil }
				ctx.NewTimer(abort).Reset(10 * time.Millisecond)
			})
			return nil
		}}
		p.connect(server, client)
		p.until("both are closed", func() bool { return len(p.closed) == 2 })
		require.Equal(t, 10_000, server.got.Len())
		require.Equal(t, "inactive", server.events[len(server.events)-1])
		require.ErrorIs(t, server.cause, syscall.ECONNRESET)
	}
}

func TestHalfCloseKeepsTheOtherDirectionOpen(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &halfProbe{}
	server.onClosed = func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, 300_000)); err != nil {
			return err
		}
		return ctx.CloseWrite()
	}
	client := &halfProbe{}
	client.onActive = func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, 100_000)); err != nil {
			return err
		}
		return ctx.CloseWrite()
	}
	p.connect(server, client)
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.Equal(t, 100_000, server.got.Len())
	assert.Equal(t, 300_000, client.got.Len())
	for _, h := range []*halfProbe{server, client} {
		assert.Equal(t, 1, h.readClosed)
		assert.Equal(t, 1, h.inactive)
		assert.NoError(t, h.cause)
	}
	assert.ErrorIs(t, client.ctx.Write("x"), pipeline.ErrClosed)
}

func TestHalfClosedChannelWhoseConnectionBreaksCloses(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &halfProbe{}
	client := &halfProbe{}
	client.onActive = func(ctx *pipeline.Context) error { return ctx.CloseWrite() }
	p.connect(server, client)
	p.until("the server has seen the FIN", func() bool { return server.readClosed == 1 })
	p.run(10 * time.Millisecond)
	require.Zero(t, server.inactive)
	client.ctx.Abort(errTest)
	p.until("the server is closed", func() bool { return server.inactive == 1 })
	assert.Error(t, server.cause)
}

func TestFileRegionsAndBytesKeepTheirOrder(t *testing.T) {
	content := randomBytes(7, 500_000)
	f := openFile(t, content)
	for seed := uint64(1); seed <= 10; seed++ {
		p := newSeededPair(t, seed, sim.Config{Faults: sim.Mild()})
		server := &probe{}
		var done []error
		client := &probe{onActive: func(ctx *pipeline.Context) error {
			region := &pipeline.FileRegion{
				File: f, Offset: 1000, Length: 400_000, Done: func(err error) { done = append(done, err) },
			}
			short := &pipeline.FileRegion{File: f, Length: 10}
			for _, msg := range []any{"head", region, []byte("middle"), short, "tail"} {
				if err := ctx.Write(msg); err != nil {
					return err
				}
			}
			assert.GreaterOrEqual(t, ctx.Pending(), 400_000)
			return ctx.Close()
		}}
		p.connect(server, client)
		p.until("both are closed", func() bool { return len(p.closed) == 2 })
		want := append([]byte("head"), content[1000:401_000]...)
		want = append(append(append(want, "middle"...), content[:10]...), "tail"...)
		require.True(t, bytes.Equal(want, server.got.Bytes()))
		require.Equal(t, []error{nil}, done)
	}
}

func TestManyPiecesAreSentInOrder(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	want := randomBytes(3, 5000*1100)
	client := &probe{onActive: func(ctx *pipeline.Context) error {
		for i := range 5000 {
			piece := buffer.Wrap(want[i*1100 : (i+1)*1100])
			if err := ctx.Write(piece); err != nil {
				return err
			}
			piece.Release()
		}
		return ctx.Close()
	}}
	p.clientConfig.WriteHighBytes = 1 << 20
	p.connect(server, client)
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.True(t, bytes.Equal(want, server.got.Bytes()))
}

func TestWrongMessageTypesAreRefused(t *testing.T) {
	p := newPair(t, sim.Config{})
	client := &probe{}
	c := p.connect(echo{}, client)
	p.until("active", func() bool { return client.active == 1 })
	err := client.ctx.Write(42)
	assert.ErrorIs(t, err, pipeline.ErrMessageType)
	assert.ErrorContains(t, err, "int")
	assert.ErrorContains(t, client.ctx.Write(&pipeline.FileRegion{Length: -1}), "length -1")
	assert.True(t, c.Open())
}

func TestLoopThatEndsClosesItsChannels(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	client := &probe{}
	p.connect(server, client)
	p.until("active", func() bool { return server.active == 1 && client.active == 1 })
	var flushed []error
	require.NoError(t, client.ctx.Write(make([]byte, 1<<20)))
	client.ctx.Flushed(func(err error) { flushed = append(flushed, err) })
	require.NoError(t, p.client.Close())
	assert.Equal(t, 1, client.inactive)
	assert.Error(t, client.cause)
	assert.Len(t, flushed, 1)
	p.listener = nil
}

func TestTransportErrorsOfDialReachTheCaller(t *testing.T) {
	p := newPair(t, sim.Config{})
	var got error
	nowhere := &transport.DialConfig{Network: "tcp", Address: "10.0.0.9:1"}
	channel.Dial(p.client, nowhere, nil, func(_ *channel.Channel, err error) { got = err })
	require.NoError(t, got, "never from inside Dial")
	p.until("the dial is done", func() bool { return got != nil })
	assert.ErrorIs(t, got, syscall.ECONNREFUSED)
	assert.ErrorContains(t, got, "10.0.0.9:1")
}

func TestDialCanBeCanceled(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		p := newSeededPair(t, seed, sim.Config{Faults: sim.Mild()})
		p.listen(func() []any { return []any{echo{}} })
		var got []error
		var ch *channel.Channel
		dc := &transport.DialConfig{Network: "tcp", Address: address}
		cancel := channel.Dial(p.client, dc, nil, func(c *channel.Channel, err error) {
			ch = c
			got = append(got, err)
		})
		for range seed % 7 {
			p.step()
		}
		cancel()
		cancel()
		p.until("the dial is done", func() bool { return len(got) > 0 })
		p.run(20 * time.Millisecond)
		require.Len(t, got, 1)
		if ch == nil {
			require.ErrorIs(t, got[0], transport.ErrCanceled)
		} else {
			ch.Close(nil)
			p.run(20 * time.Millisecond)
		}
		require.LessOrEqual(t, p.client.Transport().Stats().Open, 0)
	}
}

// lastWords writes something before the channel closes.
type lastWords struct{}

func (lastWords) Close(ctx *pipeline.Context) error {
	if err := ctx.Write("bye"); err != nil {
		return err
	}
	return ctx.Close()
}

func TestOrderlyClosesThatNobodyAskedForGoThroughTheCloseHandlers(t *testing.T) {
	for _, how := range []string{"peer", "shutdown"} {
		t.Run(how, func(t *testing.T) {
			p := newPair(t, sim.Config{})
			server := &probe{}
			client := &probe{}
			c := p.connect(server, client, lastWords{})
			p.until("both are active", func() bool { return client.active == 1 && server.active == 1 })
			if how == "peer" {
				require.NoError(t, server.ctx.CloseWrite())
			} else {
				c.Shutdown()
			}
			p.until("both are closed", func() bool { return len(p.closed) == 2 })
			assert.Equal(t, "bye", server.got.String())
		})
	}
}
