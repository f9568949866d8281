//go:build linux

package offload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

func TestAFullPoolHoldsItsChannelUpAndNotTheLoop(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		gate := make(chan struct{})
		d := (&lineServer{
			t: t, work: waits(gate), maxInFlight: 100,
			pool: newPool(t, offload.PoolConfig{Workers: 1, MaxQueued: 2}),
		}).open(kind)
		busy := d.dial()
		lines := named(strings.Repeat("x", 1000), 12_000) // more than sockets take
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(busy, strings.Join(lines, "\n")+"\n")
			sent <- err
		}()
		eventually(t, "the pool is full", func() bool { return d.pool.Stats().Waiting == 1 })
		read := func() (n int) {
			d.onLoop(func(*loop.Loop) { n = d.conn(0).bytes })
			return n
		}
		before := read()
		other := d.dial()
		for i := range 300 { // each is at least one turn of the same loop
			ping := fmt.Sprint("ping ", i)
			other.send(t, ping)
			other.expect(t, ping)
		}
		assert.Equal(t, before, read(), "nothing is read of the one that waits")
		accepted, _, errs := d.conn(0).state()
		assert.Empty(t, errs, "and nothing is refused")
		assert.Less(t, len(accepted), len(lines)/2)
		assert.Equal(t, 1, d.pool.Stats().Waiting)

		other.send(t, "one more")
		eventually(t, "the other waits as well", func() bool { return d.pool.Stats().Waiting == 2 })
		close(gate)
		other.expect(t, "one more")
		busy.expect(t, lines...)
		require.NoError(t, <-sent)
		settled(t, d.pool)
		assert.EqualValues(t, len(lines)+1, d.pool.Stats().Done)
		busy.Close()
		other.Close()
		eventually(t, "all are closed", func() bool { return d.conn(0).inactive.Load() && d.conn(1).inactive.Load() })
	})
}

func TestEachChannelKeepsItsOrderWhateverThePoolDoes(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		var calls atomic.Uint64
		work := func(_ context.Context, line string) (string, error) {
			rng := rand.New(rand.NewPCG(calls.Add(1), 1))
			for range rng.IntN(4) {
				runtime.Gosched()
			}
			if rng.IntN(16) == 0 {
				time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond)
			}
			return line, nil
		}
		pool := newPool(t, offload.PoolConfig{Workers: 5, MaxQueued: 11})
		d := (&lineServer{t: t, work: work, maxInFlight: 8, pool: pool}).open(kind)
		var clients sync.WaitGroup
		for i := range 16 {
			c := d.dial()
			clients.Go(func() {
				lines := named(fmt.Sprintf("connection %d, line", i), 400)
				go func() {
					_, _ = io.WriteString(c, strings.Join(lines, "\n")+"\n")
					_ = c.Conn.(*net.TCPConn).CloseWrite() // results still come
				}()
				for _, line := range lines {
					if !c.in.Scan() || c.in.Text() != line {
						t.Errorf("connection %d: %q, %v, want %q", i, c.in.Text(), c.in.Err(), line)
						return
					}
				}
				if c.in.Scan() {
					t.Errorf("connection %d: %q at the end", i, c.in.Text())
				}
			})
		}
		clients.Wait()
		settled(t, d.pool)
		s := d.pool.Stats()
		assert.Equal(t, offload.PoolStats{Done: 16 * 400}, s)
		for i := range 16 {
			eventually(t, "it is closed", d.conn(i).inactive.Load)
		}
	})
}

func TestPeersThatGoWhileWorksRun(t *testing.T) {
	reset := func(c client) error { return errors.Join(c.Conn.(*net.TCPConn).SetLinger(0), c.Close()) }
	for _, tc := range []struct {
		name        string
		hangUp      func(client) error
		maxInFlight int
	}{
		{"reset", reset, 0},
		{"reset while reading is paused", reset, 4},
		{"closed and reset by our answer", func(c client) error { return c.Close() }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, kind weir.Kind) {
				var causes, begun atomic.Int64
				gate := make(chan struct{})
				work := func(ctx context.Context, line string) (string, error) {
					if strings.HasPrefix(line, "hello") {
						return line, nil
					}
					begun.Add(1)
					r, err := waits(gate)(ctx, line)
					if errors.Is(err, pipeline.ErrClosed) {
						causes.Add(1)
					}
					return r, err
				}
				const works = 4 // run
				srv := &weir.Server{}
				srv.Channel.PausedCloseTimeout = time.Millisecond
				d := (&lineServer{
					t: t, srv: srv, work: work, maxInFlight: tc.maxInFlight,
					pool: newPool(t, offload.PoolConfig{Workers: works, MaxQueued: 3}),
				}).open(kind)
				c := d.dial()
				c.send(t, named("message", 10)...)
				eventually(t, "four run", func() bool { return begun.Load() == works })
				eventually(t, "all is read", func() bool {
					accepted, _, _ := d.conn(0).state()
					return len(accepted) >= works
				})
				require.NoError(t, tc.hangUp(c))
				if !strings.HasPrefix(tc.name, "reset") {
					close(gate) // what is written now finds nobody
					eventually(t, "it is closed", d.conn(0).inactive.Load)
				} else {
					eventually(t, "it is closed", d.conn(0).inactive.Load)
					eventually(t, "the works see it", func() bool { return causes.Load() == works })
					_, results, errs := d.conn(0).state()
					assert.Empty(t, results)
					for _, err := range errs {
						assert.ErrorIs(t, err, pipeline.ErrClosed)
					}
				}
				settled(t, d.pool)
				next := d.dial()
				next.send(t, "hello")
				next.expect(t, "hello")
				next.Close()
				eventually(t, "it is closed", d.conn(1).inactive.Load)
			})
		})
	}
}

