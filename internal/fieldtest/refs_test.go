//go:build linux

package fieldtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// keeper is an Init that only hands out the Ref of each connection.
func keeper(p *pipeline.Pipeline) error {
	return p.AddLast("", &hooks{active: keep})
}

func TestAfterItsEndEveryMethodAnswersFromAnyGoroutine(t *testing.T) {
	covers(t, "panjf2000/gnet#414", "panjf2000/gnet#393")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns = 20
		contexts := make(chan *pipeline.Context, conns)
		timers := make(chan pipeline.Timer, conns)
		var fired, flushed atomic.Int64
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, only(func() any {
			return &hooks{active: func(ctx *pipeline.Context) error {
				_ = keep(ctx)
				contexts <- ctx
				tm := ctx.NewTimer(func(*pipeline.Context) error { fired.Add(1); return nil })
				tm.Reset(time.Hour)
				timers <- tm
				return nil
			}}
		}))
		for range conns {
			c := r.dial()
			defer c.Close()
		}
		refs := r.kept(conns)
		writing := make(chan error, 1)
		go func() { // while they are being closed: taken or refused, nothing else
			writing <- all(8, func(i int) error {
				for n := range 2000 {
					ref := refs[(i+n)%conns]
					err := ref.TryWrite([]byte("from a worker"))
					if err != nil && !errors.Is(err, pipeline.ErrClosed) && !errors.Is(err, pipeline.ErrFull) {
						return err
					}
				}
				return nil
			})
		}()
		for i, c := range r.clients {
			if i%2 == 0 {
				require.NoError(t, reset(c))
			} else {
				if err := refs[i].Close(); err != nil { // its peer may have been quicker
					require.ErrorIs(t, err, pipeline.ErrClosed)
				}
				require.NoError(t, c.Close())
			}
		}
		require.NoError(t, receive(t, writing, "the workers"))
		for _, ref := range refs {
			if receive(t, ref.Closed(), "the end"); ref.Pending() != 0 || ref.Writable() {
				t.Errorf("Pending %d, Writable %v", ref.Pending(), ref.Writable())
			}
		}
		require.NoError(t, all(8, func(int) error {
			for _, ref := range refs {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				for _, err := range []error{
					ref.TryWrite([]byte("x")), ref.Write(ctx, []byte("x")), ref.Close(), ref.Execute(func(*pipeline.Context) {}),
				} {
					if !errors.Is(err, pipeline.ErrClosed) {
						cancel()
						return fmt.Errorf("answered %w, want ErrClosed", err)
					}
				}
				cancel()
				if ref.Pending() != 0 || ref.Writable() || ref.ID() == 0 {
					return fmt.Errorf("channel %d: Pending %d, Writable %v", ref.ID(), ref.Pending(), ref.Writable())
				}
			}
			return nil
		}))
		for range conns {
			ctx, tm := <-contexts, <-timers
			r.onContext(ctx, func() { everythingAnswers(t, ctx, tm, &flushed) })
		}
		r.eventually(func() bool { return flushed.Load() >= conns }, "Flushed is answered")
		assert.EqualValues(t, conns, flushed.Load(), "answers of Flushed")
		assert.Zero(t, fired.Load())
	})
}

// onContext runs fn on the loop of a Context, also when its channel is closed.
func (r *rig) onContext(ctx *pipeline.Context, fn func()) {
	r.t.Helper()
	for i, p := range r.Pools {
		if p == ctx.Pool() {
			r.OnLoop(i, func(*loop.Loop) { fn() })
			return
		}
	}
	require.FailNow(r.t, "a context of no loop")
}

