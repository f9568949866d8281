package channel_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// stalled returns a client whose server never reads, with a handler that sees its channel.
func stalled(t *testing.T, p *pair) (client, server *probe) {
	server = &probe{onActive: func(ctx *pipeline.Context) error { ctx.Pause(); return nil }}
	client = &probe{}
	p.connect(server, client)
	p.until("both are active", func() bool { return client.active == 1 && server.active == 1 })
	return client, server
}

func TestWriteOverMaxPendingBytesAbortsTheChannel(t *testing.T) {
	const limit = 1 << 20
	for _, over := range []int{-1, 0, 1} {
		p := newPair(t, sim.Config{})
		p.clientConfig.MaxPendingBytes = limit
		client, _ := stalled(t, p)
		client.ctx.Hold(limit + over)
		require.Equal(t, limit+over, client.ctx.Pending())
		err := client.ctx.Write(make([]byte, 5000)) // the newest message itself may exceed the limit
		if over <= 0 {
			require.NoError(t, err)
			require.True(t, client.ctx.Open())
			client.ctx.Hold(-(limit + over))
			continue
		}
		require.ErrorIs(t, err, pipeline.ErrPendingLimit)
		require.ErrorContains(t, err, "1048577")
		require.ErrorIs(t, client.ctx.Write("x"), pipeline.ErrClosed)
		p.until("the client is closed", func() bool { return client.inactive == 1 })
		require.ErrorIs(t, client.cause, pipeline.ErrPendingLimit)
	}
}

func TestWritabilityFollowsTheWatermarksOncePerCrossing(t *testing.T) {
	p := newPair(t, sim.Config{SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10})
	client, server := stalled(t, p)
	ctx := client.ctx
	ctx.Hold(64 << 10)
	p.step()
	assert.True(t, ctx.Writable(), "high itself is not above high")
	ctx.Hold(1)
	assert.False(t, ctx.Writable(), "at once")
	ctx.Hold(-1)
	assert.False(t, ctx.Writable())
	p.step()
	ctx.Hold(-(32 << 10))
	assert.False(t, ctx.Writable(), "low itself is not below low")
	p.step()
	ctx.Hold(-1)
	assert.True(t, ctx.Writable())
	p.step()
	assert.Equal(t, []string{"active", "unwritable", "writable"}, client.events)
	ctx.Hold(-ctx.Pending())

	// The same with bytes, and the end that another task drains.
	require.NoError(t, ctx.Write(make([]byte, 200<<10)))
	p.step()
	assert.Equal(t, "unwritable", client.events[len(client.events)-1])
	server.ctx.Resume()
	p.until("writable again", func() bool { return client.events[len(client.events)-1] == "writable" })
	p.until("all arrived", func() bool { return server.got.Len() == 200<<10 })
	p.until("nothing pending", func() bool { return ctx.Pending() == 0 })
}

func TestHandlersSayInWritability(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, _ := stalled(t, p)
	client.ctx.SetWritable(false)
	client.ctx.SetWritable(false)
	assert.False(t, client.ctx.Writable())
	p.step()
	client.ctx.SetWritable(true)
	p.step()
	assert.Equal(t, []string{"active", "unwritable", "writable"}, client.events)
}

func TestPendingCountsMemoryAndSharedBlocksOnce(t *testing.T) {
	p := newPair(t, sim.Config{SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10})
	client, server := stalled(t, p)
	ctx := client.ctx
	block := ctx.Pool().Get(64 << 10)
	block.Append(randomBytes(1, 60_000))
	for i := range 20 {
		view := block.Slice(i*3000, 3000)
		require.NoError(t, ctx.Write(view))
		view.Release()
	}
	assert.Equal(t, 64<<10, ctx.Pending())
	block.Release()
	p.run(5 * time.Millisecond)
	assert.LessOrEqual(t, ctx.Pending(), 2*60_000, "what waits moves into blocks of its own, less than twice its size")
	server.ctx.Resume()
	p.until("all arrived", func() bool { return server.got.Len() == 60_000 })
	p.until("nothing pending", func() bool { return ctx.Pending() == 0 })
	assert.Equal(t, randomBytes(1, 60_000), server.got.Bytes())
}

func TestStalledPeerKeepsNoLentBlocks(t *testing.T) {
	// 20 peers send a request, get it echoed, and never read: were their blocks kept, the 8 blocks of the transport
	// would be gone and the last client would starve.
	p := newPair(t, sim.Config{Blocks: 8, SendBufferBytes: 2 << 10, ReceiveBufferBytes: 2 << 10})
	p.listen(func() []any { return []any{echo{}} })
	for range 20 {
		p.dial(&probe{onActive: func(ctx *pipeline.Context) error {
			ctx.Pause()
			return ctx.Write(make([]byte, 30_000))
		}})
	}
	p.run(50 * time.Millisecond)
	last := &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 50_000)) }}
	p.dial(last)
	p.until("the last client has its answer", func() bool { return last.got.Len() == 50_000 })
}

