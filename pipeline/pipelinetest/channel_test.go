package pipelinetest_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestLifeOfAChannel(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.New(t, r)
	ch.WriteInbound("a", []byte("b"), 7)
	ch.WriteInbound("c")
	ch.PeerClose()
	assert.Equal(t, []string{"active", "read a", "read b", "read 7", "read c", "read closed", "inactive <nil>"}, r.take())
	assert.True(t, ch.Closed())
	assert.Equal(t, []any{[]byte("a"), []byte("b"), 7, []byte("c")}, ch.Inbound())
	assert.Nil(t, ch.ReadInbound())
}

func TestInactiveChannelWaitsForActivate(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Inactive: true}, r)
	ch.WriteInbound("a")
	ch.WriteInbound(7)
	ch.PeerReset()
	assert.Empty(t, r.take())
	ch.Activate()
	log := r.take()
	require.Len(t, log, 4)
	assert.Equal(t, []string{"active", "read a", "read 7"}, log[:3], "what was sent before comes first")
	assert.ErrorIs(t, ch.Cause(), syscall.ECONNRESET)
	ch.Activate()
	assert.Empty(t, r.take())
}

func TestInitThatFailsAborts(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Init: func(*pipeline.Pipeline) error { return errTest }})
	assert.ErrorIs(t, ch.Cause(), errTest)
	assert.True(t, ch.Closed())
}

func TestBorrowedBytesAreOverwrittenAndRetainedOnesAreNot(t *testing.T) {
	for _, size := range []int{1, 100, 8 << 10, 16 << 10, 64 << 10} {
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
		ch.WriteInbound("") // and the loop has turned
		assert.NotEqual(t, byte('x'), borrowed[0], "borrowed: %d bytes", size)
		assert.NotEqual(t, byte('x'), borrowed[size-1], "borrowed: %d bytes", size)
		kept.Release()
		ch.Finish()
	}
}

func TestPiecesThatWaitAreNotJoinedAndKeepTheirOrder(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.New(t, pipelinetest.Named("r", r))
	ch.Do(ch.Context("r").Pause)
	assert.True(t, ch.Paused())
	r.take()
	ch.WriteInbound("a")
	ch.WriteInbound("b", 7)
	b := buffer.Wrap([]byte("c"))
	ch.WriteInbound(b, 8)
	b.Release()
	assert.Empty(t, r.take())
	assert.Equal(t, 5, ch.Stashed())
	ch.Do(ch.Context("r").Resume)
	assert.Equal(t, []string{"read a", "read b", "read 7", "read c", "read 8"}, r.take())
	assert.Zero(t, ch.Stashed())
	ch.WriteInboundSplit([]byte("abcde"), 2)
	assert.Equal(t, []string{"read ab", "read cd", "read e"}, r.take())
}

func TestMessagesComeBeforeAHandlerThatWasPutFirst(t *testing.T) {
	ch := pipelinetest.New(t, &recorder{})
	ch.WriteInbound(1)
	first := &recorder{}
	ch.Do(func() { require.NoError(t, ch.Pipeline().AddFirst("first", first)) })
	ch.WriteInbound(2, "x")
	assert.Equal(t, []string{"read 2", "read x"}, first.take())
}

func TestManualLoopTurnsOnlyWhenItIsTold(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, pipelinetest.Named("r", r))
	assert.Equal(t, []string{"active"}, r.take())
	ch.RunTasks()
	ch.WriteInbound("a")
	assert.Empty(t, r.take())
	require.NoError(t, ch.Context("r").Write("out"))
	assert.Empty(t, ch.Outbound(), "the flush is the turn's")
	assert.Positive(t, ch.RunTasks())
	assert.Equal(t, []string{"read a"}, r.take())
	assert.Equal(t, "out", ch.OutboundString())
	assert.Zero(t, ch.RunTasks())
	ch.WriteInbound("b")
	ch.Advance(1)
	assert.Equal(t, []string{"read b"}, r.take())
}

func TestReadIsNotCutByItsGrant(t *testing.T) {
	n, retry := 3, time.Duration(0)
	ch := pipelinetest.New(t, pipelinetest.Named("g", grant(func() (int, time.Duration) { return n, retry })))
	n, retry = 0, time.Second
	ch.WriteInbound("abcd", "ef")
	assert.Equal(t, "abcd", ch.InboundString())
	assert.Equal(t, 1, ch.Stashed())
	n = 3
	ch.Advance(time.Second - 1)
	assert.Empty(t, ch.InboundString())
	ch.Advance(1)
	assert.Equal(t, "ef", ch.InboundString())
}

