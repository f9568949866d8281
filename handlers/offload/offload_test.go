package offload_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestResultsComeInTheOrderOfTheMessages(t *testing.T) {
	g, r := newGates(), &results{}
	pool := newPool(t, offload.PoolConfig{Workers: 4})
	ch := pipelinetest.New(t, &source{}, handler(t, pool, g, r, 0))
	ch.WriteInbound([]int{1, 2, 3, 4})
	eventually(t, "all run", func() bool { return len(g.started()) == 4 })
	g.let(4, 3, 2)
	eventually(t, "three have told the loop", func() bool { return pool.Stats().Done == 3 })
	ch.RunTasks()
	assert.Empty(t, r.got, "the first has not ended")
	g.let(1)
	ch.RunUntil(func() bool { return len(r.got) == 4 })
	assert.Equal(t, texts(1, 2, 3, 4), r.got)
}

func TestUnorderedASlowWorkHoldsNoFastOneUp(t *testing.T) {
	g, r := newGates(), &results{}
	pool := newPool(t, offload.PoolConfig{Workers: 4})
	h, err := offload.New(pool, offload.Config[*number, *number, int]{
		Detach: (*number).Detach, Work: g.work, Done: r.done, MaxInFlight: 4, Unordered: true,
	})
	require.NoError(t, err)
	ch := pipelinetest.New(t, &source{}, h)
	ch.WriteInbound(numbers(1, 6))
	eventually(t, "four run", func() bool { return len(g.started()) == 4 })
	for i, n := range []int{4, 2, 3, 6, 5} { // the fifth and the sixth are in when two have ended
		g.let(n)
		ch.RunUntil(func() bool { return len(r.got) == i+1 })
	}
	assert.Equal(t, texts(4, 2, 3, 6, 5), r.got)
	ch.PeerClose()
	ch.RunTasks()
	assert.True(t, ch.Open(), "the end of the stream waits for the slow one")
	g.let(1)
	ch.RunUntil(ch.Closed)
	assert.Equal(t, texts(4, 2, 3, 6, 5, 1), r.got)
}

func TestMessagesOfOtherTypesPass(t *testing.T) {
	ch := pipelinetest.New(t, handler(t, newPool(t, offload.PoolConfig{}), newGates(), &results{}, 0))
	ch.WriteInbound("bytes")
	assert.Equal(t, "bytes", ch.InboundString())
}

func TestFramesAreCopied(t *testing.T) {
	pool := newPool(t, offload.PoolConfig{})
	begin := make(chan struct{})
	h, err := offload.Bytes(pool, func(_ context.Context, p []byte) (string, error) {
		<-begin
		return string(p), nil
	}, func(ctx *pipeline.Context, r string, err error) error { return ctx.Write(r) })
	require.NoError(t, err)
	ch := pipelinetest.New(t, h)
	ch.WriteInbound("hello, ", "world") // the harness overwrites its block afterwards
	close(begin)
	var out string
	ch.RunUntil(func() bool { out += ch.OutboundString(); return len(out) == 12 })
	assert.Equal(t, "hello, world", out)
}

func TestReadingStopsAtMaxInFlightAndGoesOnAtHalf(t *testing.T) {
	g, r := newGates(), &results{}
	ch := pipelinetest.New(t, &source{}, handler(t, newPool(t, offload.PoolConfig{Workers: 8}), g, r, 4))
	ch.WriteInbound([]int{1, 2, 3})
	assert.False(t, ch.Paused(), "one below")
	ch.WriteInbound([]int{4})
	assert.True(t, ch.Paused(), "at the limit")
	g.let(1)
	ch.RunUntil(func() bool { return len(r.got) == 1 })
	assert.True(t, ch.Paused(), "three are more than half")
	g.let(2)
	ch.RunUntil(func() bool { return len(r.got) == 2 })
	assert.False(t, ch.Paused(), "half")
	g.let(3, 4)
	ch.RunUntil(func() bool { return len(r.got) == 4 })
}

