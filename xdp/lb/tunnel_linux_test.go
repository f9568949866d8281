package lb

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
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

// What a packet says of its length ends in the outer header, whatever the frame's length is.
func TestAPacketThatSaysToBeTooBigIsDropped(t *testing.T) {
	b := bench(t, Config{TunnelSource4: addr("198.51.100.250")})
	require.NoError(t, b.AddVIP(dns4, Health{}))
	require.NoError(t, b.AddServer(dns4, Server{Addr: addr("198.51.100.9"), Tunnel: true}))
	require.NoError(t, b.SetMAC(addr("198.51.100.9"), macOf(3)))
	for length, want := range map[int]Reason{1479: Placed, 1480: Placed, 1481: TooBig, 65535: TooBig} {
		reason, _ := reasonOf(t, b, patched(client(dns4, uint16(length), 0), 16, byte(length>>8), byte(length)))
		assert.Equal(t, want, reason, "%d bytes", length)
	}
}

// The sum of a header's words is folded twice: the first time may carry. A server's address is chosen with which it
// does.
func TestTheOuterChecksumCarriesTwice(t *testing.T) {
	b := bench(t, Config{TunnelSource4: addr("198.51.100.250")})
	require.NoError(t, b.AddVIP(dns4, Health{}))
	f := client(dns4, 1, 0)
	sum := uint32(0x45) + uint32(bits.ReverseBytes16(uint16(20+len(f.IP())))) + 0x40 + 64 + 4<<8
	for _, a := range [][]byte{addr("198.51.100.250").AsSlice(), {198, 51, 0, 0}} {
		sum += uint32(binary.LittleEndian.Uint16(a)) + uint32(binary.LittleEndian.Uint16(a[2:]))
	}
	last := uint16(0xffff - sum&0xffff) // so that the low half is all ones, and there is a high half
	server := netip.AddrFrom4([4]byte{198, 51, byte(last), byte(last >> 8)})
	require.Positive(t, sum>>16)
	require.NoError(t, b.AddServer(dns4, Server{Addr: server, Tunnel: true}))
	require.NoError(t, b.SetMAC(server, macOf(3)))
	_, out := run(t, b, f.Bytes())
	_, err := packet.Decode(out)
	require.NoError(t, err)
}