type grant func() (int, time.Duration)

func (f grant) ReadGrant(*pipeline.Context) (n int, retry time.Duration) { return f() }

func TestAStalledKernelTakesWhatItIsAllowed(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Stalled: true, WriteHighBytes: 8 << 10, WriteLowBytes: 5 << 10},
		pipelinetest.Named("r", r))
	r.take()
	write := func(n int) { ch.Do(func() { require.NoError(t, ch.Context("r").Write(make([]byte, n))) }) }
	write(4 << 10)
	write(4 << 10)
	assert.Equal(t, 8<<10, ch.Pending())
	assert.True(t, ch.Writable(), "at the mark, not above it")
	write(1)
	assert.Equal(t, []string{"writable false"}, r.take())
	assert.Equal(t, 4000, ch.Drain(4000))
	assert.Len(t, ch.Outbound(), 4000)
	assert.Zero(t, ch.Drain(0))
	assert.Equal(t, 96, ch.Drain(96))
	assert.Empty(t, r.take())
	assert.Equal(t, 4097, ch.Drain(10_000), "and the rest later")
	assert.Equal(t, []string{"writable true"}, r.take())
	assert.Zero(t, ch.Pending())
	write(5904)
	write(1)
	assert.Len(t, ch.Outbound(), 4<<10+1+96+5903)
	ch.Unstall()
	assert.Len(t, ch.Outbound(), 2)
	ch.Stall()
	write(1)
	assert.Empty(t, ch.Outbound())
}

func TestSetPendingPlaysAStalledPeer(t *testing.T) {
	r := &recorder{}
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{WriteHighBytes: 10, WriteLowBytes: 5}, pipelinetest.Named("r", r))
	r.take()
	ch.Do(func() { ch.Context("r").Hold(3) })
	ch.SetPending(11)
	assert.Equal(t, 11, ch.Pending())
	ch.SetPending(4)
	assert.Equal(t, 4, ch.Pending())
	assert.Equal(t, []string{"writable false", "writable true"}, r.take())
	ch.Do(func() { ch.Context("r").Hold(-3) })
	assert.Equal(t, 1, ch.Pending())
	ch.SetPending(0)
	assert.Zero(t, ch.Pending())
}

func TestTimersFireInOrderEachAtItsTime(t *testing.T) {
	l := pipelinetest.NewLoop(t)
	var got []string
	ch := l.New(pipelinetest.Named("r", &recorder{}))
	start := l.Now()
	assert.Equal(t, time.Hour, start)
	var a pipeline.Timer
	timer := func(name string) pipeline.Timer {
		return ch.Context("r").NewTimer(func(ctx *pipeline.Context) error {
			got = append(got, name+" "+(ctx.Now()-start).String())
			if name == "b" {
				a.Reset(500 * time.Millisecond)
			}
			return nil
		})
	}
	a = timer("a")
	timer("b").Reset(2 * time.Second)
	a.Reset(time.Second)
	timer("c").Reset(2 * time.Second)
	ch.Advance(3*time.Second - 1)
	assert.Equal(t, []string{"a 1s", "b 2s", "c 2s", "a 2.5s"}, got)
	assert.Equal(t, start+3*time.Second-1, ch.Now())
	timer("d").Reset(1)
	ch.Advance(1)
	assert.Equal(t, "d 3s", got[4])
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
		back := dials[0].ConnectConfig(pipelinetest.Config{Stalled: true})
		ch.WriteInbound(" late")
		assert.Empty(t, back.OutboundString())
		back.Unstall()
		assert.Equal(t, "early late", back.OutboundString())
		assert.Same(t, ch.Loop(), back.Loop())
		back.WriteInbound("unasked")
		assert.Equal(t, "unasked", back.InboundString())
		back.PeerClose()
		assert.True(t, back.Closed())
		assert.False(t, ch.Closed())
	})
	t.Run("fail", func(t *testing.T) {
		ch := pipelinetest.New(t, proxy)
		ch.Dials()[0].Fail(errTest)
		assert.ErrorIs(t, failure, errTest)
		assert.True(t, ch.Closed())
	})
	t.Run("gone", func(t *testing.T) {
		ch := pipelinetest.New(t, proxy)
		ch.Abort(nil)
		got := (&fakeTB{}).run(func(t testing.TB) {
			ch := pipelinetest.New(t, proxy)
			ch.Abort(nil)
			ch.Dials()[0].Connect()
		})
		require.NotEmpty(t, got)
		assert.Contains(t, got[0], "nobody waits any more")
	})
}