func TestQueuedBufIsNotTouchedByItsOtherHolders(t *testing.T) {
	p := newPair(t, sim.Config{SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10})
	client, server := stalled(t, p)
	want := randomBytes(5, 50_000)
	b := client.ctx.Pool().Get(64 << 10)
	b.Append(want)
	require.NoError(t, client.ctx.Write(b))
	b.Advance(10_000) // its holder goes on with it
	require.NoError(t, client.ctx.Write(b))
	p.run(5 * time.Millisecond) // a part is sent
	assert.Equal(t, want[10_000:], b.Bytes(), "nor does the queue move what belongs to its holder")
	b.Release()
	server.ctx.Resume()
	p.until("all arrived", func() bool { return server.got.Len() == 90_000 })
	assert.True(t, bytes.Equal(append(want[:50_000:50_000], want[10_000:]...), server.got.Bytes()))
}

func TestSmallRestOfASlowPeerIsShrunk(t *testing.T) {
	p := newPair(t, sim.Config{SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10})
	client, _ := stalled(t, p)
	require.NoError(t, client.ctx.Write(make([]byte, 20_000)))
	p.run(5 * time.Millisecond)
	assert.LessOrEqual(t, client.ctx.Pending(), 16<<10, "about 12,000 bytes of 20,000 are left, in a block of 16 KiB")
}

func TestFlushedIsCalledOnceInOrder(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	var order []int
	note := func(i int) func(error) {
		return func(err error) { assert.NoError(t, err); order = append(order, i) }
	}
	client.ctx.Flushed(note(0))
	require.NoError(t, client.ctx.Write("abc"))
	client.ctx.Flushed(note(1))
	require.NoError(t, client.ctx.Write(make([]byte, 500_000)))
	client.ctx.Flushed(note(2))
	client.ctx.Flushed(note(3))
	require.Empty(t, order, "never from inside Flushed")
	p.run(10 * time.Millisecond)
	require.Equal(t, []int{0, 1}, order)
	server.ctx.Resume()
	p.until("the rest", func() bool { return len(order) == 4 })
	require.Equal(t, []int{0, 1, 2, 3}, order)
}

func TestOutAppendsToTheOpenBlock(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	server.ctx.Resume()
	var want []byte
	for i := range 50 {
		out := client.ctx.Out()
		piece := randomBytes(uint64(i), 1+i*997%6000)
		out.Append(piece)
		want = append(want, piece...)
		if i%5 == 0 {
			require.NoError(t, client.ctx.WriteBytes([]byte("head"), []byte("body")))
			want = append(want, "headbody"...)
		}
		if i%7 == 0 {
			big := buffer.Wrap(randomBytes(99, 3000))
			require.NoError(t, client.ctx.Write(big))
			want = append(want, big.Bytes()...)
			big.Release()
		}
		if i%11 == 0 {
			p.step()
		}
	}
	p.until("all arrived", func() bool { return server.got.Len() >= len(want) })
	assert.Equal(t, want, server.got.Bytes())
	p.until("nothing pending", func() bool { return client.ctx.Pending() == 0 })
}

func TestConfigNamesWhatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		cfg  channel.Config
		want string
	}{
		{channel.Config{WriteHighBytes: 10, WriteLowBytes: 10}, "10, 10"},
		{channel.Config{WriteHighBytes: 1}, "0, 1"},
		{channel.Config{MaxPendingBytes: -1}, "MaxPendingBytes -1"},
		{channel.Config{MaxPendingBytes: 1000, WriteHighBytes: 1001}, "500, 1001, 1000"},
		{channel.Config{CloseTimeout: -1}, "CloseTimeout -1ns"},
	} {
		assert.ErrorContains(t, tt.cfg.Validate(), tt.want)
	}
	assert.NoError(t, (&channel.Config{}).Validate())
	assert.NoError(t, (&channel.Config{WriteHighBytes: 16 << 10}).Validate())
	assert.NoError(t, (&channel.Config{MaxPendingBytes: 32 << 10}).Validate())
	assert.NoError(t, (&channel.Config{WriteHighBytes: 2, WriteLowBytes: 1, MaxPendingBytes: 2}).Validate())
}

func TestRefKeepsTheCallersOrder(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	server.ctx.Resume()
	r := client.ctx.Ref()
	var ran []string
	require.NoError(t, r.TryWrite([]byte("1")))
	require.NoError(t, r.Execute(func(ctx *pipeline.Context) {
		ran = append(ran, "task")
		assert.NoError(t, ctx.Write("2"))
	}))
	b := []byte("3")
	require.NoError(t, r.Write(context.Background(), b))
	b[0] = 'x' // it was copied
	require.NoError(t, client.ctx.Write("0"), "what a Context does now comes before what was posted")
	require.NoError(t, r.Close())
	require.NoError(t, r.Execute(func(ctx *pipeline.Context) {
		ran = append(ran, "late")
		assert.False(t, ctx.Open())
	}))
	assert.Positive(t, r.Pending())
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.Equal(t, "0123", server.got.String())
	assert.Equal(t, []string{"task", "late"}, ran)
	assert.ErrorIs(t, r.TryWrite(nil), pipeline.ErrClosed)
	assert.ErrorIs(t, r.Execute(func(*pipeline.Context) {}), pipeline.ErrClosed)
	assert.ErrorIs(t, r.Write(context.Background(), []byte("x")), pipeline.ErrClosed)
	assert.ErrorIs(t, r.Close(), pipeline.ErrClosed)
	<-r.Closed()
	assert.Zero(t, r.Pending())
	assert.False(t, r.Writable(), "nor before the turn is over")
}

