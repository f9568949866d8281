package lb

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/xdp/internal/packet"
)

func TestConfigurationsThatMeanNothing(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, ""},
		{Config{MaxVIPs: 1, MaxServers: 1, RingSize: 256, MaxFlows: 1, FlowsPerSecond: -1, Rise: 1, Fall: 1}, ""},
		{Config{MaxVIPs: 4096, MaxServers: 65534, RingSize: 65536, MaxFlows: 1 << 26, FlowsPerSecond: 1e9, Rise: 1000, Fall: 1000}, ""},
		{Config{MaxVIPs: -1}, "MaxVIPs is -1, want 1 to 4096"},
		{Config{MaxVIPs: 4097}, "MaxVIPs is 4097"},
		{Config{MaxServers: 65535}, "MaxServers is 65535, want 1 to 65534"},
		{Config{RingSize: 255}, "RingSize is 255"},
		{Config{RingSize: 257}, "RingSize is 257, want a power of two"},
		{Config{RingSize: 65537}, "RingSize is 65537"},
		{Config{MaxFlows: 1<<26 + 1}, "MaxFlows is 67108865"},
		{Config{FlowsPerSecond: -2}, "FlowsPerSecond is -2"},
		{Config{FlowsPerSecond: 1e9 + 1}, "FlowsPerSecond is 1000000001"},
		{Config{Rise: 1001}, "Rise is 1001"},
		{Config{Fall: -1}, "Fall is -1"},
		{Config{CheckInterval: -1}, "CheckInterval is -1ns"},
		{Config{CheckTimeout: -time.Second}, "CheckTimeout is -1s"},
		{Config{TunnelSource4: addr("::1")}, "tunnels from ::1"},
		{Config{TunnelSource6: addr("10.0.0.1")}, "tunnels from"},
	} {
		got, err := tc.cfg.defaults()
		if tc.want == "" {
			assert.NoError(t, err)
			again, err := got.defaults()
			assert.NoError(t, err)
			again.Dial, got.Dial = nil, nil
			assert.Equal(t, got, again, "defaults are valid themselves")
			continue
		}
		assert.ErrorIs(t, err, ErrConfig, "%+v", tc.cfg)
		assert.ErrorContains(t, err, tc.want)
	}
}

func TestVIPsAndServersAreBounded(t *testing.T) {
	b := bench(t, Config{MaxVIPs: 2, MaxServers: 3, RingSize: 256})
	require.NoError(t, b.AddVIP(web4, Health{}))
	require.NoError(t, b.AddVIP(dns4, Health{}))
	assert.ErrorIs(t, b.AddVIP(web6, Health{}), ErrFull)
	for i := range 3 {
		require.NoError(t, b.AddServer([]VIP{web4, dns4}[i%2], Server{Addr: serverOf(web4, i)}))
	}
	err := b.AddServer(web4, Server{Addr: serverOf(web4, 3)})
	assert.ErrorIs(t, err, ErrFull)
	assert.ErrorContains(t, err, "198.51.100.4 of VIP tcp/192.0.2.1:80")
	require.NoError(t, b.RemoveServer(dns4, serverOf(web4, 1)))
	require.NoError(t, b.AddServer(web4, Server{Addr: serverOf(web4, 3)}), "the number is free again")
	require.NoError(t, b.RemoveVIP(web4))
	require.NoError(t, b.AddVIP(web6, Health{}), "the slot is free again")
	for i := range 3 {
		require.NoError(t, b.AddServer(web6, Server{Addr: serverOf(web6, i)}), "and so are the numbers of its servers")
	}
}

