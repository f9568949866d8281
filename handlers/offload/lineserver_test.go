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
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

var eachTransport = servertest.Each

// lineServer is a server of one loop that offloads lines and replies to each with a line. What begins with "ping" is
// replied to by the loop itself.
type lineServer struct {
	t           *testing.T
	srv         *weir.Server
	pool        *offload.Pool
	work        func(ctx context.Context, line string) (string, error)
	maxInFlight int

	address string
	mu      sync.Mutex
	conns   []*serverConn // guarded by mu: of the connections, in the order they came
}

// open starts d.
func (d *lineServer) open(kind weir.Kind) *lineServer {
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
		for i, c := range d.conns {
			accepted, _, errs := c.state()
			assert.True(d.t, c.inactive.Load() && !c.wrong.Load(), "connection %d", i)
			assert.Len(d.t, errs, len(accepted), "connection %d: done is called once for each message", i)
		}
	})
	return d
}

func (d *lineServer) init(p *pipeline.Pipeline) error {
	c := &serverConn{}
	lines, err := codec.NewLines(codec.LinesConfig{})
	if err != nil {
		return err
	}
	h, err := offload.New(d.pool, offload.Config[*buffer.Buf, string, string]{
		Detach: c.detach, Work: d.work, Done: c.done, MaxInFlight: d.maxInFlight,
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.conns = append(d.conns, c)
	d.mu.Unlock()
	return errors.Join(p.AddLast("record", c), p.AddLast("lines", lines), p.AddLast("pong", pong{}),
		p.AddLast("offload", h), p.AddLast("last", last{c}))
}

// onLoop runs fn on the loop and waits for it.
func (d *lineServer) onLoop(fn func(*loop.Loop)) {
	done := make(chan struct{})
	l := d.srv.Group().Loop(0)
	require.NoError(d.t, l.Execute(func() { defer close(done); fn(l) }))
	<-done
}

// serverConn records what happens on a connection. It stands first in its pipeline.
type serverConn struct {
	bytes    int // received and not held back; loop goroutine
	inactive atomic.Bool
	wrong    atomic.Bool // a result was not that of its message, or Inactive overtook one

	mu sync.Mutex
	// guarded by mu
	accepted []string
	results  []string
	errs     []error // of all messages, nil for those with a result
}

func (c *serverConn) ChannelRead(ctx *pipeline.Context, msg any) error {
	c.bytes += msg.(*buffer.Buf).Len()
	ctx.FireRead(msg)
	return nil
}

func (c *serverConn) detach(line *buffer.Buf) (string, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := string(line.Bytes())
	c.accepted = append(c.accepted, s)
	return s, len(s)
}

// done replies with the result, or with the error's first line.
func (c *serverConn) done(ctx *pipeline.Context, r string, err error) error {
	c.mu.Lock()
	n := len(c.errs)
	c.errs = append(c.errs, err)
	if err == nil {
		c.results = append(c.results, r)
		if r != c.accepted[n] {
			c.wrong.Store(true)
		}
	}
	c.mu.Unlock()
	if errors.Is(err, pipeline.ErrClosed) {
		return nil
	}
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		r = "error: " + first
	}
	return ctx.WriteBytes([]byte(r), []byte("\n"))
}

func (c *serverConn) state() (accepted, results []string, errs []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.accepted...), append([]string(nil), c.results...), append([]error(nil), c.errs...)
}

// last stands behind the offload handler.
type last struct{ c *serverConn }

func (l last) ChannelInactive(*pipeline.Context) error {
	accepted, _, errs := l.c.state()
	if len(accepted) != len(errs) {
		l.c.wrong.Store(true)
	}
	l.c.inactive.Store(true)
	return nil
}

// pong replies to lines that begin with "ping".
type pong struct{}

func (pong) ChannelRead(ctx *pipeline.Context, msg any) error {
	if line := msg.(*buffer.Buf); strings.HasPrefix(string(line.Bytes()), "ping") {
		return errors.Join(ctx.Write(line), ctx.WriteBytes([]byte("\n")))
	}
	ctx.FireRead(msg)
	return nil
}

// client is a connection to a lineServer.
type client struct {
	net.Conn
	in *bufio.Scanner
}

func (d *lineServer) dial() client {
	c, err := net.DialTimeout("tcp", d.address, patience)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { c.Close() })
	require.NoError(d.t, c.SetDeadline(time.Now().Add(2*patience)))
	return client{c, bufio.NewScanner(c)}
}

// conn waits for the nth connection.
func (d *lineServer) conn(n int) (c *serverConn) {
	eventually(d.t, "a connection", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if n < len(d.conns) {
			c = d.conns[n]
		}
		return c != nil
	})
	return c
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
