package pipelinetest_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestLifeOfAChannel(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.New(t, r)
	ch.WriteInbound("a", []byte("b"), 7)
	ch.WriteInbound("c")
	ch.PeerClose()
	assert.Equal(t, []string{
		"active", "read a", "read b", "read 7", "complete", "read c", "complete", "read closed", "inactive <nil>", "removed",
	}, r.take())
	assert.True(t, ch.Closed())
	assert.Equal(t, []any{[]byte("a"), []byte("b"), 7, []byte("c")}, ch.Inbound())
	assert.Nil(t, ch.ReadInbound())
}

func TestInactiveChannelWaitsForActivate(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Inactive: true}, r)
	ch.WriteInbound("a")
	assert.Empty(t, r.take())
	ch.Activate()
	assert.Equal(t, []string{"active", "read a", "complete"}, r.take())
	ch.Activate()
	assert.Empty(t, r.take())
}

func TestChannelThatWasNeverActiveIsNeverInactive(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Inactive: true}, r)
	ch.Close()
	assert.Equal(t, []string{"removed"}, r.take())
	assert.True(t, ch.Closed())
}

func TestInitThatFailsAborts(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Init: func(*pipeline.Pipeline) error { return errTest }})
	assert.Equal(t, errTest, ch.Cause())
	assert.False(t, ch.Open())
}

func TestBorrowedBytesAreOverwrittenAndRetainedOnesAreNot(t *testing.T) {
	for _, size := range []int{1, 100, 8 << 10, 16 << 10, 40 << 10, 2 << 20} {
		var borrowed []byte
		var kept *buffer.Buf
		ch := pipelinetest.New(t, onRead(func(_ *pipeline.Context, msg any) error {
			b := msg.(*buffer.Buf)
			borrowed = b.Bytes()
			if kept == nil {
				kept = b.Retain()
			}
			return nil
		}))
		data := make([]byte, size)
		data[0], data[size-1] = 'x', 'x'
		ch.WriteInbound(data)
		assert.Equal(t, data, kept.Bytes(), "retained: %d bytes", size)
		ch.WriteInbound(data)
		if size <= 1<<20 {
			assert.NotEqual(t, byte('x'), borrowed[0], "borrowed: %d bytes", size)
		}
		kept.Release()
		ch.Finish()
	}
}

func TestInputWaitsWhilePausedAndComesAfterTheResumeHandlers(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.New(t, pipelinetest.Named("r", r), pipelinetest.Named("gate", onActive(func(ctx *pipeline.Context) error {
		return nil
	})))
	ch.Do(ch.Context("gate").Pause)
	assert.True(t, ch.Paused())
	r.take()
	ch.WriteInbound("a")
	ch.WriteInbound("b", "c")
	assert.Empty(t, r.take())
	assert.Equal(t, 3, ch.Stashed())
	ch.Do(ch.Context("gate").Resume)
	assert.Equal(t, []string{"resume", "read a", "read b", "read c", "complete"}, r.take())
	assert.Equal(t, "abc", ch.InboundString())
}

func TestPauseInsideABatchHoldsTheRestBack(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.New(t, pipelinetest.Named("pauser", onRead(func(ctx *pipeline.Context, msg any) error {
		ctx.Pause()
		ctx.FireRead(msg)
		return nil
	})), r)
	r.take()
	ch.WriteInbound("a", "b")
	ch.PeerClose()
	assert.Equal(t, []string{"read a", "complete"}, r.take())
	ch.Do(ch.Context("pauser").Resume)
	assert.Equal(t, []string{"resume", "read b", "complete"}, r.take())
	ch.Do(ch.Context("pauser").Resume)
	assert.Equal(t, []string{"resume", "read closed", "inactive <nil>", "removed"}, r.take(), "the end comes last")
}