func TestWhatADecoderEmitsAfterThePauseIsKeptInOrder(t *testing.T) {
	g, r := newGates(), &results{}
	ch := pipelinetest.New(t, &source{}, handler(t, newPool(t, offload.PoolConfig{Workers: 8}), g, r, 2))
	ch.WriteInbound(numbers(1, 20))
	eventually(t, "two run", func() bool { return len(g.started()) == 2 })
	g.let(numbers(1, 20)...)
	ch.RunUntil(func() bool { return len(r.got) == 20 })
	assert.Equal(t, texts(numbers(1, 20)...), r.got)
	assert.False(t, ch.Paused())
}

func TestAFullPoolPausesReadingAndResumesInTurn(t *testing.T) {
	pool := newPool(t, offload.PoolConfig{Workers: 1, MaxQueued: 2})
	g := newGates()
	loop := pipelinetest.NewLoop(t)
	r := [3]results{}
	var ch [3]*pipelinetest.Channel
	for i := range ch {
		ch[i] = loop.New(&source{}, handler(t, pool, g, &r[i], 0))
	}
	ch[0].WriteInbound([]int{1})
	eventually(t, "one runs", func() bool { return pool.Stats().Running == 1 })
	ch[0].WriteInbound([]int{2, 3})
	assert.False(t, ch[0].Paused(), "the queue is full, and nothing has been refused")
	ch[1].WriteInbound([]int{11, 12})
	ch[2].WriteInbound([]int{21})
	ch[0].WriteInbound([]int{4})
	for i := range ch {
		assert.True(t, ch[i].Paused())
	}
	assert.Equal(t, offload.PoolStats{Queued: 2, QueuedBytes: 16, Running: 1, Waiting: 3}, pool.Stats())
	for _, n := range []int{1, 2, 3, 11, 21, 4, 12} {
		eventually(t, "the next runs", func() bool {
			loop.RunTasks()
			s := g.started()
			return s[len(s)-1] == n
		})
		g.let(n)
	}
	loop.RunUntil(func() bool { return len(r[0].got)+len(r[1].got)+len(r[2].got) == 7 })
	assert.Equal(t, []int{1, 2, 3, 11, 21, 4, 12}, g.started(), "each channel that waits has its turn")
	for i := range ch {
		assert.False(t, ch[i].Paused())
	}
	eventually(t, "nothing is left", func() bool { return pool.Stats() == offload.PoolStats{Done: 7} })
}

func TestAChannelThatWaitsForRoomIsNotOvertaken(t *testing.T) {
	pool := newPool(t, offload.PoolConfig{Workers: 1, MaxQueued: 4})
	g := newGates()
	loop := pipelinetest.NewLoop(t)
	var r [2]results
	first := loop.New(&source{}, handler(t, pool, g, &r[0], 0))
	second := loop.New(&source{}, handler(t, pool, g, &r[1], 0))
	first.WriteInbound([]int{1})
	eventually(t, "one runs", func() bool { return pool.Stats().Running == 1 })
	first.WriteInbound([]int{2, 3, 4, 5, 6}) // the last one waits
	g.let(1)
	eventually(t, "there is room, and not yet half", func() bool { return pool.Stats().Queued == 3 })
	second.WriteInbound([]int{11})
	assert.Equal(t, 2, pool.Stats().Waiting)
	assert.True(t, second.Paused())
	g.let(2)
	eventually(t, "both have room", func() bool { return pool.Stats().Waiting == 0 })
	g.let(3, 4, 5, 6, 11)
	loop.RunUntil(func() bool { return len(r[0].got)+len(r[1].got) == 7 })
	assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 11}, g.started())
}