func TestMistakesAreNamed(t *testing.T) {
	b := bench(t, Config{TunnelSource4: addr("198.51.100.250")})
	serve(t, b, 1, web4)
	first := serverOf(web4, 0)
	for _, tc := range []struct {
		err  error
		is   error
		want string
	}{
		{b.AddVIP(VIP{}, Health{}), ErrConfig, "VIP"},
		{b.AddVIP(VIP{addr("192.0.2.1"), 80, 1}, Health{}), ErrConfig, "Protocol(1)/192.0.2.1:80"},
		{b.AddVIP(VIP{addr("::ffff:192.0.2.1"), 80, TCP}, Health{}), ErrConfig, "::ffff:192.0.2.1"},
		{b.AddVIP(VIP{addr("fe80::1%eth0"), 80, TCP}, Health{}), ErrConfig, "fe80::1%eth0"},
		{b.AddVIP(web4, Health{}), ErrExists, "tcp/192.0.2.1:80"},
		{b.AddVIP(dns4, Health{Kind: 9}), ErrConfig, "check 9"},
		{b.AddVIP(dns4, Health{Path: "x"}), ErrConfig, `path "x"`},
		{b.AddVIP(any4, Health{Kind: TCPCheck}), ErrConfig, "port 0 or that of tcp/192.0.2.2:0"},
		{b.SetHealth(dns4, Health{}), ErrNotFound, "udp/192.0.2.1:53"},
		{b.SetHealth(web4, Health{Kind: 4}), ErrConfig, "check 4"},
		{b.RemoveVIP(dns4), ErrNotFound, "udp/192.0.2.1:53"},
		{b.AddServer(web4, Server{}), ErrConfig, "invalid IP"},
		{b.AddServer(web4, Server{Addr: first, Weight: 1001}), ErrConfig, "weight 1001"},
		{b.AddServer(web4, Server{Addr: first}), ErrExists, "198.51.100.1"},
		{b.AddServer(dns4, Server{Addr: first}), ErrNotFound, "udp/192.0.2.1:53"},
		{b.AddServer(web4, Server{Addr: addr("2001:db8::9"), Tunnel: true}), ErrConfig, "without a source address"},
		{b.DrainServer(web4, addr("198.51.100.9")), ErrNotFound, "198.51.100.9"},
		{b.RemoveServer(web4, addr("198.51.100.9")), ErrNotFound, "198.51.100.9"},
		{b.SetHealthy(web4, addr("198.51.100.9"), true), ErrNotFound, "198.51.100.9"},
		{b.SetMAC(first, net.HardwareAddr{1}), ErrConfig, "MAC 01"},
	} {
		assert.ErrorIs(t, tc.err, tc.is)
		assert.ErrorContains(t, tc.err, tc.want)
	}
	assert.NoError(t, b.SetMAC(addr("198.51.100.9"), macOf(1)), "a neighbour that is no server")
	_, err := New(Config{Interface: 1 << 30})
	assert.ErrorContains(t, err, "interface 1073741824")
}

func TestWhatIsCounted(t *testing.T) {
	b := bench(t, Config{})
	serve(t, b, 1, web4, dns4)
	f := client(web4, 1, packet.SYN)
	run(t, b, f.Bytes())
	f.Flags = packet.ACK
	run(t, b, f.Bytes())
	run(t, b, f.Bytes())
	stats, err := b.Stats()
	require.NoError(t, err)
	want := Counters{Packets: 3, Bytes: uint64(3 * len(f.IP())), Placed: 1}
	for _, v := range stats.VIPs {
		expected := Counters{}
		if v.VIP == web4 {
			expected = want
		}
		assert.Equal(t, expected, v.Counters, "%v", v.VIP)
		require.Len(t, v.Servers, 1)
		assert.Equal(t, expected, v.Servers[0].Counters)
	}
	assert.Equal(t, map[Reason]uint64{Placed: 1, Known: 2}, stats.Reasons)
	require.NoError(t, b.RemoveVIP(web4))
	reason, _ := reasonOf(t, b, f.Bytes())
	assert.Equal(t, NoVIP, reason)
	serve(t, b, 1, web4)
	stats, err = b.Stats()
	require.NoError(t, err)
	for _, v := range stats.VIPs {
		assert.Zero(t, v.Counters, "a VIP begins anew")
		assert.Zero(t, v.Servers[0].Counters)
	}
}
