//go:build linux

package idle_test

import (
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
)

// bound is the longest that a test waits for anything.
const bound = 30 * time.Second

// serve returns a connection to a server whose pipelines have an idle handler and then h.
func serve(t *testing.T, kind weir.Kind, cfg idle.Config, h any) *net.TCPConn {
	logger := slog.New(slog.DiscardHandler)
	srv := &weir.Server{Transport: kind, Loops: 1, Logger: logger, Init: func(p *pipeline.Pipeline) error {
		i, err := idle.New(cfg)
		if err != nil {
			return err
		}
		if err := p.AddLast("idle", i); err != nil {
			return err
		}
		return p.AddLast("app", h)
	}}
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	testenv.Require(t, string(kind), err)
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	c, err := net.DialTimeout("tcp", addr.String(), bound)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(bound)))
	return c.(*net.TCPConn)
}

func eachTransport(t *testing.T, test func(t *testing.T, kind weir.Kind)) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		t.Run("transport="+string(kind), func(t *testing.T) { test(t, kind) })
	}
}

func TestASilentPeerIsAskedAndLetGo(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		c := serve(t, kind, idle.Config{Reader: 50 * time.Millisecond}, patience{})
		all, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Equal(t, "are you there?\n", string(all))
	})
}

// bulk writes at once more than sockets take, and counts the events.
type bulk struct{ events atomic.Int64 }

const bulkBytes = 12 << 20

func (*bulk) ChannelActive(ctx *pipeline.Context) error {
	return ctx.WriteBytes(make([]byte, bulkBytes))
}

func (b *bulk) ChannelEvent(*pipeline.Context, any) error {
	b.events.Add(1)
	return nil
}

func TestAPeerThatDoesNotReadIsAnIdleWriterUntilItReads(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		app := &bulk{}
		c := serve(t, kind, idle.Config{Writer: 50 * time.Millisecond}, app)
		for deadline := time.Now().Add(bound); app.events.Load() < 2; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(deadline), "no event while nothing is read")
		}
		require.NoError(t, c.CloseWrite())
		n, err := io.Copy(io.Discard, c) // a stall that was reported loses nothing
		require.NoError(t, err)
		assert.EqualValues(t, bulkBytes, n)
	})
}
