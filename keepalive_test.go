//go:build linux

package weir_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// keepAlive tells how its socket probes the peer.
type keepAlive chan [3]int

func (k keepAlive) ChannelActive(ctx *pipeline.Context) error {
	return ctx.Control(func(fd uintptr) error {
		on, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		idle, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		interval, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
		k <- [3]int{on, idle, interval}
		return err
	})
}

// As in Go's net: a peer that has vanished is found without a setting.
func TestKeepAliveIsOnUnlessItIsTurnedOff(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, off := range []bool{false, true} {
			socket := transport.SocketConfig{NoKeepAlive: off}
			got := make(keepAlive, 2)
			addr := startTCP(t, &weir.Server{Transport: kind, Loops: 2, Socket: socket, Init: only(func() any { return got })})
			d := startDialer(t, &weir.Dialer{Transport: kind, Socket: socket})
			_, err := d.Dial(background(t), "tcp", addr, only(func() any { return got }))
			require.NoError(t, err)
			for range 2 { // the accepted and the dialed side
				side := receive(t, got, "an active channel")
				if off {
					assert.Zero(t, side[0])
				} else {
					assert.Equal(t, [3]int{1, 15, 15}, side)
				}
			}
		}
	})
}