func TestThePoolCountsBytes(t *testing.T) {
	pool := newPool(t, offload.PoolConfig{Workers: 1, MaxQueuedBytes: 10})
	begin := make(chan struct{})
	var got int
	h, err := offload.Bytes(pool, func(_ context.Context, p []byte) (int, error) {
		<-begin
		return len(p), nil
	}, func(_ *pipeline.Context, n int, _ error) error { got += n; return nil })
	require.NoError(t, err)
	ch := pipelinetest.New(t, h)
	ch.WriteInbound("x")
	eventually(t, "one runs", func() bool { return pool.Stats().Running == 1 })
	ch.WriteInbound("123456789")
	assert.False(t, ch.Paused())
	ch.WriteInbound("0")
	assert.False(t, ch.Paused(), "ten bytes fit")
	ch.WriteInbound("1")
	assert.True(t, ch.Paused())
	assert.Equal(t, 10, pool.Stats().QueuedBytes)
	ch.WriteInbound("more than ten bytes have their turn when nothing else waits")
	close(begin)
	ch.RunUntil(func() bool { return got == 1+9+1+1+59 })
	assert.False(t, ch.Paused())
}

func TestAPanicIsAnErrorWithItsStack(t *testing.T) {
	pool := newPool(t, offload.PoolConfig{Workers: 1})
	cause := errors.New("cause")
	var errs []error
	h, err := offload.Func(pool, func(_ context.Context, m *number) (int, error) {
		switch m.n {
		case 1:
			panic(cause)
		case 2:
			runtime.Goexit()
		}
		return m.n, nil
	}, func(_ *pipeline.Context, _ int, err error) error { errs = append(errs, err); return nil })
	require.NoError(t, err)
	ch := pipelinetest.New(t, &source{}, h)
	ch.WriteInbound([]int{1, 2, 3})
	ch.RunUntil(func() bool { return len(errs) == 3 })
	var panicked *offload.PanicError
	require.ErrorAs(t, errs[0], &panicked)
	assert.ErrorIs(t, errs[0], cause)
	assert.Contains(t, string(panicked.Stack), "TestAPanicIsAnErrorWithItsStack")
	assert.ErrorIs(t, errs[1], offload.ErrGoexit)
	assert.NoError(t, errs[2], "the pool goes on")
	eventually(t, "counted", func() bool { return pool.Stats() == offload.PoolStats{Done: 3, Panics: 2} })
}

func TestWhatCameBeforeFINIsDoneBeforeReadClosed(t *testing.T) {
	g := newGates()
	pool := newPool(t, offload.PoolConfig{Workers: 1})
	h, err := offload.Func(pool, g.work, func(ctx *pipeline.Context, r int, err error) error {
		return errors.Join(err, ctx.Write("x"))
	})
	require.NoError(t, err)
	ch := pipelinetest.New(t, &source{}, h)
	ch.WriteInbound([]int{1, 2, 3})
	ch.PeerClose()
	assert.True(t, ch.Open())
	g.let(1)
	eventually(t, "the first has told the loop", func() bool { return pool.Stats().Done == 1 })
	ch.RunTasks()
	assert.True(t, ch.Open(), "two are under way")
	g.let(2, 3)
	ch.RunUntil(ch.Closed)
	assert.Equal(t, "xxx", ch.OutboundString())
	assert.NoError(t, ch.Cause())
}

func TestShutdownWaitsForWhatWasRead(t *testing.T) {
	g := newGates()
	pool := newPool(t, offload.PoolConfig{})
	h, err := offload.Func(pool, g.work, func(ctx *pipeline.Context, r int, err error) error {
		return errors.Join(err, ctx.Write("x"))
	})
	require.NoError(t, err)
	ch := pipelinetest.New(t, &source{}, h)
	ch.WriteInbound([]int{1, 2})
	ch.Shutdown()
	assert.True(t, ch.Open())
	assert.True(t, ch.Paused())
	ch.WriteInbound([]int{3})
	g.let(1, 2)
	ch.RunUntil(ch.Closed)
	assert.Equal(t, "xx", ch.OutboundString())
}

