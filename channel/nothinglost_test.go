package channel_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

func TestEndOfInputIsToldAfterWhatAPauseHeldBack(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &halfProbe{}
	server.onRead = func(ctx *pipeline.Context, _ []byte) error { ctx.Pause(); return nil }
	client := &probe{}
	p.connect(server, client)
	p.until("the server is active", func() bool { return server.active == 1 })
	want := randomBytes(1, 40_000)
	require.NoError(t, client.ctx.Write(want))
	require.NoError(t, client.ctx.CloseWrite())
	for range 200 { // all of it, the FIN too, waits when the server's loop turns again
		_, err := p.client.RunOnce(50 * time.Microsecond)
		require.NoError(t, err)
	}
	p.run(time.Second)
	require.Equal(t, []string{"active", "read"}, server.events, "paused: neither the rest nor the end")
	for server.got.Len() < len(want) {
		require.Zero(t, server.readClosed)
		had := server.got.Len()
		server.ctx.Resume()
		p.until("the next piece was read", func() bool { return server.got.Len() > had })
	}
	require.True(t, bytes.Equal(want, server.got.Bytes()))
	server.ctx.Resume()
	p.until("the end was told", func() bool { return server.readClosed == 1 })
}

func TestUnwritableForAPartOfATurnIsTold(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, _ := stalled(t, p)
	ctx := client.ctx
	ctx.Hold(64<<10 + 1)
	require.False(t, ctx.Writable(), "a handler that looks now waits to be told")
	ctx.Hold(-(64<<10 + 1))
	require.True(t, ctx.Writable())
	p.step()
	assert.Equal(t, []string{"active", "writable"}, client.events)
	p.run(time.Millisecond)
	assert.Equal(t, []string{"active", "writable"}, client.events, "once")
}

func TestWhatWasPostedBeforeAnAbortRunsAndTheRestIsRefused(t *testing.T) {
	for _, posted := range []int{1, 63, 64, 65, 300} { // 64 are done at a time
		p := newPair(t, sim.Config{})
		client, _ := stalled(t, p)
		r := client.ctx.Ref()
		ran := 0
		for range posted {
			require.NoError(t, r.Execute(func(*pipeline.Context) {
				ran++
				assert.Zero(t, client.inactive)
			}))
		}
		client.ctx.Abort(errTest)
		assert.ErrorIs(t, r.Execute(func(*pipeline.Context) {}), pipeline.ErrClosed)
		assert.ErrorIs(t, client.ctx.Ref().Execute(func(*pipeline.Context) {}), pipeline.ErrClosed, "a new one, too")
		p.until("the client is closed", func() bool { return client.inactive == 1 })
		assert.Equal(t, posted, ran)
		assert.ErrorIs(t, r.Execute(func(*pipeline.Context) {}), pipeline.ErrClosed)
	}
}

// What is posted to one channel, within its bound, delays the others by a share of it.
func TestPostedTasksAreDoneAShareAtATime(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, server := stalled(t, p)
	r, other := client.ctx.Ref(), server.ctx.Ref()
	ran := 0
	for range channel.DefaultMaxPostedTasks {
		require.NoError(t, r.Execute(func(*pipeline.Context) { ran++ }))
	}
	require.ErrorIs(t, r.Execute(func(*pipeline.Context) {}), pipeline.ErrFull)
	between := -1
	require.NoError(t, other.Execute(func(*pipeline.Context) { between = ran }))
	p.step()
	assert.Equal(t, 64, ran)
	assert.LessOrEqual(t, between, 64)
	for i := range 64 {
		require.NoError(t, r.Execute(func(*pipeline.Context) { ran++ }), "%d: what is done makes room", i)
	}
	require.ErrorIs(t, r.Execute(func(*pipeline.Context) {}), pipeline.ErrFull, "and no more than that")
	p.until("all have run", func() bool { return ran == channel.DefaultMaxPostedTasks+64 })
}

func TestRefWriteThatWaitsIsWokenByRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // tells when the writer waits
		p := newPair(t, sim.Config{SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10})
		p.clientConfig.MaxPendingBytes = 100_000
		client, server := stalled(t, p)
		r := client.ctx.Ref()
		message := make([]byte, 60_000)
		require.NoError(t, r.TryWrite(message))
		p.run(time.Millisecond)
		require.ErrorIs(t, r.TryWrite(message), pipeline.ErrFull)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- r.Write(ctx, message) }()
		synctest.Wait()
		require.Empty(t, done, "it waits")
		p.run(time.Millisecond)
		synctest.Wait()
		require.Empty(t, done, "turns alone make no room")
		server.ctx.Resume()
		p.until("the first message has arrived", func() bool { return server.got.Len() >= len(message) })
		synctest.Wait()
		require.Len(t, done, 1, "there is room")
		require.NoError(t, <-done)
		p.until("the second message has arrived", func() bool { return server.got.Len() == 2*len(message) })
	})
}

func TestFlushedFailsBeforeInactive(t *testing.T) {
	p := newPair(t, sim.Config{SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10})
	client, _ := stalled(t, p)
	require.NoError(t, client.ctx.Write(make([]byte, 20_000)))
	client.ctx.Flushed(func(err error) {
		assert.ErrorIs(t, err, errTest)
		client.events = append(client.events, "flushed")
	})
	p.run(time.Millisecond)
	require.Equal(t, []string{"active"}, client.events, "the peer does not read")
	client.ctx.Abort(errTest)
	p.until("the client is closed", func() bool { return client.inactive == 1 })
	p.run(time.Millisecond)
	assert.Equal(t, []string{"active", "flushed", "inactive"}, client.events)
}

// breakable is a transport that a test breaks.
type breakable struct {
	transport.Transport
	broken bool
}

func (b *breakable) Wait(dst []transport.Completion, d time.Duration) ([]transport.Completion, error) {
	if b.broken {
		return dst, errTest
	}
	return b.Transport.Wait(dst, d)
}

// TestWhatWasPostedRunsWhenALoopBreaks also behind a task that panics then, when no other turn will come.
func TestWhatWasPostedRunsWhenALoopBreaks(t *testing.T) {
	const tasks = 1000
	p := newPair(t, sim.Config{})
	require.NoError(t, p.client.Close())
	var tr *breakable
	l, err := loop.New(loop.Config{
		Open: func(bool) (transport.Transport, error) {
			tr = &breakable{Transport: p.world.Open()}
			return tr, nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, l.Open())
	p.client = l
	client := &probe{}
	p.connect(&probe{}, client)
	p.until("active", func() bool { return client.active == 1 })
	r := client.ctx.Ref()
	ran := 0
	for i := range tasks {
		require.NoError(t, r.Execute(func(*pipeline.Context) {
			ran++
			if i == tasks/2 {
				panic("in a task")
			}
		}))
	}
	tr.broken = true
	_, err = l.RunOnce(0)
	require.ErrorIs(t, err, errTest)
	require.Less(t, ran, tasks/2)
	require.NoError(t, l.Close())
	require.Equal(t, tasks, ran)
	require.Equal(t, 1, client.inactive)
	select {
	case <-r.Closed():
	default:
		t.Fatal("the Ref is not closed")
	}
}
