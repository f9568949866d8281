package lb

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp"
	"github.com/weirnet/weir/xdp/internal/measure"
	"github.com/weirnet/weir/xdp/internal/packet"
)

// Each case is measured in turns with the floor, a program that does nothing but send back, because the machine
// drifts by more than what is looked for. Both numbers have the wrapper in them that restores the frame.
func BenchmarkPerPacket(b *testing.B) {
	testenv.Require(b, "xdp", xdp.Check())
	for _, tc := range []struct {
		name  string
		cfg   Config
		vip   VIP
		flags uint8
	}{
		{"no table, IPv4", Config{FlowsPerSecond: -1}, web4, packet.ACK},
		{"no table, IPv6", Config{FlowsPerSecond: -1}, web6, packet.ACK},
		{"established, IPv4", Config{}, web4, packet.ACK},
		{"established, IPv6", Config{}, web6, packet.ACK},
		{"SYN, IPv4", Config{}, web4, packet.SYN},
		{"SYN, IPv6", Config{}, web6, packet.SYN},
		{"SYN without limit, IPv4", Config{FlowsPerSecond: 1_000_000_000}, web4, packet.SYN},
		{"not a VIP, IPv4", Config{}, VIP{web4.Addr, 81, TCP}, packet.ACK},
	} {
		for _, clients := range []uint64{1, 1 << 16, 1 << 32} {
			b.Run(fmt.Sprintf("%s, clients %d", tc.name, clients), func(b *testing.B) {
				tc.cfg.RingSize, tc.cfg.MaxFlows = 65536, 1<<18
				l := bench(b, tc.cfg)
				serve(b, l, 10, web4, web6)
				m, err := measure.New(ownMAC, clients)
				require.NoError(b, err)
				defer m.Close()
				frame := client(tc.vip, 1, tc.flags).Bytes()
				_, _, err = m.Run(l.program, frame, 1, 300_000) // the table fills
				require.NoError(b, err)
				own, floor, n := 0.0, 0.0, 0.0
				for b.Loop() {
					o, f, err := m.Run(l.program, frame, 1, 10_000)
					require.NoError(b, err)
					own, floor, n = own+float64(o.Nanoseconds()), floor+float64(f.Nanoseconds()), n+1
				}
				b.ReportMetric(own/n, "ns/packet")
				b.ReportMetric(floor/n, "floor-ns/packet")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