func TestCloseGivesEachMessageOneAnswerInOrder(t *testing.T) {
	pool := newPool(t, offload.PoolConfig{Workers: 2, MaxQueued: 1})
	g, r := newGates(), &results{}
	ch := pipelinetest.New(t, &source{}, handler(t, pool, g, r, 8))
	ch.WriteInbound([]int{1, 2})
	eventually(t, "two run", func() bool { return len(g.started()) == 2 })
	ch.WriteInbound([]int{3, 4, 5})
	assert.Equal(t, 1, pool.Stats().Waiting)
	g.let(2)
	eventually(t, "the second ends", func() bool { return pool.Stats().Done == 1 })
	eventually(t, "the third runs", func() bool { return len(g.started()) >= 3 })
	ch.Abort(nil)
	closed := pipeline.ErrClosed.Error()
	assert.Equal(t, []string{closed, "20", closed, closed, closed}, r.got)
	eventually(t, "the works saw it", func() bool { return g.cause(1) != nil && g.cause(3) != nil })
	assert.ErrorIs(t, g.cause(1), pipeline.ErrClosed)
	eventually(t, "the pool is empty", func() bool {
		s := pool.Stats()
		// The fourth, and the fifth if it got from the channel into the pool before the close.
		abandoned := s.Abandoned == 1 || s.Abandoned == 2
		return s.Queued == 0 && s.Running == 0 && s.Waiting == 0 && s.QueuedBytes == 0 && abandoned
	})
}

func TestARemovedHandlerAnswersWithErrRemoved(t *testing.T) {
	g, r := newGates(), &results{}
	pool := newPool(t, offload.PoolConfig{})
	ch := pipelinetest.New(t, &source{}, pipelinetest.Named("off", handler(t, pool, g, r, 1)))
	ch.WriteInbound([]int{1})
	eventually(t, "it runs", func() bool { return len(g.started()) == 1 })
	ch.Do(func() {
		_, err := ch.Pipeline().Remove("off")
		assert.NoError(t, err)
	})
	assert.Equal(t, []string{offload.ErrRemoved.Error()}, r.got)
	assert.False(t, ch.Paused())
	eventually(t, "the work saw it", func() bool { return errors.Is(g.cause(1), offload.ErrRemoved) })
}

func TestAFullQueueOfTasksHoldsNoResultUp(t *testing.T) {
	g, r := newGates(), &results{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{MaxPostedTasks: 1, Manual: true}, &source{},
		pipelinetest.Named("off", handler(t, newPool(t, offload.PoolConfig{}), g, r, 0)))
	ch.WriteInbound([]int{1})
	ch.RunTasks()
	eventually(t, "it runs", func() bool { return len(g.started()) == 1 })
	ref := ch.Context("off").Ref()
	require.NoError(t, ref.Execute(func(*pipeline.Context) {}))
	require.ErrorIs(t, ref.Execute(func(*pipeline.Context) {}), pipeline.ErrFull)
	g.let(1)
	ch.RunUntil(func() bool { return len(r.got) == 1 })
	assert.Equal(t, texts(1), r.got)
}

func TestAClosedPoolAnswersWithErrPoolClosed(t *testing.T) {
	pool, err := offload.NewPool(offload.PoolConfig{Workers: 1, MaxQueued: 1})
	require.NoError(t, err)
	g, r := newGates(), &results{}
	ch := pipelinetest.New(t, &source{}, handler(t, pool, g, r, 8))
	ch.WriteInbound([]int{1})
	eventually(t, "it runs", func() bool { return len(g.started()) == 1 })
	ch.WriteInbound([]int{2, 3})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	assert.ErrorIs(t, pool.Close(gone), context.Canceled)
	ch.RunUntil(func() bool { return len(r.got) == 3 })
	closed := offload.ErrPoolClosed.Error()
	assert.Equal(t, []string{context.Canceled.Error(), closed, closed}, r.got)
	assert.ErrorIs(t, g.cause(1), offload.ErrPoolClosed)
	ch.WriteInbound([]int{4})
	assert.False(t, ch.Paused())
	ch.RunUntil(func() bool { return len(r.got) == 4 })
	assert.Equal(t, closed, r.got[3])
	assert.NoError(t, pool.Close(context.Background()), "a second time")
	assert.Equal(t, uint64(3), pool.Stats().Rejected)
}

