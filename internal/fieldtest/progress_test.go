//go:build linux

package fieldtest

import (
	"errors"
	"fmt"
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

// readSlowly reads n bytes in steps, with a pause before each, and returns the longest pause that it really was.
func readSlowly(c net.Conn, n, steps int, pause time.Duration) (longest time.Duration, err error) {
	buf := make([]byte, n/steps)
	for last := time.Now(); steps > 0 && err == nil; steps-- {
		time.Sleep(pause)
		longest = max(longest, time.Since(last))
		_, err = io.ReadFull(c, buf)
		last = time.Now()
	}
	return longest, err
}

// steadily runs try, which returns the longest pause of its peer, until it succeeds. It may only fail where the peer
// itself stalled, for half the bound that the test is about: a busy machine does that.
func steadily(t *testing.T, bound time.Duration, try func() (longest time.Duration, err error)) {
	t.Helper()
	for range 10 {
		longest, err := try()
		if err == nil {
			return
		}
		require.Greater(t, longest, bound/2, "%v", err)
	}
	t.Skip("the machine is too busy for a peer that reads steadily")
}

// Close counts from what the peer last acknowledged: one that reads steadily gets everything, however long it takes
// (MDA2AV/ioxide#164).
func TestAPeerThatReadsSlowlyGetsEverythingBeforeTheClose(t *testing.T) {
	const n, steps, timeout = 4 << 20, 16, 500 * time.Millisecond
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(network, func(t *testing.T) {
				t.Parallel()
				steadily(t, timeout, func() (time.Duration, error) {
					srv := &weir.Server{
						Transport: kind, Loops: 1, Socket: transport.SocketConfig{SendBufferBytes: 256 << 10},
						Channel: channel.Config{CloseTimeout: timeout},
					}
					r := newRigOn(t, network, srv, only(func() any { return echo{} }))
					c := r.dial()
					require.NoError(t, c.(interface{ SetReadBuffer(int) error }).SetReadBuffer(64<<10))
					sent := make(chan error, 1)
					go func() {
						_, err := c.Write(make([]byte, n))
						sent <- errors.Join(err, c.(interface{ CloseWrite() error }).CloseWrite())
					}()
					longest, err := readSlowly(c, n, steps, 100*time.Millisecond)
					if _, end := c.Read(make([]byte, 1)); end != io.EOF {
						err = errors.Join(err, fmt.Errorf("%v at the end", end))
					}
					require.NoError(t, c.Close())
					return longest, errors.Join(err, receive(t, sent, "the end of the writes"))
				})
			})
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
	const n, steps, idleAfter = 4 << 20, 80, 400 * time.Millisecond
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		steadily(t, idleAfter, func() (time.Duration, error) {
			var events atomic.Int64
			srv := &weir.Server{
				Transport: kind, Loops: 1, Socket: transport.SocketConfig{SendBufferBytes: 512 << 10},
				Channel: channel.Config{MaxPendingBytes: 64 << 20},
			}
			r := newRig(t, srv, func(p *pipeline.Pipeline) error {
				h, err := idle.New(idle.Config{Writer: idleAfter})
				return errors.Join(err, p.AddLast("idle", h), p.AddLast("count", countEvents{&events}),
					p.AddLast("app", &hooks{active: keep}))
			})
			c := r.dial()
			require.NoError(t, c.(interface{ SetReadBuffer(int) error }).SetReadBuffer(16<<10))
			ref := r.kept(1)[0]
			r.execute(ref, func(ctx *pipeline.Context) { assert.NoError(t, ctx.Write(make([]byte, n))) })
			longest, err := readSlowly(c, n, steps, 25*time.Millisecond)
			if got := events.Load(); got > 0 {
				err = errors.Join(err, fmt.Errorf("%d events", got))
			}
			return longest, errors.Join(err, c.Close())
		})
	})
}