func TestManualLoopTurnsOnlyInRunTasks(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, pipelinetest.Named("r", r))
	ch.RunTasks()
	r.take()
	ctx := ch.Context("r")
	ctx.Pause()
	ch.WriteInbound("a")
	ctx.Resume()
	assert.Empty(t, r.take(), "the resume is a task")
	require.NoError(t, ctx.Write("out"))
	assert.Empty(t, ch.Outbound(), "the flush is the turn's")
	assert.Positive(t, ch.RunTasks())
	assert.Equal(t, []string{"resume", "read a", "complete"}, r.take())
	assert.Equal(t, "out", ch.OutboundString())
	assert.Zero(t, ch.RunTasks())
}

func TestInputBetweenResumeAndItsTaskWaitsForIt(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, pipelinetest.Named("r", r))
	ch.RunTasks()
	r.take()
	ch.Context("r").Pause()
	ch.Context("r").Resume()
	ch.WriteInbound("a")
	assert.Empty(t, r.take())
	ch.RunTasks()
	assert.Equal(t, []string{"resume", "read a", "complete"}, r.take())
}

func TestResumeTaskFindsReadingPausedAgain(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, pipelinetest.Named("r", r))
	ch.RunTasks()
	r.take()
	ctx := ch.Context("r")
	ctx.Pause()
	ctx.Resume()
	ctx.Pause()
	ch.WriteInbound("a")
	ch.RunTasks()
	assert.Empty(t, r.take())
	ctx.Resume()
	ch.RunTasks()
	assert.Equal(t, []string{"resume", "read a", "complete"}, r.take())
}

func TestReadGrantLimitsWhatIsRead(t *testing.T) {
	n, retry, asked := 3, time.Duration(0), 0
	ch := pipelinetest.New(t, pipelinetest.Named("g", grant(func() (int, time.Duration) { asked++; return n, retry })))
	assert.Equal(t, 1, asked, "when the first receive is armed")
	ch.WriteInbound("ab")
	assert.Equal(t, 1, asked, "not for each message")
	n, retry = 0, time.Second
	ch.WriteInbound("cd", "ef") // overshoots by one and is asked again
	assert.Equal(t, 2, asked)
	assert.Equal(t, "abcd", ch.InboundString())
	assert.Equal(t, 1, ch.Stashed())
	ch.Advance(time.Second - 1)
	assert.Empty(t, ch.InboundString())
	ch.Advance(1)
	assert.Equal(t, 3, asked, "after the time it gave")
	n, retry = 1, 0
	ch.Do(ch.Context("g").GrantChanged)
	assert.Equal(t, "ef", ch.InboundString())
	assert.Equal(t, 7, asked, "twice each time: the first byte pays the debt")
}

func TestStalledPeerAndWatermarks(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{WriteHighBytes: 10, WriteLowBytes: 5, Stalled: true}, pipelinetest.Named("r", r))
	r.take()
	ctx := ch.Context("r")
	ch.Do(func() { require.NoError(t, ctx.Write("0123456789")) })
	assert.Equal(t, 10, ch.Pending())
	assert.True(t, ch.Writable(), "at the mark, not above it")
	ch.Do(func() { require.NoError(t, ctx.WriteBytes([]byte("a"))) })
	assert.Equal(t, []string{"writable false"}, r.take())
	assert.Equal(t, 6, ch.Drain(6))
	assert.Equal(t, "012345", ch.OutboundString())
	assert.False(t, ch.Writable(), "at the lower mark, not below it")
	assert.Equal(t, 1, ch.Drain(1))
	assert.Equal(t, []string{"writable true"}, r.take())
	assert.Equal(t, 4, ch.Queued())
	ch.Unstall()
	assert.Zero(t, ch.Pending())
	assert.Equal(t, "6789a", ch.OutboundString())
	ch.Do(func() { require.NoError(t, ctx.Write("on")) })
	assert.Equal(t, "on", ch.OutboundString())
}

