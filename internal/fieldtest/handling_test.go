//go:build linux

package fieldtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

func TestATaskThatFailsKeepsNoOtherFromRunning(t *testing.T) {
	covers(t, "panjf2000/gnet#179")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, keeper)
		r.dial()
		r.dial()
		refs := r.kept(2)
		var ran, ranOfOther, ranOfLoop atomic.Int64
		l := r.Server.Group().Loop(0)
		release := r.block(0)
		for i := range 9 {
			require.NoError(t, l.Execute(func() {
				if ranOfLoop.Add(1); i%3 == 0 {
					panic("a task's mistake")
				}
			}))
			require.NoError(t, refs[0].Execute(func(*pipeline.Context) {
				if ran.Add(1); i%3 == 0 {
					panic("a channel task's mistake")
				}
			}))
			require.NoError(t, refs[1].Execute(func(*pipeline.Context) { ranOfOther.Add(1) }))
		}
		late := r.dial() // is accepted behind them
		release()
		receive(t, refs[0].Closed(), "a panic closes its channel")
		r.eventually(func() bool { return ranOfLoop.Load() == 9 && ranOfOther.Load() == 9 }, "all others run")
		assert.EqualValues(t, 9, ran.Load(), "also those of the channel")
		r.kept(3)
		assert.NoError(t, refs[1].TryWrite([]byte("x")))
		late.Close()
	})
}

func TestHandlersReplacedInTheirCallbacksSeeTheRest(t *testing.T) {
	covers(t, "cloudwego/netpoll#421")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns = 30
		got := make(chan string, conns)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, func(p *pipeline.Pipeline) error {
			return p.AddLast("first", &hooks{active: func(ctx *pipeline.Context) error {
				_, err := ctx.Pipeline().Replace("first", "second", &hooks{
					read: func(ctx *pipeline.Context, b *buffer.Buf) error { // keeps a part, gives the rest to its successor
						b.Advance(4)
						if _, err := ctx.Pipeline().Replace("second", "third", &collector{got: got}); err != nil {
							return err
						}
						ctx.FireRead(b)
						return nil
					},
				})
				return err
			}})
		})
		for i := range conns {
			c := r.dial()
			_, err := fmt.Fprintf(c, "headrest of %02d", i)
			require.NoError(t, err)
			if i%2 == 0 {
				time.Sleep(time.Millisecond) // in one piece, or in two
			}
			_, err = io.WriteString(c, " and more")
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		texts := map[string]bool{}
		for range conns {
			texts[receive(t, got, "what was received")] = true
		}
		for i := range conns {
			assert.Contains(t, texts, fmt.Sprintf("rest of %02d and more", i))
		}
	})
}

func TestDialingInACallbackOfAWriteCompletesOrSaysWhyNot(t *testing.T) {
	covers(t, "apache/inlong#10670")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		type answers struct {
			blocking error
			write    error
		}
		said := make(chan answers, 1)
		dialed := make(chan error, 1)
		srv := &weir.Server{Transport: kind, Loops: 1}
		dialer := &weir.Dialer{Server: srv}
		r := newRig(t, srv, func(p *pipeline.Pipeline) error {
			return errors.Join(p.AddLast("", &hooks{active: keep}), p.AddLast("", echo{}))
		})
		c := r.dial()
		ref := r.kept(1)[0]
		r.execute(ref, func(ctx *pipeline.Context) {
			_ = ctx.Write("hello")
			ctx.Flushed(func(error) {
				_, blocking := dialer.Dial(context.Background(), "tcp", r.Address, initEcho)
				said <- answers{blocking, ref.Write(context.Background(), make([]byte, 1<<30))}
				if err := ctx.Dial("tcp", r.Address, func(p *pipeline.Pipeline) error {
					return p.AddLast("", &hooks{
						active: func(ctx *pipeline.Context) error { return ctx.Write("ping to itself") },
						read: func(ctx *pipeline.Context, b *buffer.Buf) error {
							var err error
							if string(b.Bytes()) != "ping to itself" {
								err = fmt.Errorf("got %q", b.Bytes())
							}
							dialed <- err
							return ctx.Close()
						},
					})
				}, func(err error) { dialed <- err }); err != nil {
					dialed <- err
				}
			})
		})
		got := receive(t, said, "the answer of calls that would wait for their own loop")
		require.ErrorIs(t, got.blocking, pipeline.ErrWouldDeadlock)
		require.ErrorIs(t, got.write, pipeline.ErrFull)
		require.NoError(t, receive(t, dialed, "the answer over the connection from the loop to itself"))
		_, err := io.ReadFull(c, make([]byte, 5))
		require.NoError(t, err)
	})
}

