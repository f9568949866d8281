//go:build linux

package epoll

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/transporttest"
)

// TestConformance runs the suite of all transports, also with bounds so small that every path between turns is taken.
func TestConformance(t *testing.T) {
	features := transporttest.All()
	features.SendNow = true
	for _, v := range []struct {
		name string
		cfg  Config
		gate bool // differs little from the others
	}{
		{name: "defaults"},
		{name: "raw", cfg: Config{Raw: true}, gate: true},
		{name: "tiny", cfg: Config{ReceivesPerWait: 1, AcceptsPerWait: 1, SendBytesPerTurn: 1000, ReceiveBlockBytes: 256}},
	} {
		t.Run(v.name, func(t *testing.T) {
			if v.gate && !testenv.Thorough() {
				t.Skip("for the gate")
			}
			transporttest.Run(t, transporttest.Factory{
				Name:       "epoll",
				Features:   features,
				BlockBytes: v.cfg.ReceiveBlockBytes,
				Open: func(tb testing.TB, n int) []transport.Transport {
					trs := make([]transport.Transport, n)
					for i := range trs {
						tr, err := Open(v.cfg)
						require.NoError(tb, err)
						trs[i] = tr
					}
					return trs
				},
				Check: func(tb testing.TB, trs []transport.Transport) {
					for _, tr := range trs {
						require.Empty(tb, tr.(*Transport).connecting)
					}
				},
			})
		})
	}
}
