//go:build linux

package weir_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

func TestConnectionsAboveMaxConnectionsWaitAndAreServedInTheEnd(t *testing.T) {
	for _, loops := range []int{1, 3} {
		t.Run(fmt.Sprintf("loops=%d", loops), func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				const limit = 4
				for _, conns := range []int{limit - 1, limit, limit + 1, 10 * limit} {
					srv := &weir.Server{Transport: kind, Loops: loops, Init: initEcho, MaxConnections: limit}
					addr := startTCP(t, srv)
					clients := make([]net.Conn, conns)
					for i := range clients {
						clients[i] = connect(t, "tcp", addr) // the kernel connects them all
					}
					stats := func() weir.Stats {
						st, err := srv.Stats(background(t))
						require.NoError(t, err)
						return st
					}
					eventually(t, func() bool { return stats().Open == min(conns, limit) }, "connections up to the limit")
					if conns > limit {
						eventually(t, func() bool { return stats().Limited > 0 }, "a loop that waits")
					}
					served := make(chan error, conns)
					for _, c := range clients { // each leaves when it is served, and makes room
						go func() {
							served <- ping(c, "x")
							c.Close()
						}()
					}
					for range conns {
						require.NoError(t, receive(t, served, "an echo"))
					}
					st := stats()
					assert.EqualValues(t, conns, st.Accepted)
					if conns <= limit {
						assert.Zero(t, st.Limited, "%d connections", conns)
					}
					require.NoError(t, srv.Close())
				}
			})
		})
	}
}

func TestThereAreNeverMoreThanMaxConnections(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const limit, clients, rounds = 3, 12, 20
		var open, most atomic.Int64
		srv := &weir.Server{Transport: kind, Loops: 2, MaxConnections: limit}
		srv.Channel.Closed = func(*channel.Channel) { open.Add(-1) }
		srv.Init = func(p *pipeline.Pipeline) error {
			n := open.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			return initEcho(p)
		}
		addr := startTCP(t, srv)
		require.NoError(t, all(clients, func(i int) error {
			for range rounds {
				c := connect(t, "tcp", addr)
				if err := ping(c, "hello"); err != nil {
					return fmt.Errorf("client %d: %w", i, err)
				}
				c.Close()
			}
			return nil
		}))
		assert.EqualValues(t, limit, most.Load())
		require.NoError(t, srv.Shutdown(background(t)))
		assert.Zero(t, open.Load())
	})
}

func TestAServerAtItsLimitShutsDown(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2, Init: initEcho, MaxConnections: 1}
		addr := startTCP(t, srv)
		clients := make([]net.Conn, 5)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
		}
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.Open == 1
		}, "one connection")
		require.NoError(t, srv.Shutdown(closing(t, clients)))
	})
}
