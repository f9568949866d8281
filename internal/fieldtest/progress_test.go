//go:build linux

package fieldtest

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// readSlowly reads n bytes in steps, with a pause before each.
func readSlowly(t *testing.T, c net.Conn, n, steps int, pause time.Duration) {
	buf := make([]byte, n/steps)
	for range steps {
		time.Sleep(pause) // the peer is slow; how slow exactly does not matter
		_, err := io.ReadFull(c, buf)
		require.NoError(t, err)
	}
}

// Close counts from what the peer last acknowledged: one that reads steadily gets everything, however long it takes
// (MDA2AV/ioxide#164).
func TestAPeerThatReadsSlowlyGetsEverythingBeforeTheClose(t *testing.T) {
	const n, steps = 4 << 20, 16
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, network := range []string{"tcp", "unix"} {
			srv := &weir.Server{
				Transport: kind, Loops: 1, Socket: transport.SocketConfig{SendBufferBytes: 256 << 10},
				Channel: channel.Config{CloseTimeout: 500 * time.Millisecond},
			}
			r := newRigOn(t, network, srv, only(func() any { return echo{} }))
			c := r.dial()
			require.NoError(t, c.(interface{ SetReadBuffer(int) error }).SetReadBuffer(64<<10))
			sent := make(chan error, 1)
			go func() {
				_, err := c.Write(make([]byte, n))
				sent <- errors.Join(err, c.(interface{ CloseWrite() error }).CloseWrite())
			}()
			readSlowly(t, c, n, steps, 100*time.Millisecond)
			require.NoError(t, receive(t, sent, "the end of the writes"))
			_, err := c.Read(make([]byte, 1))
			assert.Equal(t, io.EOF, err, network)
		}
	})
}

// countEvents counts what FireEvent sends.
type countEvents struct{ n *atomic.Int64 }

func (h countEvents) ChannelEvent(*pipeline.Context, any) error {
	h.n.Add(1)
	return nil
}

// The kernel takes nothing new until a third of its buffer is free, which for a slow peer is longer than a short period
// (twisted/twisted#12498, netty/netty#6150).
func TestAPeerThatReadsSlowlyIsNotIdle(t *testing.T) {
	const n, steps = 4 << 20, 20
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var events atomic.Int64
		srv := &weir.Server{
			Transport: kind, Loops: 1, Socket: transport.SocketConfig{SendBufferBytes: 512 << 10},
			Channel: channel.Config{MaxPendingBytes: 64 << 20},
		}
		r := newRig(t, srv, func(p *pipeline.Pipeline) error {
			h, err := idle.New(idle.Config{Writer: 400 * time.Millisecond})
			return errors.Join(err, p.AddLast("idle", h), p.AddLast("count", countEvents{&events}),
				p.AddLast("app", &hooks{active: keep}))
		})
		c := r.dial()
		require.NoError(t, c.(interface{ SetReadBuffer(int) error }).SetReadBuffer(16<<10))
		ref := r.kept(1)[0]
		r.execute(ref, func(ctx *pipeline.Context) { assert.NoError(t, ctx.Write(make([]byte, n))) })
		readSlowly(t, c, n, 4*steps, 25*time.Millisecond)
		assert.Zero(t, events.Load())
	})
}