func TestUnwritableForAPartOfATurnIsTold(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{WriteHighBytes: 10, WriteLowBytes: 5}, pipelinetest.Named("r", r))
	r.take()
	ch.Do(func() {
		require.NoError(t, ch.Context("r").Write(make([]byte, 11)))
		assert.False(t, ch.Writable(), "who looks now waits to be told")
	})
	assert.Equal(t, []string{"writable true"}, r.take())
	ch.Do(func() { require.NoError(t, ch.Context("r").Write(make([]byte, 10))) })
	assert.Empty(t, r.take())
}

func TestSetPendingPlaysAStalledPeer(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{WriteHighBytes: 10, WriteLowBytes: 5}, pipelinetest.Named("r", r))
	r.take()
	ch.Do(func() { ch.Context("r").Hold(3) })
	ch.SetPending(11)
	assert.Equal(t, 11, ch.Pending())
	assert.Equal(t, 3, ch.Held())
	ch.SetPending(4)
	assert.Equal(t, 4, ch.Pending())
	assert.Equal(t, []string{"writable false", "writable true"}, r.take())
	ch.Do(func() { ch.Context("r").Hold(-3) })
	assert.Equal(t, 1, ch.Pending())
}

func TestFlushedCallbacksRunExactlyOnce(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Stalled: true}, pipelinetest.Named("r", &recorder{}))
	ctx := ch.Context("r")
	var got []error
	flushed := func(err error) { got = append(got, err) }
	ch.Do(func() {
		ctx.Flushed(flushed)
		assert.Empty(t, got, "never from inside the call")
	})
	assert.Equal(t, []error{nil}, got, "nothing was queued")
	ch.Do(func() {
		require.NoError(t, ctx.Write("abc"))
		ctx.Flushed(flushed)
		require.NoError(t, ctx.Write("def"))
		ctx.Flushed(flushed)
	})
	ch.Drain(3)
	assert.Equal(t, []error{nil, nil}, got)
	ch.Abort(errTest)
	require.Len(t, got, 3)
	assert.ErrorIs(t, got[2], pipeline.ErrClosed)
	assert.ErrorIs(t, got[2], errTest)
	ch.Do(func() { ctx.Flushed(flushed) })
	assert.Len(t, got, 4, "on a closed channel, too")
}

func TestFileRegionIsSentInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var done []error
	note := func(err error) { done = append(done, err) }
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Stalled: true}, pipelinetest.Named("r", &recorder{}))
	ctx := ch.Context("r")
	ch.Do(func() {
		require.NoError(t, ctx.Write("<"))
		require.NoError(t, ctx.Write(&pipeline.FileRegion{File: f, Offset: 2, Length: 5, Done: note}))
		require.NoError(t, ctx.Write(">"))
		require.NoError(t, ctx.Write(&pipeline.FileRegion{File: f, Length: 10, Done: note}))
		assert.Error(t, ctx.Write(&pipeline.FileRegion{File: f, Length: -1}))
	})
	assert.Equal(t, 17, ch.Pending())
	ch.Drain(3)
	assert.Empty(t, done)
	ch.Drain(5)
	assert.Equal(t, "<23456>0", ch.OutboundString())
	assert.Equal(t, []error{nil}, done)
	ch.Abort(nil)
	require.Len(t, done, 2)
	assert.ErrorIs(t, done[1], pipeline.ErrClosed)
}

func TestFileThatEndsEarlyAborts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("01"), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	ch := pipelinetest.New(t, pipelinetest.Named("r", &recorder{}))
	ch.Do(func() { require.NoError(t, ch.Context("r").Write(&pipeline.FileRegion{File: f, Length: 3})) })
	assert.Error(t, ch.Cause())
}

func TestQueuedBufferIsAViewOfItsOwn(t *testing.T) {
	// As a proxy does it: the same Buf to two channels, and the caller consumes it before they have sent it.
	l := pipelinetest.NewLoop(t)
	cfg := pipelinetest.Config{Stalled: true}
	a, b := l.NewConfig(cfg, pipelinetest.Named("r", &recorder{})), l.NewConfig(cfg, pipelinetest.Named("r", &recorder{}))
	buf := l.Pool().Get(64)
	buf.AppendString("hello world")
	a.Do(func() {
		require.NoError(t, a.Context("r").Write(buf))
		require.NoError(t, b.Context("r").Write(buf))
		buf.Advance(6)
		require.NoError(t, b.Context("r").Write(buf))
	})
	buf.Release()
	a.Drain(3)
	a.Unstall()
	b.Unstall()
	assert.Equal(t, "hello world", a.OutboundString())
	assert.Equal(t, "hello worldworld", b.OutboundString())
}