func TestCloseOfThePoolWaitsForWhatItHas(t *testing.T) {
	pool, err := offload.NewPool(offload.PoolConfig{Workers: 1, MaxQueued: 1})
	require.NoError(t, err)
	g, r := newGates(), &results{}
	ch := pipelinetest.New(t, &source{}, handler(t, pool, g, r, 8))
	ch.WriteInbound([]int{1, 2})
	closed := make(chan error)
	go func() { closed <- pool.Close(context.Background()) }()
	g.let(1, 2)
	assert.NoError(t, <-closed)
	ch.RunUntil(func() bool { return len(r.got) == 2 })
	assert.Equal(t, texts(1, 2), r.got)
}

func TestAClosedPoolLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	pool, err := offload.NewPool(offload.PoolConfig{Workers: 3})
	require.NoError(t, err)
	r := &results{}
	g := newGates()
	ch := pipelinetest.New(t, &source{}, handler(t, pool, g, r, 0))
	ch.WriteInbound([]int{1, 2, 3})
	g.let(1, 2, 3)
	ch.RunUntil(func() bool { return len(r.got) == 3 })
	ch.Finish()
	require.NoError(t, pool.Close(context.Background()))
	eventually(t, "all are gone", func() bool { return runtime.NumGoroutine() <= before })
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	for _, cfg := range []offload.PoolConfig{{Workers: -1}, {MaxQueued: -1}, {MaxQueuedBytes: -1}} {
		_, err := offload.NewPool(cfg)
		assert.ErrorIs(t, err, offload.ErrConfig)
	}
	pool := newPool(t, offload.PoolConfig{})
	_, err := offload.Bytes[int](pool, nil, nil)
	assert.ErrorIs(t, err, offload.ErrConfig)
	g, r := newGates(), &results{}
	_, err = offload.New(pool, offload.Config[*number, *number, int]{
		Detach: (*number).Detach, Work: g.work, Done: r.done, MaxInFlight: -1,
	})
	assert.ErrorIs(t, err, offload.ErrConfig)
	h := handler(t, pool, g, r, 0)
	ch := pipelinetest.New(t, h)
	ch.Do(func() { assert.ErrorIs(t, ch.Pipeline().AddLast("again", h), offload.ErrConfig) })
	assert.ErrorIs(t, ch.TakeError(), offload.ErrConfig)
}

// elsewhere keeps what it is to run until it is told to run it.
type elsewhere struct{ fns []func() }

func (e *elsewhere) run() {
	for len(e.fns) > 0 {
		fn := e.fns[0]
		e.fns = e.fns[1:]
		fn()
	}
}

// A pool whose goroutines are the application's starts none, and its works run where that says.
func TestAPoolRunsItsWorkersWhereItIsTold(t *testing.T) {
	var e elsewhere
	p := newPool(t, offload.PoolConfig{Workers: 2, Go: func(fn func()) { e.fns = append(e.fns, fn) }})
	g, r := newGates(), &results{}
	ch := pipelinetest.New(t, &source{}, handler(t, p, g, r, 4))
	g.let(1, 2, 3)
	ch.WriteInbound([]int{1, 2, 3})
	assert.Empty(t, g.started(), "nothing runs before it is let")
	assert.Len(t, e.fns, 2, "a worker each, up to the bound")
	e.run()
	ch.RunTasks()
	assert.Equal(t, texts(1, 2, 3), r.got)
	assert.Equal(t, []int{1, 2, 3}, g.started())
}