// everythingAnswers calls all methods of the Context of a closed channel. Loop goroutine.
func everythingAnswers(t *testing.T, ctx *pipeline.Context, tm pipeline.Timer, flushed *atomic.Int64) {
	b := buffer.New(10)
	b.AppendString("0123456789")
	defer b.Release()
	for name, err := range map[string]error{
		"Write": ctx.Write(b), "Write of a string": ctx.Write("x"), "WriteBytes": ctx.WriteBytes([]byte("x")),
		"CloseWrite": ctx.CloseWrite(), "Control": ctx.Control(func(uintptr) error { return nil }),
	} {
		assert.ErrorIs(t, err, pipeline.ErrClosed, name)
	}
	ctx.Out().AppendString("nobody gets it")
	_ = ctx.Flush()
	ctx.Flushed(func(error) { flushed.Add(1) })
	assert.NoError(t, ctx.Close())
	ctx.Abort(errors.New("too late"))
	ctx.Pause()
	ctx.Resume()
	ctx.GrantChanged()
	ctx.Hold(1)
	ctx.Hold(-1)
	ctx.SetWritable(false)
	assert.False(t, ctx.Open())
	assert.False(t, ctx.Active())
	assert.False(t, ctx.Writable())
	assert.Zero(t, ctx.Pending())
	assert.NotNil(t, ctx.RemoteAddr())
	assert.NotNil(t, ctx.LocalAddr())
	assert.False(t, tm.Stop())
	tm.Reset(0)
	ctx.FireEvent("an event")
	ctx.FireRead("a message")
	assert.ErrorIs(t, ctx.Ref().TryWrite([]byte("x")), pipeline.ErrClosed)
}

// numbered is a message: who, which one, and padding that depends on both.
func numbered(who, n uint32, size int) []byte {
	p := make([]byte, 12+size)
	binary.BigEndian.PutUint32(p, who)
	binary.BigEndian.PutUint32(p[4:], n)
	binary.BigEndian.PutUint32(p[8:], uint32(size))
	pattern(p[12:], uint64(who)<<16|uint64(n), 0)
	return p
}

// readNumbered reads messages until the end and returns how many came of each of the writers; those of one come in
// their order, without a gap.
func readNumbered(c io.Reader, writers int) ([]uint32, error) {
	next := make([]uint32, writers)
	head := make([]byte, 12)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return next, err
		}
		who, n, size := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
		if who >= uint32(writers) || next[who] != n || size > 1<<20 {
			return next, fmt.Errorf("message %d of writer %d, %d bytes", n, who, size)
		}
		got := make([]byte, size)
		if _, err := io.ReadFull(c, got); err != nil {
			return next, err
		}
		want := make([]byte, size)
		if pattern(want, uint64(who)<<16|uint64(n), 0); string(got) != string(want) {
			return next, fmt.Errorf("message %d of writer %d: wrong bytes", n, who)
		}
		next[who]++
	}
}

func TestWritesOfEightGoroutinesKeepTheirOrder(t *testing.T) {
	covers(t, "panjf2000/gnet#337", "panjf2000/gnet#431")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const writers = 8
		messages := scaled(20_000, 2000)
		srv := &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{MaxPendingBytes: 256 << 10}}
		r := newRig(t, srv, keeper)
		c := r.dial()
		ref := r.kept(1)[0]
		type result struct {
			counts []uint32
			err    error
		}
		read := make(chan result, 1)
		go func() {
			counts, err := readNumbered(bufio.NewReader(c), writers)
			read <- result{counts, err}
		}()
		stop := make(chan struct{})
		var most atomic.Int64
		var watchers sync.WaitGroup
		finish := sync.OnceFunc(func() { close(stop); watchers.Wait() })
		defer finish()
		watchers.Go(func() { // from any goroutine, while the loop works
			for {
				select {
				case <-stop:
					return
				default:
				}
				most.Store(max(most.Load(), int64(ref.Pending())))
				_ = ref.Writable()
				runtime.Gosched()
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		err := all(writers, func(i int) error {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range messages {
				if err := ref.Write(ctx, numbered(uint32(i), uint32(n), rnd.IntN(300))); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, ref.Close(), "comes after all the writes")
		got := receive(t, read, "the end of the stream")
		require.ErrorIs(t, got.err, io.EOF)
		for i, n := range got.counts {
			assert.EqualValues(t, messages, n, "messages of writer %d", i)
		}
		finish()
		c.Close()
		receive(t, ref.Closed(), "the end")
		assert.NotZero(t, most.Load())
		assert.Zero(t, ref.Pending())
	})
}

func TestPendingReturnsToZeroWhileTheChannelIsOpen(t *testing.T) {
	covers(t, "panjf2000/gnet#337")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, keeper)
		c := r.dial()
		ref := r.kept(1)[0]
		for i := range 20 {
			require.NoError(t, ref.TryWrite(make([]byte, 1+i*10_000)))
			_, err := io.CopyN(io.Discard, c, int64(1+i*10_000))
			require.NoError(t, err)
			r.eventually(func() bool { return ref.Pending() == 0 && ref.Writable() }, "nothing is pending, round %d", i)
		}
	})
}