func TestTimersFireInOrderEachAtItsTime(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	var got []string
	ch := l.New(pipelinetest.Named("r", &recorder{}))
	start := l.Now()
	timer := func(name string) pipeline.Timer {
		return ch.Context("r").NewTimer(func(ctx *pipeline.Context) error {
			got = append(got, name+" "+(ctx.Now()-start).String())
			return nil
		})
	}
	a, b, c, d := timer("a"), timer("b"), timer("c"), timer("d")
	b.Reset(2 * time.Second)
	a.Reset(time.Second)
	c.Reset(2 * time.Second)
	d.Reset(time.Second)
	assert.True(t, d.Stop())
	assert.False(t, d.Stop())
	ch.Advance(3 * time.Second)
	assert.Equal(t, []string{"a 1s", "b 2s", "c 2s"}, got)
	assert.Equal(t, start+3*time.Second, ch.Now())
	a.Reset(time.Second)
	ch.Abort(nil)
	ch.Advance(time.Minute)
	assert.Len(t, got, 3, "closing stops them")
}

func TestDialsAreTheTestsToAnswer(t *testing.T) {
	// A proxy: connects when it is connected to, pumps one way, gives up when it cannot.
	var failure error
	proxy := onActive(func(ctx *pipeline.Context) error {
		ctx.Pause()
		return ctx.Dial("tcp", "192.0.2.9:1", func(p *pipeline.Pipeline) error {
			return p.AddLast("back", onActive(func(back *pipeline.Context) error {
				ctx.Resume()
				return ctx.Pipeline().AddLast("pump", onRead(func(_ *pipeline.Context, msg any) error {
					return back.Write(msg)
				}))
			}))
		}, func(err error) { failure = err; ctx.Abort(err) })
	})
	t.Run("connect", func(t *testing.T) {
		ch := pipelinetest.New(t, proxy)
		ch.WriteInbound("early")
		dials := ch.Dials()
		require.Len(t, dials, 1)
		assert.Equal(t, "192.0.2.9:1", dials[0].Address)
		assert.Empty(t, ch.Dials())
		back := dials[0].Connect()
		ch.WriteInbound(" late")
		assert.Equal(t, "early late", back.OutboundString())
		assert.Same(t, ch.Loop(), back.Loop())
	})
	t.Run("fail", func(t *testing.T) {
		ch := pipelinetest.New(t, proxy)
		ch.Dials()[0].Fail(errTest)
		assert.Equal(t, errTest, failure)
		assert.True(t, ch.Closed())
	})
	t.Run("init fails", func(t *testing.T) {
		var failed error
		ch := pipelinetest.New(t, onActive(func(ctx *pipeline.Context) error {
			return ctx.Dial("tcp", "x", func(*pipeline.Pipeline) error { return errTest }, func(err error) { failed = err })
		}))
		back := ch.Dials()[0].Connect()
		assert.Equal(t, errTest, failed)
		assert.False(t, back.Open())
	})
}

func TestEventsThatNobodyHandlesAreRecorded(t *testing.T) {
	ch := pipelinetest.New(t)
	ch.Do(func() { ch.Pipeline().FireEvent("e"); ch.Pipeline().FireEvent(1) })
	assert.Equal(t, []any{"e", 1}, ch.Events())
	assert.Empty(t, ch.Events())
}

