package lb

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/xdp/internal/packet"
)

// with returns what change makes of a frame.
func with(f packet.Frame, change func(*packet.Frame)) packet.Frame {
	change(&f)
	return f
}

// patched overwrites bytes of a frame.
func patched(f packet.Frame, at int, bytes ...byte) []byte {
	b := f.Bytes()
	copy(b[at:], bytes)
	return b
}

func cut(f packet.Frame, length int) []byte { return f.Bytes()[:length] }

// quoting is an ICMP error from a router about what a server of the VIP has sent to a client.
func quoting(v VIP, port uint16, kind, code uint8, quoted int) packet.Frame {
	sent := client(v, port, packet.ACK)
	sent.Src, sent.Dst, sent.SrcPort, sent.DstPort = sent.Dst, sent.Src, sent.DstPort, sent.SrcPort
	f := client(v, 0, 0)
	f.Proto, f.Type, f.Code, f.Src = packet.ICMP, kind, code, addr("203.0.113.254")
	if v.Addr.Is6() {
		f.Proto, f.Src = packet.ICMP6, addr("2001:db8:7::fe")
	}
	f.Payload = sent.IP()[:quoted]
	return f
}

func TestEachPacketHasItsReason(t *testing.T) {
	b := bench(t, Config{})
	serve(t, b, 3, web4, web6, dns4, dns6, any4)
	empty := VIP{addr("192.0.2.3"), 80, TCP}
	require.NoError(t, b.AddVIP(empty, Health{}))
	syn4, syn6 := client(web4, 1, packet.SYN), client(web6, 1, packet.SYN)
	udp4, udp6 := client(dns4, 1, 0), client(dns6, 1, 0)
	port := func(p uint16) func(*packet.Frame) { return func(f *packet.Frame) { f.DstPort = p } }
	ttl := func(n uint8) func(*packet.Frame) { return func(f *packet.Frame) { f.TTL = n } }
	tags := func(all ...uint16) func(*packet.Frame) { return func(f *packet.Frame) { f.VLANs = all } }
	options := func(n int) func(*packet.Frame) {
		return func(f *packet.Frame) { f.Options = bytes.Repeat([]byte{1}, n) }
	}
	proto := func(n uint8) func(*packet.Frame) { return func(f *packet.Frame) { f.Proto = n } }
	fragment := func(n uint16) func(*packet.Frame) { return func(f *packet.Frame) { f.Fragment = n } }
	other := func(f *packet.Frame) { f.Dst = addr("192.0.2.9") }
	mac := func(m [6]byte) func(*packet.Frame) { return func(f *packet.Frame) { f.DstMAC = m } }
	// An extension header of 8 bytes; a fragment header's offset and flags are in its third and fourth.
	headers := func(numbers ...uint8) func(*packet.Frame) {
		return func(f *packet.Frame) {
			for _, n := range numbers {
				f.Extensions = append(f.Extensions, packet.Extension{Number: n, Body: make([]byte, 7)})
			}
		}
	}
	fragment6 := func(offset byte) func(*packet.Frame) {
		return func(f *packet.Frame) {
			f.Extensions = []packet.Extension{{Number: 44, Body: []byte{0, 0, offset, 0, 0, 0, 7}}}
		}
	}
	ah := func(f *packet.Frame) {
		f.Extensions = []packet.Extension{{Number: 51, Body: append([]byte{4}, make([]byte, 22)...)}}
	}
	arp := patched(syn4, 12, 8, 6)
	for _, tc := range []struct {
		name  string
		frame []byte
		want  Reason
	}{
		{"a SYN", syn4.Bytes(), Placed},
		{"a SYN, IPv6", syn6.Bytes(), Placed},
		{"a datagram", udp4.Bytes(), Placed},
		{"the next datagram", udp4.Bytes(), Known},
		{"a datagram, IPv6", udp6.Bytes(), Placed},
		{"the next datagram, IPv6", udp6.Bytes(), Known},
		{"the ACK behind the SYN", client(web4, 1, packet.ACK).Bytes(), Known},
		{"the ACK behind the SYN, IPv6", client(web6, 1, packet.ACK).Bytes(), Known},
		{"a SYN again: a new connection", syn4.Bytes(), Placed},
		{"SYN and ACK begin nothing", client(web4, 1, packet.SYN|packet.ACK).Bytes(), Known},
		{"a RST of nobody", client(web4, 2, packet.RST).Bytes(), Placed},
		{"again: it was not remembered", client(web4, 2, packet.RST).Bytes(), Placed},
		{"a FIN of nobody, again", client(web4, 2, packet.FIN|packet.ACK).Bytes(), Placed},
		{"a TCP packet without flags", client(web4, 2, 0).Bytes(), Placed},
		{"any port", with(client(any4, 1, packet.SYN), port(4711)).Bytes(), Placed},
		{"any port, of the other protocol", with(client(any4, 1, 0), proto(packet.UDP)).Bytes(), NoVIP},

		{"another port", with(syn4, port(81)).Bytes(), NoVIP},
		{"port 0", with(syn4, port(0)).Bytes(), NoVIP},
		{"another protocol on the port", with(udp4, port(80)).Bytes(), NoVIP},
		{"another address", with(syn4, other).Bytes(), NoVIP},
		{"to another MAC", with(syn4, mac([6]byte{2, 0, 0, 0, 0, 1})).Bytes(), NotOurs},
		{"broadcast", with(syn4, mac([6]byte{255, 255, 255, 255, 255, 255})).Bytes(), NotOurs},
		{"ARP", arp, NotIP},
		{"IGMP", with(syn4, proto(2)).Bytes(), Transport},
		{"IPv4 in IPv4", with(syn4, proto(4)).Bytes(), Transport},
		{"ICMP in IPv6", with(syn6, proto(packet.ICMP)).Bytes(), Transport},
		{"ICMPv6 in IPv4", with(syn4, proto(packet.ICMP6)).Bytes(), Transport},

		{"a tag", with(syn4, tags(7)).Bytes(), Placed},
		{"a tag, IPv6", with(syn6, tags(7)).Bytes(), Placed},
		{"two tags", with(syn4, tags(7, 8)).Bytes(), VLANs},
		{"a tag, ARP", patched(with(syn4, tags(7)), 16, 8, 6), NotIP},
		{"a tag cut off", patched(packet.Frame{DstMAC: ownMAC, VLANs: []uint16{7}, Src: syn4.Src, Dst: syn4.Dst}, 16)[:17], Runt},

		{"no IPv4 header", cut(syn4, 33), Runt},
		{"no IPv6 header", cut(syn6, 53), Runt},
		{"Ethernet alone", cut(syn4, 14), Runt},
		{"a TCP header but for a byte", cut(syn4, 53), Cut},
		{"a TCP header", cut(syn4, 54), Placed},
		{"a TCP header in IPv6 but for a byte", cut(syn6, 73), Cut},
		{"a TCP header in IPv6", cut(syn6, 74), Placed},
		{"a UDP header but for a byte", cut(udp4, 41), Cut},
		{"a UDP header", cut(udp4, 42), Known},
		{"cut, to another address", cut(with(syn4, other), 53), NoVIP},

		{"version 6 in IPv4", patched(syn4, 14, 0x65), Version},
		{"version 4 in IPv6", patched(syn6, 14, 0x40), Version},
		{"a header of 16 bytes", patched(syn4, 14, 0x44), Version},
		{"options", with(syn4, options(4)).Bytes(), Placed},
		{"all options there can be", with(syn4, options(40)).Bytes(), Placed},
		{"options that are not there", patched(syn4, 14, 0x4f), Length},
		{"an IPv4 length without room for TCP", patched(syn4, 16, 0, 39), Length},
		{"an IPv4 length with room for TCP", patched(syn4, 16, 0, 40), Placed},
		{"an IPv6 length without room for TCP", patched(syn6, 18, 0, 19), Length},
		{"an IPv6 length with room for TCP", patched(syn6, 18, 0, 20), Placed},
		{"a UDP length without room", patched(udp4, 16, 0, 27), Length},
		{"an IPv4 length beyond the frame", patched(syn4, 16, 5, 0xdc), Placed},
		{"a jumbogram", patched(syn6, 18, 0, 0), Length},

		{"TTL 1", with(syn4, ttl(1)).Bytes(), Placed},
		{"TTL 0", with(syn4, ttl(packet.NoTTL)).Bytes(), TTL},
		{"hop limit 1", with(syn6, ttl(1)).Bytes(), Placed},
		{"hop limit 0", with(syn6, ttl(packet.NoTTL)).Bytes(), TTL},

		{"don't fragment", with(syn4, fragment(0x4000)).Bytes(), Placed},
		{"the first fragment", with(syn4, fragment(0x2000)).Bytes(), Fragment},
		{"a later fragment", with(syn4, fragment(185)).Bytes(), Fragment},
		{"a fragment to another address", with(with(syn4, fragment(185)), other).Bytes(), NoVIP},
		{"the first fragment, IPv6", with(syn6, fragment6(1)).Bytes(), Fragment},
		{"a later fragment, IPv6", with(syn6, fragment6(8)).Bytes(), Fragment},
		{"a fragment that is all, IPv6", with(syn6, fragment6(0)).Bytes(), Placed},

		{"four extension headers", with(syn6, headers(0, 43, 60, 60)).Bytes(), Placed},
		{"five extension headers", with(syn6, headers(0, 43, 60, 60, 60)).Bytes(), Options},
		{"an authentication header", with(syn6, ah).Bytes(), Placed},
		{"no next header", with(syn6, headers(59)).Bytes(), Transport},
		{"an extension header beyond the frame", cut(with(syn6, headers(0)), 60), Cut},
		{"an extension header longer than the packet", patched(with(syn6, headers(0)), 55, 255), Length},

		{"nobody serves", client(empty, 1, packet.SYN).Bytes(), NoServer},

		{"a ping", quoting(web4, 1, 8, 0, 0).Bytes(), ICMPOther},
		{"a ping, IPv6", quoting(web6, 1, 128, 0, 0).Bytes(), ICMPOther},
		{"neighbour solicitation", quoting(web6, 1, 135, 0, 0).Bytes(), ICMPOther},
		{"too big", quoting(web4, 1, 3, 4, 28).Bytes(), ICMPError},
		{"too big, IPv6", quoting(web6, 1, 2, 0, 60).Bytes(), ICMPError},
		{"port unreachable of a datagram", quoting(dns4, 1, 3, 3, 28).Bytes(), ICMPError},
		{"time exceeded", quoting(web4, 1, 11, 0, 40).Bytes(), ICMPError},
		{"quoted ports but for a byte", quoting(web4, 1, 3, 4, 27).Bytes(), Quote},
		{"quoted ports but for a byte, IPv6", quoting(web6, 1, 2, 0, 47).Bytes(), Quote},
		{"quotes what another has sent", patched(quoting(web4, 1, 3, 4, 28), 14+20+8+12, 9), Quote},
		{"quotes a port that is no VIP's", patched(quoting(web4, 1, 3, 4, 28), 14+20+8+20, 9), NoVIP},
		{"quotes nothing, to another address", with(quoting(web4, 1, 3, 4, 0), other).Bytes(), NoVIP},
		{"an ICMP header but for a byte", cut(quoting(web4, 1, 3, 4, 0), 41), Cut},
	} {
		got, _ := reasonOf(t, b, tc.frame)
		assert.Equal(t, tc.want.String(), got.String(), tc.name)
	}
}