func TestRefRefusesWritesOverTheLimit(t *testing.T) {
	const limit = 100_000
	p := newPair(t, sim.Config{})
	p.clientConfig.MaxPendingBytes = limit
	client, _ := stalled(t, p)
	r := client.ctx.Ref()
	require.NoError(t, r.TryWrite(make([]byte, limit-1)))
	require.NoError(t, r.TryWrite(make([]byte, 1)))
	err := r.TryWrite(make([]byte, 1))
	require.ErrorIs(t, err, pipeline.ErrFull)
	require.ErrorContains(t, err, "limit 100000")
	assert.Equal(t, limit, r.Pending())
	assert.Equal(t, limit, client.ctx.Pending(), "posted bytes are pending")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, r.Write(ctx, make([]byte, 1)), context.Canceled)
	assert.ErrorIs(t, r.Write(context.Background(), make([]byte, limit+1)), pipeline.ErrFull, "it would never fit")
	p.run(10 * time.Millisecond)
	assert.True(t, client.ctx.Open())
}

func TestBlockingRefWriteOnTheLoopAnswersInsteadOfDeadlocking(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.clientConfig.MaxPendingBytes = 100_000
	client, _ := stalled(t, p)
	r := client.ctx.Ref()
	var err error
	require.NoError(t, r.Execute(func(*pipeline.Context) {
		for err == nil {
			err = r.Write(context.Background(), make([]byte, 60_000))
		}
	}))
	p.run(time.Millisecond)
	assert.ErrorIs(t, err, pipeline.ErrWouldDeadlock)
}

func TestRefExecuteIsBounded(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.clientConfig.MaxPostedTasks = 3
	client, _ := stalled(t, p)
	r := client.ctx.Ref()
	ran := 0
	for range 3 {
		require.NoError(t, r.Execute(func(*pipeline.Context) { ran++ }))
	}
	assert.ErrorIs(t, r.Execute(func(*pipeline.Context) { ran++ }), pipeline.ErrFull)
	assert.NoError(t, r.Close(), "close is never refused")
	p.until("the client is closed", func() bool { return client.inactive == 1 })
	assert.Equal(t, 3, ran)
}

func TestPostedTasksRunExactlyOnceAlsoAroundAbort(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, _ := stalled(t, p)
	r := client.ctx.Ref()
	ran := 0
	require.NoError(t, r.Execute(func(ctx *pipeline.Context) { ran++; ctx.Abort(errTest) }))
	require.NoError(t, r.Execute(func(*pipeline.Context) { ran++; panic("in a task") }))
	require.NoError(t, r.Execute(func(*pipeline.Context) { ran++ }))
	p.until("the client is closed", func() bool { return client.inactive == 1 })
	assert.Equal(t, 3, ran)
	assert.ErrorIs(t, client.cause, errTest)
}

// A write moves Outgoing by its bytes, whatever becomes of them.
func TestOutgoingCountsWritesAndNothingElse(t *testing.T) {
	p := newPair(t, sim.Config{SendBufferBytes: 1 << 10, ReceiveBufferBytes: 1 << 10})
	server := &probe{}
	client := &probe{onActive: func(ctx *pipeline.Context) error { ctx.Pause(); return nil }}
	p.connect(server, client)
	p.until("active", func() bool { return server.active == 1 })
	ctx := server.ctx
	require.NoError(t, ctx.Write(make([]byte, 8<<10))) // the peer takes some of it
	base := ctx.Outgoing()
	moved := func() int { return int(ctx.Outgoing() - base) }
	require.NoError(t, ctx.WriteBytes(make([]byte, 10))) // into the open block
	assert.Equal(t, 10, moved())
	require.NoError(t, ctx.Write(make([]byte, 2<<10))) // which ends it
	assert.Equal(t, 10+2<<10, moved())
	ctx.Hold(100)
	assert.Equal(t, 110+2<<10, moved())
	require.NoError(t, ctx.Ref().TryWrite(make([]byte, 5)))
	assert.Equal(t, 115+2<<10, moved(), "posted")
	p.run(10 * time.Millisecond)
	assert.Equal(t, 115+2<<10, moved(), "written, and as much as fits sent")
	ctx.Hold(-100)
	assert.Equal(t, 15+2<<10, moved())
}
