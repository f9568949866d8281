//go:build linux

package idle_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/pipeline"
)

// serve returns a connection to a server whose pipelines have an idle handler and then h.
func serve(t *testing.T, kind weir.Kind, cfg idle.Config, h any) *net.TCPConn {
	return servertest.DialTCP(t, servertest.Serve(t, kind, func() ([]any, error) {
		i, err := idle.New(cfg)
		return []any{i, h}, err
	}))
}

func TestASilentPeerIsAskedAndLetGo(t *testing.T) {
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
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
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
		app := &bulk{}
		c := serve(t, kind, idle.Config{Writer: 50 * time.Millisecond}, app)
		servertest.Eventually(t, func() bool { return app.events.Load() >= 2 }, "events while nothing is read")
		require.NoError(t, c.CloseWrite())
		n, err := io.Copy(io.Discard, c) // a stall that was reported loses nothing
		require.NoError(t, err)
		assert.EqualValues(t, bulkBytes, n)
	})
}
