//go:build linux

package offload_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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
