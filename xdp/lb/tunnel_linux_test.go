package lb

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/xdp/internal/packet"
)

func TestATunnelCarriesThePacketAsItWas(t *testing.T) {
	source4, source6 := addr("198.51.100.250"), addr("2001:db8:5::fa")
	b := bench(t, Config{TunnelSource4: source4, TunnelSource6: source6})
	for _, v := range []VIP{web4, web6, dns4, dns6} {
		for _, server := range []string{"198.51.100.9", "2001:db8:5::9"} {
			for _, tags := range [][]uint16{nil, {7}} {
				require.NoError(t, b.AddVIP(v, Health{}))
				require.NoError(t, b.AddServer(v, Server{Addr: addr(server), Tunnel: true}))
				require.NoError(t, b.SetMAC(addr(server), macOf(3)))
				f := client(v, 1, packet.SYN)
				f.TOS, f.VLANs, f.TTL = 0xb9, tags, 3
				reason, out := reasonOf(t, b, f.Bytes())
				require.Equal(t, Placed, reason)
				d, err := packet.Decode(out)
				require.NoError(t, err)
				want := packet.Decoded{
					DstMAC: [6]byte(macOf(3)), SrcMAC: ownMAC, VLAN: -1, Src: source6, Dst: addr(server), Proto: 4, TOS: 0xb9, TTL: 64,
					Inner: f.IP(),
				}
				if addr(server).Is4() {
					want.Src = source4
				}
				if v.Addr.Is6() {
					want.Proto = 41
				}
				if tags != nil {
					want.VLAN = int(tags[0])
				}
				assert.Equal(t, want, d, "%v through %s with tags %v", v, server, tags)
				require.NoError(t, b.RemoveVIP(v))
			}
		}
	}
}

func TestWhatDoesNotFitIntoATunnelIsDropped(t *testing.T) {
	b := bench(t, Config{TunnelSource4: addr("198.51.100.250"), TunnelSource6: addr("2001:db8:5::fa")})
	for _, tc := range []struct {
		vip      VIP
		server   string
		overhead int
	}{{dns4, "198.51.100.9", 20}, {dns6, "2001:db8:5::9", 40}} {
		require.NoError(t, b.AddVIP(tc.vip, Health{}))
		require.NoError(t, b.AddServer(tc.vip, Server{Addr: addr(tc.server), Tunnel: true}))
		require.NoError(t, b.SetMAC(addr(tc.server), macOf(3)))
		for more, sent := range map[int]bool{-1: true, 0: true, 1: false} {
			f := client(tc.vip, 1, 0)
			f.Payload = nil
			f.Payload = make([]byte, 1500-tc.overhead-len(f.IP())+more)
			reason, _ := reasonOf(t, b, f.Bytes())
			assert.Equal(t, sent, reason.Verdict() == Sent, "%v with %d bytes more than fit: %v", tc.vip, more, reason)
		}
	}
	stats, err := b.Stats()
	require.NoError(t, err)
	assert.EqualValues(t, 2, stats.Reasons[TooBig])
}

// Frames of more than one buffer have the headers in the first.
func TestJumboFramesAreBalanced(t *testing.T) {
	b := bench(t, Config{})
	serve(t, b, 1, dns4)
	f := client(dns4, 1, 0)
	f.Payload = make([]byte, 8900)
	action, out := run(t, b, f.Bytes())
	assert.EqualValues(t, tx, action)
	f.DstMAC, f.SrcMAC = [6]byte(macOf(0)), ownMAC
	assert.Equal(t, f.Bytes(), out)
}