func TestTheEndsOfAConnection(t *testing.T) {
	t.Run("silent peer", func(t *testing.T) {
		ch := pipelinetest.NewConfig(t, pipelinetest.Config{SilentPeer: true, CloseTimeout: time.Second})
		ch.Close()
		assert.True(t, ch.FinSent())
		assert.False(t, ch.Closed())
		ch.PeerClose()
		assert.True(t, ch.Closed())
		assert.NoError(t, ch.Cause())
	})
	t.Run("half-closed", func(t *testing.T) {
		r := &recorder{keep: true}
		ch := pipelinetest.New(t, pipelinetest.Named("r", r))
		ch.PeerClose()
		ch.Do(func() { assert.NoError(t, ch.Context("r").Write("still open")) })
		assert.Equal(t, "still open", ch.OutboundString())
		ch.Operations()
		ch.Do(func() { assert.NoError(t, ch.Context("r").CloseWrite()) })
		assert.True(t, ch.Closed())
		assert.Equal(t, []string{"close-write", "close"}, ch.Operations())
	})
	t.Run("shutdown", func(t *testing.T) {
		ch := pipelinetest.New(t, &recorder{})
		ch.Shutdown()
		assert.True(t, ch.Closed())
	})
	t.Run("abort", func(t *testing.T) {
		ch := pipelinetest.New(t, &recorder{})
		ch.Operations()
		ch.Abort(errTest)
		assert.Equal(t, errTest, ch.Cause())
		assert.Equal(t, []string{"reset"}, ch.Operations())
		ch.WriteInbound("too late")
		assert.Empty(t, ch.Inbound())
	})
}

func TestOtherGoroutinesAreWaitedFor(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("r", &recorder{}))
	ref := ch.Context("r").Ref()
	go func() { _ = ref.TryWrite([]byte("from elsewhere")) }()
	var got []byte
	ch.RunUntil(func() bool { got = append(got, ch.Outbound()...); return len(got) > 0 })
	assert.Equal(t, "from elsewhere", string(got))
}

func TestEventsThatNobodyHandlesAreRecorded(t *testing.T) {
	ch := pipelinetest.New(t)
	ch.Do(func() { ch.Pipeline().FireEvent("e"); ch.Pipeline().FireEvent(1) })
	assert.Equal(t, []any{"e", 1}, ch.Events())
	assert.Empty(t, ch.Events())
}

func TestFinishComplains(t *testing.T) {
	fails := onRead(func(*pipeline.Context, any) error { return errTest })
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
		"uncaught error": {
			func(t testing.TB) { pipelinetest.New(t, fails).WriteInbound("x") },
			"an error reached the end of the pipeline: test error",
		},
		"expected error": {func(t testing.TB) {
			ch := pipelinetest.New(t, fails)
			ch.WriteInbound("x")
			if !errors.Is(ch.TakeError(), errTest) {
				t.Errorf("no error")
			}
		}, ""},
		"late error": {
			func(t testing.TB) { pipelinetest.New(t, lateError{}).Close() },
			"an error reached the end of the pipeline: test error",
		},
		"panic": {func(t testing.TB) {
			pipelinetest.New(t, onRead(func(*pipeline.Context, any) error { panic("oh") })).WriteInbound("x")
		}, "handler panicked"},
		"panic that was expected": {func(t testing.TB) {
			ch := pipelinetest.New(t, onRead(func(*pipeline.Context, any) error { panic("oh") }))
			ch.WriteInbound("x")
			if !errors.Is(ch.TakeError(), channel.ErrPanic) {
				t.Errorf("no panic")
			}
		}, ""},
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
		"invalid settings": {
			func(t testing.TB) { pipelinetest.NewConfig(t, pipelinetest.Config{MaxPendingBytes: -1}) }, "negative limit",
		},
		"a channel inside a handler": {func(t testing.TB) {
			l := pipelinetest.NewLoop(t)
			l.New(onActive(func(*pipeline.Context) error { l.New(); return nil }))
		}, "inside a handler"},
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
