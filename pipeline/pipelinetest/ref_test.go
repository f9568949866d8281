package pipelinetest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestRefPostsInTheCallersOrder(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, pipelinetest.Named("r", &recorder{}))
	ctx := ch.Context("r")
	ref := ctx.Ref()
	b := []byte("2")
	require.NoError(t, ref.Execute(func(ctx *pipeline.Context) { assert.NoError(t, ctx.Write("1")) }))
	require.NoError(t, ref.TryWrite(b))
	b[0] = 'x' // it was copied
	require.NoError(t, ref.Execute(func(ctx *pipeline.Context) { assert.NoError(t, ctx.Write("3")) }))
	require.NoError(t, ref.Close())
	require.NoError(t, ref.TryWrite([]byte("too late")))
	require.NoError(t, ctx.Write("0"), "what a Context does now comes before")
	assert.Equal(t, 9, ref.Pending(), "posted bytes count; what the channel has itself as of its last turn")
	assert.Equal(t, 10, ch.Pending())
	ch.RunTasks()
	assert.Equal(t, "0123", ch.OutboundString())
	assert.True(t, ch.Closed())
	select {
	case <-ref.Closed():
	default:
		t.Error("Closed is not closed")
	}
	assert.ErrorIs(t, ref.TryWrite(b), pipeline.ErrClosed)
	assert.ErrorIs(t, ref.Write(context.Background(), b), pipeline.ErrClosed)
	assert.ErrorIs(t, ref.Execute(func(*pipeline.Context) {}), pipeline.ErrClosed)
	assert.ErrorIs(t, ref.Close(), pipeline.ErrClosed)
	assert.Equal(t, ctx.ID(), ref.ID())
}

func TestRefRunsWhatWasAcceptedBeforeTheEnd(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, pipelinetest.Named("r", &recorder{}))
	ran := 0
	require.NoError(t, ch.Context("r").Ref().Execute(func(ctx *pipeline.Context) {
		ran++
		assert.False(t, ctx.Open())
	}))
	ch.Abort(nil)
	ch.RunTasks()
	assert.Equal(t, 1, ran)
}

func TestRefIsBounded(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true, MaxPostedTasks: 2, MaxPendingBytes: 10}, pipelinetest.Named("r", &recorder{}))
	ref := ch.Context("r").Ref()
	nothing := func(*pipeline.Context) {}
	require.NoError(t, ref.Execute(nothing))
	require.NoError(t, ref.Execute(nothing))
	assert.ErrorIs(t, ref.Execute(nothing), pipeline.ErrFull)
	require.NoError(t, ref.TryWrite(make([]byte, 9)))
	assert.ErrorIs(t, ref.TryWrite(make([]byte, 2)), pipeline.ErrFull)
	require.NoError(t, ref.TryWrite(make([]byte, 1)))
	assert.ErrorIs(t, ref.TryWrite(make([]byte, 1)), pipeline.ErrFull)
	assert.ErrorIs(t, ref.Write(context.Background(), make([]byte, 1)), pipeline.ErrWouldDeadlock)
	assert.ErrorIs(t, ref.Write(context.Background(), make([]byte, 11)), pipeline.ErrFull, "it will never fit")
	ch.RunTasks()
	assert.Len(t, ch.Outbound(), 10)
	assert.NoError(t, ref.Execute(nothing))
	assert.NoError(t, ref.TryWrite(make([]byte, 10)))
}

func TestRefWriteWaitsForRoom(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{MaxPendingBytes: 4, WriteHighBytes: 3, WriteLowBytes: 1, Stalled: true}, pipelinetest.Named("r", &recorder{}))
	ref := ch.Context("r").Ref()
	require.NoError(t, ref.TryWrite([]byte("full")))
	ch.RunTasks()
	assert.False(t, ref.Writable())
	canceled, cancel := context.WithCancel(context.Background())
	results := make(chan error, 3)
	var started sync.WaitGroup
	for _, c := range []context.Context{context.Background(), canceled} {
		started.Go(func() {
			go func() { results <- ref.Write(c, []byte("abcd")) }()
		})
	}
	started.Wait()
	cancel()
	assert.ErrorIs(t, <-results, context.Canceled)
	ch.Drain(4)
	ch.RunUntil(func() bool { return ch.Queued() > 0 })
	assert.NoError(t, <-results)
	go func() { results <- ref.Write(context.Background(), []byte("late")) }()
	ch.Unstall()
	ch.RunUntil(func() bool { return len(results) == 1 })
	assert.NoError(t, <-results)
	assert.Equal(t, "fullabcdlate", ch.OutboundString())
	assert.True(t, ref.Writable())
}

func TestRefWriteEndsWhenTheChannelCloses(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{MaxPendingBytes: 4, Stalled: true}, pipelinetest.Named("r", &recorder{}))
	ref := ch.Context("r").Ref()
	require.NoError(t, ref.TryWrite([]byte("full")))
	ch.RunTasks() // or the close does, and for a moment there is room
	results := make(chan error, 1)
	go func() { results <- ref.Write(context.Background(), []byte("x")) }()
	ch.Abort(errTest)
	assert.ErrorIs(t, <-results, pipeline.ErrClosed)
}
