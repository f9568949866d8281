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
				serve(b, l, 2, web4, web6)
				m, err := measure.New(l.program, ownMAC, clients)
				require.NoError(b, err)
				defer m.Close()
				frame := client(tc.vip, 1, tc.flags).Bytes()
				_, _, err = m.Run(frame, min(300_000, 10*b.N)) // the table fills
				require.NoError(b, err)
				rounds := min(10, 1+b.N/100_000) // the kernel waits for a while in front of each
				own, floor := 0.0, 0.0
				for range rounds {
					o, f, err := m.Run(frame, max(1, b.N/rounds))
					require.NoError(b, err)
					own, floor = own+float64(o.Nanoseconds()), floor+float64(f.Nanoseconds())
				}
				b.ReportMetric(own/float64(rounds), "ns/packet")
				b.ReportMetric(floor/float64(rounds), "floor-ns/packet")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