func TestWhatAFlushHandlerWritesGoesOutWithTheFlush(t *testing.T) {
	flushes := 0
	ch := pipelinetest.New(t, onFlush(func(ctx *pipeline.Context) error {
		flushes++
		if err := ctx.WriteBytes([]byte("<")); err != nil {
			return err
		}
		if err := ctx.Flush(); err != nil {
			return err
		}
		return ctx.WriteBytes([]byte(">"))
	}), pipelinetest.Named("r", &recorder{}))
	ch.Do(func() { require.NoError(t, ch.Context("r").Write("x")) })
	assert.Equal(t, "x<>", ch.OutboundString())
	assert.Equal(t, 1, flushes, "and asks for no other")
}

func TestWriteInboundSplit(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.New(t, r)
	r.take()
	ch.WriteInboundSplit([]byte("abcde"), 2)
	assert.Equal(t, []string{"read ab", "complete", "read cd", "complete", "read e", "complete"}, r.take())
}

func TestFinishComplains(t *testing.T) {
	for name, c := range map[string]struct {
		test func(t testing.TB)
		want string // part of the complaint; empty: none
	}{
		"nothing wrong": {func(t testing.TB) { pipelinetest.New(t, &recorder{}).WriteInbound("x") }, ""},
		"leak": {func(t testing.TB) {
			pipelinetest.New(t, onRead(func(_ *pipeline.Context, msg any) error {
				msg.(*buffer.Buf).Retain()
				return nil
			})).WriteInbound("x")
		}, "1 buffers (256 bytes) were never released"},
		"uncaught error": {func(t testing.TB) {
			pipelinetest.New(t, onRead(func(*pipeline.Context, any) error { return errTest })).WriteInbound("x")
		}, "an error reached the end of the pipeline: test error"},
		"expected error": {func(t testing.TB) {
			ch := pipelinetest.New(t, onRead(func(*pipeline.Context, any) error { return errTest }))
			ch.WriteInbound("x")
			if !errors.Is(ch.TakeError(), errTest) {
				t.Errorf("no error")
			}
		}, ""},
		"late error": {func(t testing.TB) {
			ch := pipelinetest.New(t, lateError{})
			ch.Close()
		}, "an error reached the end of the pipeline: test error"},
		"more given back than held": {func(t testing.TB) {
			ch := pipelinetest.New(t, pipelinetest.Named("r", &recorder{}))
			ch.Do(func() { ch.Context("r").Hold(2); ch.Context("r").Hold(-3) })
		}, "1 bytes more than were held"},
		"no rest": {func(t testing.TB) {
			ch := pipelinetest.New(t, pipelinetest.Named("r", &recorder{}))
			var again func(*pipeline.Context)
			again = func(ctx *pipeline.Context) { _ = ctx.Ref().Execute(again) }
			ch.Do(func() { again(ch.Context("r")) })
		}, "did not come to rest"},
		"no such handler": {func(t testing.TB) { pipelinetest.New(t).Context("x") }, `no handler "x"`},
		"not a handler":   {func(t testing.TB) { pipelinetest.New(t, 7) }, "value has no handler interface: int"},
		"input after the end": {func(t testing.TB) {
			ch := pipelinetest.New(t, &recorder{keep: true})
			ch.PeerClose()
			ch.WriteInbound("x")
		}, "the peer cannot send after it has finished"},
		"dial answered twice": {func(t testing.TB) {
			ch := pipelinetest.New(t, onActive(func(ctx *pipeline.Context) error { return ctx.Dial("tcp", "x", nil, nil) }))
			d := ch.Dials()[0]
			d.Fail(errTest)
			d.Connect()
		}, "answered twice"},
		"inbound is not bytes": {func(t testing.TB) {
			ch := pipelinetest.New(t)
			ch.WriteInbound(7)
			_ = ch.InboundString()
		}, "int is not bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got := (&fakeTB{}).run(c.test)
			if c.want == "" {
				assert.Empty(t, got)
				return
			}
			require.NotEmpty(t, got)
			assert.Contains(t, got[0], c.want)
		})
	}
}

// lateError fails when it is too late to close for it.
type lateError struct{}

func (lateError) ChannelInactive(*pipeline.Context) error { return errTest }