func TestOnlyTheMACsOfAPacketChange(t *testing.T) {
	b := bench(t, Config{})
	serve(t, b, 1, web4, web6, dns4, dns6)
	for _, v := range []VIP{web4, web6, dns4, dns6} {
		for _, tags := range [][]uint16{nil, {0x6007}} {
			f := with(client(v, 1, packet.SYN), func(f *packet.Frame) { f.VLANs = tags })
			want := with(f, func(f *packet.Frame) { f.DstMAC, f.SrcMAC = [6]byte(macOf(0)), ownMAC })
			action, out := run(t, b, f.Bytes())
			assert.EqualValues(t, tx, action)
			assert.Equal(t, want.Bytes(), out, "%v with tags %x", v, tags)
		}
	}
}

// The program can't read outside of a packet: the verifier sees to that. Here it has to come to the same end for the
// same bytes, and to send on what it got.
func TestRandomPackets(t *testing.T) {
	vips := []VIP{web4, web6, dns4, dns6, any4}
	b := bench(t, Config{FlowsPerSecond: -1})
	serve(t, b, 5, vips...)
	tunnels := bench(t, Config{TunnelSource4: addr("198.51.100.250"), FlowsPerSecond: -1})
	for _, v := range vips {
		require.NoError(t, tunnels.AddVIP(v, Health{}))
		require.NoError(t, tunnels.AddServer(v, Server{Addr: addr("198.51.100.9"), Tunnel: true}))
	}
	require.NoError(t, tunnels.SetMAC(addr("198.51.100.9"), macOf(9)))
	random := rand.New(rand.NewPCG(5, 6))
	models := []packet.Frame{
		client(web4, 1, packet.SYN), client(web6, 2, packet.ACK), client(dns4, 3, 0), client(dns6, 4, 0),
		quoting(web4, 1, 3, 4, 40), quoting(web6, 1, 2, 0, 60), with(client(web6, 1, 0), func(f *packet.Frame) {
			f.Extensions = []packet.Extension{{Number: 0, Body: make([]byte, 7)}, {Number: 51, Body: make([]byte, 7)}}
		}),
	}
	sent, decoded := 0, 0
	for length := 14; length <= 1514; length++ {
		frame := make([]byte, length)
		for i := range frame {
			frame[i] = byte(random.Uint32())
		}
		// A random frame is never for a VIP: put a model's beginning there, with some bytes changed.
		copy(frame, models[length%len(models)].Bytes())
		for range random.IntN(3) {
			frame[12+random.IntN(min(length-12, 60))] = byte(random.Uint32())
		}
		reason, out := reasonOf(t, b, frame)
		again, _ := reasonOf(t, b, frame)
		require.Equal(t, reason, again, "%x", frame)
		if reason.Verdict() == Sent {
			sent++
			require.Equal(t, frame[12:], out[12:], "%x", frame)
			require.Equal(t, ownMAC[:], out[6:12])
			require.Equal(t, []byte(macOf(0))[:4], out[:4])
		} else {
			require.Equal(t, frame, out)
		}
		tunnelled, out := reasonOf(t, tunnels, frame)
		if tunnelled.Verdict() != Sent {
			require.Contains(t, []Reason{reason, TooBig}, tunnelled)
			require.Equal(t, frame, out)
			continue
		}
		require.Equal(t, reason, tunnelled)
		require.Len(t, out, length+20, "%x", frame)
		require.Equal(t, frame[18:], out[38:], "%x", frame) // a tag would be in front of the outer header
		require.Equal(t, ownMAC[:], out[6:12])
		if d, err := packet.Decode(out); err == nil { // what says to be longer than it is stays so
			require.Equal(t, addr("198.51.100.9"), d.Dst)
			decoded++
		}
	}
	assert.Greater(t, decoded, 300)
	assert.Greater(t, sent, 300)
}
