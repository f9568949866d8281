package sim_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// BenchmarkEcho is one message there and back, on a perfect network and on one with faults.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{64, 16 << 10} {
		for _, faults := range []string{"none", "mild"} {
			b.Run(fmt.Sprintf("size=%d/faults=%s", size, faults), func(b *testing.B) {
				cfg := sim.Config{}
				if faults == "mild" {
					cfg.Faults = sim.Mild()
				}
				w := sim.NewWorld(1, cfg)
				client, server := open(b, w), open(b, w)
				c, s := connect(w, client, server)
				message := wrap(bytesOf(size))
				hop := func(from, to *node, out, in transport.Handle) {
					delete(to.done, 1000)
					clear(to.data)
					to.Submit(transport.Op{Kind: transport.Recv, Handle: in, Token: 1000, Limit: size})
					from.Submit(transport.Op{Kind: transport.Send, Handle: out, Token: 1001, Bufs: message})
					for to.done[1000].Token == 0 {
						from.wait(-1)
						to.wait(-1)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					hop(client, server, c, s)
					hop(server, client, s, c)
				}
				require.NoError(b, w.Check())
			})
		}
	}
}
