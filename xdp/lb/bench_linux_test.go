package lb

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp"
	"github.com/weirnet/weir/xdp/internal/packet"
)

// Each case is measured beside the floor, a program that does nothing but send back, because the machine drifts by
// more than what is looked for. A run repeats one packet: a new destination MAC does not keep it from being balanced
// again only because the servers' is the balancer's own.
func BenchmarkPerPacket(b *testing.B) {
	testenv.Require(b, "xdp", xdp.Check())
	var floor struct {
		Program *ebpf.Program `ebpf:"floor_tx"`
	}
	require.NoError(b, loadBalancerObjects(&floor, nil))
	defer floor.Program.Close()
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
		{"SYN, limited, IPv4", Config{}, web4, packet.SYN},
		{"SYN, limited, IPv6", Config{}, web6, packet.SYN},
		{"SYN, without limit, IPv4", Config{FlowsPerSecond: 1_000_000_000}, web4, packet.SYN},
		{"not a VIP", Config{}, VIP{web4.Addr, 81, TCP}, packet.ACK},
	} {
		b.Run(tc.name, func(b *testing.B) {
			tc.cfg.RingSize, tc.cfg.MaxFlows = 65536, 1<<18
			l := bench(b, tc.cfg)
			for _, v := range []VIP{web4, web6} {
				require.NoError(b, l.AddVIP(v, Health{}))
				require.NoError(b, l.AddServer(v, Server{Addr: serverOf(v, 0)}))
				require.NoError(b, l.SetMAC(serverOf(v, 0), ownMAC[:]))
			}
			frame := client(tc.vip, 1, tc.flags).Bytes()
			measure := func(p *ebpf.Program) float64 {
				_, each, err := p.Benchmark(frame, 100_000, nil)
				require.NoError(b, err)
				return float64(each.Nanoseconds())
			}
			var own, least float64
			n := 0.0
			for b.Loop() {
				own, least, n = own+measure(l.program), least+measure(floor.Program), n+1
			}
			b.ReportMetric(own/n, "ns/packet")
			b.ReportMetric(least/n, "floor-ns/packet")
			b.ReportMetric(0, "ns/op")
		})
	}
}