func TestWritersThatAreRefusedNeverEndTheChannel(t *testing.T) {
	covers(t, "panjf2000/gnet#214")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const writers, limit = 4, 128 << 10
		tries := scaled(20_000, 5000)
		srv := &weir.Server{Transport: kind, Loops: 1, Socket: smallBuffers, Channel: channel.Config{
			MaxPendingBytes: limit,
			CloseTimeout:    patience, // a loaded machine may keep the peer from reading for seconds
		}}
		r := newRig(t, srv, keeper)
		c := r.dial() // does not read
		require.NoError(t, shrink(c))
		ref := r.kept(1)[0]
		counts := make([]uint32, writers)
		var refused, most atomic.Int64
		require.NoError(t, all(writers, func(i int) error {
			for range tries {
				switch err := ref.TryWrite(numbered(uint32(i), counts[i], 2000)); {
				case err == nil:
					counts[i]++
				case errors.Is(err, pipeline.ErrFull):
					refused.Add(1)
				default:
					return err
				}
				most.Store(max(most.Load(), int64(ref.Pending())))
			}
			return nil
		}))
		assert.NotZero(t, refused.Load())
		_, held := r.Held()
		t.Logf("taken %v, refused %d, most pending %d, held %d", counts, refused.Load(), most.Load(), held)
		assert.LessOrEqual(t, ref.Pending(), limit+64<<10)
		require.NoError(t, ref.Close())
		got, err := readNumbered(c, writers)
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, counts, got, "what was taken arrives")
	})
}

func TestProducersOfAChannelSurviveItsEnd(t *testing.T) {
	covers(t, "cloudwego/netpoll#412")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const producers = 6
		rounds := scaled(150, 30)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, keeper)
		rnd := rand.New(rand.NewPCG(3, 3))
		for round := range rounds {
			c := r.dial()
			ref := r.kept(round + 1)[round]
			how, after := round%3, between(rnd, 0, 400)
			var closing sync.WaitGroup
			closing.Go(func() {
				_, err := readNumbered(bufio.NewReader(io.LimitReader(c, int64(100*after))), producers)
				if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("round %d: %v", round, err)
				}
				switch how {
				case 0:
					_ = reset(c)
				case 1:
					_ = c.Close()
				default:
					_ = ref.Close()
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}
			})
			require.NoError(t, all(producers, func(i int) error {
				for n := uint32(0); ; {
					switch err := ref.TryWrite(numbered(uint32(i), n, 20)); {
					case err == nil:
						if n++; n%64 == 0 { // the others need the processor, too
							time.Sleep(50 * time.Microsecond)
						}
					case errors.Is(err, pipeline.ErrClosed):
						return nil
					case errors.Is(err, pipeline.ErrFull):
						time.Sleep(100 * time.Microsecond)
					default:
						return err
					}
				}
			}))
			closing.Wait()
			receive(t, ref.Closed(), "the end")
		}
	})
}
