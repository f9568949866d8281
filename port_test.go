//go:build linux

package weir_test

import (
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
)

func TestAServerHasItsPortToItself(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, tc := range []struct {
			name          string
			loops, others int
			share, shares bool
			fits          bool
		}{
			{name: "one loop each", loops: 1, others: 1},
			{name: "one, then several", loops: 1, others: 2},
			{name: "several, then one", loops: 3, others: 1},
			{name: "several each", loops: 2, others: 2},
			{name: "only the first shares", loops: 2, others: 2, share: true},
			{name: "only the second shares", loops: 1, others: 2, shares: true},
			{name: "one loop each, shared", loops: 1, others: 1, share: true, shares: true, fits: true},
			{name: "several, shared", loops: 2, others: 3, share: true, shares: true, fits: true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				addr := startTCP(t, &weir.Server{Transport: kind, Loops: tc.loops, SharePort: tc.share, Init: initEcho})
				other := &weir.Server{
					Transport: kind, Loops: tc.others, SharePort: tc.shares, Init: initEcho, Logger: quiet(),
				}
				defer other.Close()
				require.NoError(t, ready(&weir.Dialer{Server: other}))
				_, err := other.Listen("tcp", addr)
				if tc.fits {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, syscall.EADDRINUSE)
				for range 20 {
					require.NoError(t, ping(connect(t, "tcp", addr), "x"), "the first one serves on")
				}
			})
		}
	})
}

func TestOfServersThatBeginAtOnceOneGetsThePort(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const servers = 4
		for i := range 10 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				l, err := net.Listen("tcp", "127.0.3.1:0") // an address of which nobody else takes a free port
				require.NoError(t, err)
				addr := l.Addr().String()
				require.NoError(t, l.Close())
				var srvs [servers]*weir.Server
				for i := range srvs {
					srvs[i] = &weir.Server{Transport: kind, Loops: 2, Init: initEcho, Logger: quiet()}
					defer srvs[i].Close() // also when the test fails: its rings count
					require.NoError(t, ready(&weir.Dialer{Server: srvs[i]}))
				}
				var listening atomic.Int32
				require.NoError(t, all(servers, func(i int) error {
					_, err := srvs[i].Listen("tcp", addr)
					if err == nil {
						listening.Add(1)
					} else if !errors.Is(err, syscall.EADDRINUSE) {
						return err
					}
					return nil
				}))
				for _, srv := range srvs {
					require.NoError(t, srv.Close())
				}
				require.EqualValues(t, 1, listening.Load())
			})
		}
	})
}