func TestShutdownAnswersWhatWasReadBefore(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		gate := make(chan struct{})
		pool := newPool(t, offload.PoolConfig{Workers: 2, MaxQueued: 4})
		d := (&lineServer{t: t, work: waits(gate), pool: pool}).open(kind)
		lines := named("line", 20)
		clients := make([]client, 8)
		for i := range clients {
			clients[i] = d.dial()
			clients[i].send(t, lines...)
		}
		idle := d.dial()
		for i := range clients {
			eventually(t, "its lines are read", func() bool {
				accepted, _, _ := d.conn(i).state()
				return len(accepted) > 0
			})
		}
		down := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			down <- d.srv.Shutdown(ctx)
		}()
		idle.ends(t) // so the others were told, or will be in this turn
		idle.Close()
		close(gate)
		for i, c := range clients {
			n := 0
			for c.in.Scan() {
				require.Less(t, n, len(lines))
				require.Equal(t, lines[n], c.in.Text())
				n++
			}
			require.NoError(t, c.in.Err())
			c.Close()
			accepted, results, _ := d.conn(i).state()
			assert.Len(t, accepted, n, "connection %d: each line that was read is answered", i)
			assert.Equal(t, accepted, results)
		}
		require.NoError(t, <-down)
		settled(t, d.pool)
	})
}

func TestAPanicInAWorkCostsOneAnswer(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		work := func(_ context.Context, line string) (string, error) {
			switch line {
			case "panic":
				panic("wrong")
			case "exit":
				runtime.Goexit()
			}
			return line, nil
		}
		d := (&lineServer{t: t, work: work, pool: newPool(t, offload.PoolConfig{Workers: 1})}).open(kind)
		c := d.dial()
		for range 20 {
			c.send(t, "a", "panic", "b", "exit", "c")
			c.expect(t, "a", "error: offload: work panicked: wrong", "b", "error: "+offload.ErrGoexit.Error(), "c")
		}
		eventually(t, "all are counted", func() bool {
			return d.pool.Stats() == offload.PoolStats{Done: 100, Panics: 40}
		})
		c.Close()
		eventually(t, "it is closed", d.conn(0).inactive.Load)
	})
}

func TestAWorkThatDoesNotCareDelaysNoClose(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		gate, begun := make(chan struct{}), make(chan context.Context, 1)
		work := func(ctx context.Context, line string) (string, error) {
			begun <- ctx
			<-gate
			return line, nil
		}
		d := (&lineServer{t: t, work: work, pool: newPool(t, offload.PoolConfig{Workers: 1})}).open(kind)
		d.dial().send(t, "one", "two")
		ctx := <-begun
		require.NoError(t, d.srv.Close())
		assert.True(t, d.conn(0).inactive.Load(), "the server does not wait")
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), pipeline.ErrClosed)
		_, results, errs := d.conn(0).state()
		assert.Empty(t, results)
		assert.Len(t, errs, 2)
		assert.Equal(t, 1, d.pool.Stats().Running)
		close(gate) // its result goes nowhere
		settled(t, d.pool)
		assert.EqualValues(t, 1, d.pool.Stats().Abandoned, "the second was never begun")
	})
}

func TestAPoolThatIsClosedUnderLoadAnswersEverything(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient=%t", patient), func(t *testing.T) {
			eachTransport(t, func(t *testing.T, kind weir.Kind) {
				pool, err := offload.NewPool(offload.PoolConfig{Workers: 2, MaxQueued: 5})
				require.NoError(t, err)
				var worked atomic.Int64
				work := func(_ context.Context, line string) (string, error) { worked.Add(1); return line, nil }
				d := (&lineServer{t: t, work: work, maxInFlight: 4, pool: pool}).open(kind)
				const lines = 500
				var clients sync.WaitGroup
				var results, refusals atomic.Int64
				for i := range 8 {
					c := d.dial()
					want := named("line", lines)
					clients.Go(func() {
						go func() { _, _ = io.WriteString(c, strings.Join(want, "\n")+"\n") }()
						refused := false
						for n := range want {
							switch {
							case !c.in.Scan():
								t.Errorf("connection %d: the end after %d replies: %v", i, n, c.in.Err())
								return
							case c.in.Text() == want[n] && (!refused || !patient):
								results.Add(1)
							case c.in.Text() == "error: "+offload.ErrPoolClosed.Error():
								refused = true
								refusals.Add(1)
							default:
								t.Errorf("connection %d: answer %d is %q", i, n, c.in.Text())
								return
							}
						}
					})
				}
				eventually(t, "works are done", func() bool { return worked.Load() > 200 })
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				if patient {
					assert.NoError(t, pool.Close(ctx))
				} else {
					cancel()
					_ = pool.Close(ctx) // it may be empty just now
				}
				clients.Wait()
				settled(t, pool)
				assert.EqualValues(t, 8*lines, results.Load()+refusals.Load())
				assert.EqualValues(t, results.Load(), worked.Load())
				assert.EqualValues(t, refusals.Load(), pool.Stats().Rejected)
			})
		})
	}
}
