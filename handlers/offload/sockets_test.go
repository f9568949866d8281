//go:build linux

package offload_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

func eachTransport(t *testing.T, test func(t *testing.T, kind weir.Kind)) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		t.Run("transport="+string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// desk is a server of one loop that offloads lines and answers each with a line. What begins with "ping" is answered by the
// loop itself.
type desk struct {
	t           *testing.T
	srv         *weir.Server
	pool        *offload.Pool
	work        func(ctx context.Context, line string) (string, error)
	maxInFlight int

	address string
	mu      sync.Mutex
	books   []*book // guarded by mu: of the connections, in the order they came
}

// open starts d.
func (d *desk) open(kind weir.Kind) *desk {
	if d.srv == nil {
		d.srv = &weir.Server{}
	}
	d.srv.Transport, d.srv.Loops, d.srv.Logger, d.srv.Init = kind, 1, slog.New(slog.DiscardHandler), d.init
	addr, err := d.srv.Listen("tcp", "127.0.0.1:0")
	testenv.Require(d.t, string(kind), err)
	d.address = addr.String()
	var pool *buffer.Pool
	d.onLoop(func(l *loop.Loop) { pool = l.Pool() })
	d.t.Cleanup(func() {
		assert.NoError(d.t, d.srv.Close())
		assert.Zero(d.t, pool.Outstanding(), "buffers: %s", strings.Join(pool.Leaks(), "\n"))
		for i, b := range d.books {
			accepted, _, errs := b.state()
			assert.True(d.t, b.inactive.Load() && !b.wrong.Load(), "connection %d", i)
			assert.Len(d.t, errs, len(accepted), "connection %d: done is called once for each message", i)
		}
	})
	return d
}

func (d *desk) init(p *pipeline.Pipeline) error {
	b := &book{}
	lines, err := codec.NewLines(codec.LinesConfig{})
	if err != nil {
		return err
	}
	h, err := offload.New(d.pool, offload.Config[*buffer.Buf, string, string]{
		Detach: b.detach, Work: d.work, Done: b.done, MaxInFlight: d.maxInFlight,
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.books = append(d.books, b)
	d.mu.Unlock()
	return errors.Join(p.AddLast("book", b), p.AddLast("lines", lines), p.AddLast("pong", pong{}),
		p.AddLast("offload", h), p.AddLast("last", last{b}))
}

// onLoop runs fn on the loop and waits for it.
func (d *desk) onLoop(fn func(*loop.Loop)) {
	done := make(chan struct{})
	l := d.srv.Group().Loop(0)
	require.NoError(d.t, l.Execute(func() { defer close(done); fn(l) }))
	<-done
}

// book is what is written down of a connection. It stands first in its pipeline.
type book struct {
	bytes    int // received and not held back; loop goroutine
	inactive atomic.Bool
	wrong    atomic.Bool // a result was not that of its message, or Inactive overtook one

	mu sync.Mutex
	// guarded by mu
	accepted []string
	results  []string
	errs     []error // of all messages, nil for those with a result
}

func (b *book) ChannelRead(ctx *pipeline.Context, msg any) error {
	b.bytes += msg.(*buffer.Buf).Len()
	ctx.FireRead(msg)
	return nil
}

func (b *book) detach(line *buffer.Buf) (string, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := string(line.Bytes())
	b.accepted = append(b.accepted, s)
	return s, len(s)
}

// done answers with the result, or with the error's first line.
func (b *book) done(ctx *pipeline.Context, r string, err error) error {
	b.mu.Lock()
	n := len(b.errs)
	b.errs = append(b.errs, err)
	if err == nil {
		b.results = append(b.results, r)
		if r != b.accepted[n] {
			b.wrong.Store(true)
		}
	}
	b.mu.Unlock()
	if errors.Is(err, pipeline.ErrClosed) {
		return nil
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		r = "error: " + first
	}
	return ctx.WriteBytes([]byte(r), []byte("\n"))
}

func (b *book) state() (accepted, results []string, errs []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.accepted...), append([]string(nil), b.results...), append([]error(nil), b.errs...)
}

// last stands behind the offload handler.
type last struct{ b *book }

func (l last) ChannelInactive(*pipeline.Context) error {
	accepted, _, errs := l.b.state()
	if len(accepted) != len(errs) {
		l.b.wrong.Store(true)
	}
	l.b.inactive.Store(true)
	return nil
}

// pong answers lines that begin with "ping".
type pong struct{}

func (pong) ChannelRead(ctx *pipeline.Context, msg any) error {
	if line := msg.(*buffer.Buf); strings.HasPrefix(string(line.Bytes()), "ping") {
		return errors.Join(ctx.Write(line), ctx.WriteBytes([]byte("\n")))
	}
	ctx.FireRead(msg)
	return nil
}

// client is a connection to a desk.
type client struct {
	net.Conn
	in *bufio.Scanner
}

func (d *desk) dial() client {
	c, err := net.DialTimeout("tcp", d.address, patience)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { c.Close() })
	require.NoError(d.t, c.SetDeadline(time.Now().Add(2*patience)))
	return client{c, bufio.NewScanner(c)}
}

// book waits for the nth connection.
func (d *desk) book(n int) (b *book) {
	eventually(d.t, "a connection", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if n < len(d.books) {
			b = d.books[n]
		}
		return b != nil
	})
	return b
}

