package channel_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// recorder is a transport that remembers the sends.
type recorder struct {
	transport.Transport
	pieces []int // of each send
	bytes  []int

	timeout time.Duration // of the latest Wait
}

func (r *recorder) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	r.timeout = timeout
	return r.Transport.Wait(dst, timeout)
}

func (r *recorder) Submit(op transport.Op) {
	if op.Kind == transport.Send {
		n := 0
		for _, b := range op.Bufs {
			n += b.Len()
		}
		r.pieces = append(r.pieces, len(op.Bufs))
		r.bytes = append(r.bytes, n)
	}
	r.Transport.Submit(op)
}

func TestManySmallWritesAreOneSendAtTheEndOfTheTurn(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	server.ctx.Resume()
	require.NoError(t, client.ctx.Ref().Execute(func(ctx *pipeline.Context) {
		for range 64 {
			assert.NoError(t, ctx.Write([]byte("1234")))
		}
		assert.Empty(t, p.sends.pieces, "nothing is sent before the flush")
	}))
	p.until("all arrived", func() bool { return server.got.Len() == 256 })
	assert.Equal(t, []int{1}, p.sends.pieces)
	assert.Equal(t, []int{256}, p.sends.bytes)
}

func TestFlushSendsAtOnce(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	server.ctx.Resume()
	require.NoError(t, client.ctx.Ref().Execute(func(ctx *pipeline.Context) {
		assert.NoError(t, ctx.Write("now"))
		assert.NoError(t, ctx.Flush())
		assert.Equal(t, []int{3}, p.sends.bytes)
		assert.NoError(t, ctx.Write("later"))
		assert.NoError(t, ctx.Flush(), "one send is in flight at a time")
		assert.Equal(t, []int{3}, p.sends.bytes)
	}))
	p.until("all arrived", func() bool { return server.got.Len() == 8 })
	assert.Equal(t, []int{3, 5}, p.sends.bytes)
}

func TestPiecesAndBytesOfASendAreBounded(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	server.ctx.Resume()
	piece := buffer.Wrap(make([]byte, 1025))
	for range 1025 {
		require.NoError(t, client.ctx.Write(piece))
	}
	p.step()
	require.NotEmpty(t, p.sends.pieces)
	assert.Equal(t, 1024, p.sends.pieces[0])
	require.NoError(t, client.ctx.Write(make([]byte, 8<<20)))
	p.until("all arrived", func() bool { return server.got.Len() == 1025*1025+8<<20 })
	for i := range p.sends.pieces {
		assert.LessOrEqual(t, p.sends.pieces[i], 1024)
		assert.Less(t, p.sends.bytes[i], 1<<20+64<<10)
	}
	piece.Release()
}

// footer writes at each flush, as a codec does that closes a record.
type footer struct{ flushes int }

func (f *footer) Flush(ctx *pipeline.Context) error {
	f.flushes++
	if err := ctx.Write("."); err != nil {
		return err
	}
	return ctx.Flush()
}

func TestHandlerThatWritesAtEachFlushCausesNoOther(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	f := &footer{}
	client := &probe{}
	p.connect(server, f, client)
	p.until("active", func() bool { return server.active == 1 && client.active == 1 })
	require.NoError(t, client.ctx.Ref().Execute(func(ctx *pipeline.Context) { assert.NoError(t, ctx.Write("a")) }))
	p.run(1e6)
	assert.Equal(t, "a.", server.got.String())
	assert.Equal(t, 1, f.flushes)
	require.NoError(t, client.ctx.Ref().Execute(func(ctx *pipeline.Context) { assert.NoError(t, ctx.Write("b")) }))
	p.run(1e6)
	assert.Equal(t, "a.b.", server.got.String())
}

// holdBack swallows flushes until it lets one through.
type holdBack struct{ open bool }

func (h *holdBack) Flush(ctx *pipeline.Context) error {
	if h.open {
		return ctx.Flush()
	}
	return nil
}

// heldBack connects a client one of whose handlers keeps "kept" from being flushed.
func heldBack(t *testing.T, p *pair) (h *holdBack, client, server *probe) {
	h, client, server = &holdBack{}, &probe{}, &probe{}
	p.connect(server, h, client)
	p.until("active", func() bool { return server.active == 1 && client.active == 1 })
	require.NoError(t, client.ctx.Write("kept"))
	p.run(1e6)
	return h, client, server
}