func TestImportingStartsNoGoroutine(t *testing.T) {
	covers(t, "cloudwego/netpoll#305")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=goroutines")
	out, err := cmd.Output()
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	assert.Equal(t, 1, n, "main's")
	// That nothing is left after Close is what every test of this package checks.
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		r := newRig(t, &weir.Server{Transport: kind, Loops: 4}, initEcho)
		require.NoError(t, ping(r.dial(), "x"))
	})
}

func TestHogsDoNotStopTheLoops(t *testing.T) {
	covers(t, "cloudwego/netpoll#109")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		trips := scaled(30, 10)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, initEcho)
		c := r.dial()
		stop := atomic.Bool{}
		var hogs sync.WaitGroup
		for range 2 * runtime.GOMAXPROCS(0) {
			hogs.Go(func() {
				for x := uint64(1); !stop.Load(); {
					for range 1 << 16 {
						x = x*6364136223846793005 + 1
					}
					runtime.KeepAlive(x)
				}
			})
		}
		for i := range trips {
			require.NoError(t, ping(c, fmt.Sprint("round trip ", i)))
		}
		stop.Store(true)
		hogs.Wait()
	})
}

// clockwork holds state that only timers touch.
type clockwork struct {
	ticks   int // not guarded: all timers run on the loop
	order   []int
	elapsed []time.Duration
}

func TestTimersRunOnTheirLoopInOrderUntilTheChannelEnds(t *testing.T) {
	covers(t, "panjf2000/gnet#703", "panjf2000/gnet#634")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const timers, ticks = 300, 50
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, keeper)
		r.dial()
		r.dial()
		refs := r.kept(2)
		var work clockwork
		finished := make(chan clockwork, 1)
		wrongThread, canceled, after := atomic.Int64{}, atomic.Int64{}, atomic.Int64{}
		r.execute(refs[0], func(ctx *pipeline.Context) {
			start, thread := ctx.Now(), unix.Gettid()
			for i := range timers {
				delay := time.Duration((i*7919)%timers) * 100 * time.Microsecond
				tm := ctx.NewTimer(func(ctx *pipeline.Context) error {
					if unix.Gettid() != thread {
						wrongThread.Add(1)
					}
					work.order = append(work.order, int(delay))
					work.elapsed = append(work.elapsed, ctx.Now()-start-delay)
					return nil
				})
				tm.Reset(delay)
				gone := ctx.NewTimer(func(*pipeline.Context) error { canceled.Add(1); return nil })
				gone.Reset(delay)
				assert.True(t, gone.Stop())
				assert.False(t, gone.Stop())
			}
			var tick pipeline.Timer
			tick = ctx.NewTimer(func(*pipeline.Context) error {
				if work.ticks++; work.ticks < ticks || len(work.order) < timers {
					tick.Reset(time.Millisecond)
				} else {
					finished <- work
				}
				return nil
			})
			tick.Reset(0)
		})
		got := receive(t, finished, "the last tick")
		assert.IsIncreasing(t, got.order, "by their time")
		for _, late := range got.elapsed {
			assert.GreaterOrEqual(t, late, time.Duration(0), "never early")
		}
		assert.Zero(t, wrongThread.Load())
		assert.Zero(t, canceled.Load())

		r.execute(refs[1], func(ctx *pipeline.Context) {
			for range 100 {
				ctx.NewTimer(func(*pipeline.Context) error { after.Add(1); return nil }).Reset(20 * time.Millisecond)
			}
			ctx.Abort(nil)
		})
		receive(t, refs[1].Closed(), "the end")
		var left int
		r.OnLoop(0, func(l *loop.Loop) { left = l.Stats().TimersSet })
		assert.Zero(t, left, "a channel's timers end with it")
		assert.Zero(t, after.Load())
	})
}