func (c client) send(t testing.TB, lines ...string) {
	_, err := io.WriteString(c, strings.Join(lines, "\n")+"\n")
	require.NoError(t, err)
}

// expect reads these lines.
func (c client) expect(t testing.TB, lines ...string) {
	t.Helper()
	for i, line := range lines {
		require.True(t, c.in.Scan(), "line %d: %v", i, c.in.Err())
		require.Equal(t, line, c.in.Text(), "line %d", i)
	}
}

// ends reads the end of the stream.
func (c client) ends(t testing.TB) {
	t.Helper()
	require.False(t, c.in.Scan(), "%q", c.in.Text())
	require.NoError(t, c.in.Err())
}

func named(prefix string, n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("%s %d", prefix, i))
	}
	return lines
}

// waits is a work that waits for the gate or for the end of its context.
func waits(gate <-chan struct{}) func(context.Context, string) (string, error) {
	return func(ctx context.Context, line string) (string, error) {
		select {
		case <-gate:
			return line, nil
		case <-ctx.Done():
			return line, context.Cause(ctx)
		}
	}
}

// settled waits until the pool has nothing left.
func settled(t testing.TB, p *offload.Pool) {
	t.Helper()
	eventually(t, "the pool is empty", func() bool {
		s := p.Stats()
		return s.Queued == 0 && s.QueuedBytes == 0 && s.Running == 0 && s.Waiting == 0
	})
}

func TestAFullPoolHoldsItsChannelUpAndNotTheLoop(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		gate := make(chan struct{})
		d := (&desk{
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
			d.onLoop(func(*loop.Loop) { n = d.book(0).bytes })
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
		accepted, _, errs := d.book(0).state()
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
		eventually(t, "all are closed", func() bool { return d.book(0).inactive.Load() && d.book(1).inactive.Load() })
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
		d := (&desk{t: t, work: work, maxInFlight: 8, pool: newPool(t, offload.PoolConfig{Workers: 5, MaxQueued: 11})}).open(kind)
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
			eventually(t, "it is closed", d.book(i).inactive.Load)
		}
	})
}

func TestPeersThatGoWhileWorksRun(t *testing.T) {
	reset := func(c client) error { return errors.Join(c.Conn.(*net.TCPConn).SetLinger(0), c.Close()) }
	for _, tc := range []struct {
		name        string
		leave       func(client) error
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
				d := (&desk{
					t: t, srv: srv, work: work, maxInFlight: tc.maxInFlight,
					pool: newPool(t, offload.PoolConfig{Workers: works, MaxQueued: 3}),
				}).open(kind)
				c := d.dial()
				c.send(t, named("message", 10)...)
				eventually(t, "four run", func() bool { return begun.Load() == works })
				eventually(t, "all is read", func() bool { accepted, _, _ := d.book(0).state(); return len(accepted) >= works })
				require.NoError(t, tc.leave(c))
				if !strings.HasPrefix(tc.name, "reset") {
					close(gate) // what is written now finds nobody
					eventually(t, "it is closed", d.book(0).inactive.Load)
				} else {
					eventually(t, "it is closed", d.book(0).inactive.Load)
					eventually(t, "the works see it", func() bool { return causes.Load() == works })
					_, results, errs := d.book(0).state()
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
				eventually(t, "it is closed", d.book(1).inactive.Load)
			})
		})
	}
}

func TestShutdownAnswersWhatWasReadBefore(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		gate := make(chan struct{})
		d := (&desk{t: t, work: waits(gate), pool: newPool(t, offload.PoolConfig{Workers: 2, MaxQueued: 4})}).open(kind)
		lines := named("line", 20)
		clients := make([]client, 8)
		for i := range clients {
			clients[i] = d.dial()
			clients[i].send(t, lines...)
		}
		idle := d.dial()
		for i := range clients {
			eventually(t, "its lines are read", func() bool { accepted, _, _ := d.book(i).state(); return len(accepted) > 0 })
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
			accepted, results, _ := d.book(i).state()
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
		d := (&desk{t: t, work: work, pool: newPool(t, offload.PoolConfig{Workers: 1})}).open(kind)
		c := d.dial()
		for range 20 {
			c.send(t, "a", "panic", "b", "exit", "c")
			c.expect(t, "a", "error: offload: work panicked: wrong", "b", "error: "+offload.ErrGoexit.Error(), "c")
		}
		eventually(t, "all are counted", func() bool { return d.pool.Stats() == offload.PoolStats{Done: 100, Panics: 40} })
		c.Close()
		eventually(t, "it is closed", d.book(0).inactive.Load)
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
		d := (&desk{t: t, work: work, pool: newPool(t, offload.PoolConfig{Workers: 1})}).open(kind)
		d.dial().send(t, "one", "two")
		ctx := <-begun
		require.NoError(t, d.srv.Close())
		assert.True(t, d.book(0).inactive.Load(), "the server does not wait")
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), pipeline.ErrClosed)
		_, results, errs := d.book(0).state()
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
				d := (&desk{t: t, work: work, maxInFlight: 4, pool: pool}).open(kind)
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
								t.Errorf("connection %d: the end after %d answers: %v", i, n, c.in.Err())
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