func TestFlushHandlerMayHoldTheFlushBack(t *testing.T) {
	p := newPair(t, sim.Config{})
	h, client, server := heldBack(t, p)
	assert.Zero(t, server.got.Len())
	h.open = true
	require.NoError(t, client.ctx.Close())
	p.until("it arrived", func() bool { return server.got.String() == "kept" })
}

func TestAFlushInALaterTurnTellsThatLessIsPending(t *testing.T) {
	for _, now := range []bool{false, true} {
		p := newPair(t, sim.Config{SendNow: now})
		h, client, server := heldBack(t, p)
		var pending []int
		client.ctx.WatchPending(0, math.MaxInt, func(ctx *pipeline.Context, n int) error {
			pending = append(pending, n)
			ctx.WatchPending(0, 0, nil)
			return nil
		})
		p.run(1e6)
		assert.Empty(t, pending, "it is still held back")
		h.open = true
		require.NoError(t, client.ctx.Flush())
		p.run(1e6)
		assert.Equal(t, []int{0}, pending, "SendNow %v", now)
		assert.Equal(t, "kept", server.got.String())
	}
}

func TestTaskThatPostsItselfDoesNotKeepTheChannelOpen(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	server.ctx.Resume()
	r := client.ctx.Ref()
	ran := 0
	var again func(ctx *pipeline.Context)
	again = func(*pipeline.Context) {
		ran++
		_ = r.Execute(again)
	}
	require.NoError(t, r.Execute(again))
	p.run(1e5)
	require.NoError(t, r.Close())
	p.until("the client is closed", func() bool { return client.inactive == 1 })
	assert.Greater(t, ran, 1)
}

func TestHandlerThatKeepsWritesIsFlushedAtTheEndOfTheTurn(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	client := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write("kept") }}
	p.connect(server, &batcher{}, client)
	p.until("it arrived", func() bool { return server.got.String() == "kept" })
}

// TestASendIsHurriedWhenSomebodyWaitsForIt: its outcome need not end a Wait that blocks.
func TestASendIsHurriedWhenSomebodyWaitsForIt(t *testing.T) {
	const block = 4 << 10 // what a small write charges
	for name, tc := range map[string]struct {
		low   int
		do    func(*pipeline.Context) error
		waits bool
	}{
		"nobody":             {4 * block, func(*pipeline.Context) error { return nil }, false},
		"below the low mark": {block + 1, func(*pipeline.Context) error { return nil }, false},
		"at the low mark":    {block, func(*pipeline.Context) error { return nil }, true},
		"above it":           {block - 1, func(*pipeline.Context) error { return nil }, true},
		"Flushed":            {4 * block, func(ctx *pipeline.Context) error { ctx.Flushed(func(error) {}); return nil }, true},
		"what is behind it": {4 * block, func(ctx *pipeline.Context) error {
			ctx.Flush()
			return ctx.Write("more")
		}, true},
		"CloseWrite": {4 * block, (*pipeline.Context).CloseWrite, true},
		"Close":      {4 * block, (*pipeline.Context).Close, true},
		"a watch below": {4 * block, func(ctx *pipeline.Context) error {
			ctx.WatchPending(9, math.MaxInt, func(*pipeline.Context, int) error { return nil })
			return nil
		}, true},
		"a watch above": {4 * block, func(ctx *pipeline.Context) error {
			ctx.WatchPending(-1, block, func(*pipeline.Context, int) error { return nil })
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, sim.Config{})
			p.clientConfig.WriteLowBytes, p.clientConfig.WriteHighBytes = tc.low, 8*block
			client := &probe{}
			p.connect(&probe{}, client)
			p.until("it is active", func() bool { return client.active == 1 })
			p.run(time.Second)
			require.NoError(t, client.ctx.Ref().Execute(func(ctx *pipeline.Context) {
				assert.NoError(t, ctx.Write("a message"))
				assert.NoError(t, tc.do(ctx))
			}))
			for range 2 { // the second sends what the first submits
				_, err := p.client.RunOnce(time.Hour)
				require.NoError(t, err)
			}
			require.Equal(t, tc.waits, p.sends.timeout == 0)
		})
	}
}
