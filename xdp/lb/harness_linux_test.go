package lb

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp"
	"github.com/weirnet/weir/xdp/internal/packet"
)

const (
	pass = 2
	drop = 1
	tx   = 3
)

var (
	addr   = netip.MustParseAddr
	ownMAC = [6]byte{2}
	web4   = VIP{addr("192.0.2.1"), 80, TCP}
	web6   = VIP{addr("2001:db8::1"), 80, TCP}
	dns4   = VIP{addr("192.0.2.1"), 53, UDP}
	dns6   = VIP{addr("2001:db8::1"), 53, UDP}
	any4   = VIP{addr("192.0.2.2"), 0, TCP}
)

// bench is a balancer without an interface.
func bench(t testing.TB, cfg Config) *Balancer {
	t.Helper()
	testenv.Require(t, "xdp", xdp.Check())
	cfg.Interface = testInterface
	if cfg.MaxFlows == 0 {
		cfg.MaxFlows = 1000 * ebpf.MustPossibleCPU() // a test may run on one
	}
	if cfg.RingSize == 0 {
		cfg.RingSize = 4096
	}
	b, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

// macOf is the MAC of the i-th server.
func macOf(i int) net.HardwareAddr { return net.HardwareAddr{2, 0xff, 0, 0, byte(i >> 8), byte(i)} }

// serverOf is the address of the i-th server of a VIP.
func serverOf(v VIP, i int) netip.Addr {
	if v.Addr.Is4() {
		return addr(fmt.Sprintf("198.51.%d.%d", 100+i/250, 1+i%250))
	}
	return addr(fmt.Sprintf("2001:db8:5::%x", 1+i))
}

// serve adds VIPs with so many servers each, whose MACs are known.
func serve(t testing.TB, b *Balancer, servers int, vips ...VIP) {
	t.Helper()
	for _, v := range vips {
		require.NoError(t, b.AddVIP(v, Health{}))
		for i := range servers {
			require.NoError(t, b.AddServer(v, Server{Addr: serverOf(v, i)}))
			require.NoError(t, b.SetMAC(serverOf(v, i), macOf(i)))
		}
	}
}

// client is a frame of a TCP connection, or of a UDP flow, to a VIP.
func client(v VIP, port uint16, flags uint8) packet.Frame {
	f := packet.Frame{
		DstMAC: ownMAC, SrcMAC: [6]byte{2, 9, 9, 9, 9, 9}, Dst: v.Addr, DstPort: v.Port, SrcPort: port, Proto: uint8(v.Protocol),
		Flags: flags, Src: addr("203.0.113.7"), Payload: []byte("payload"),
	}
	if v.Addr.Is6() {
		f.Src = addr("2001:db8:7::7")
	}
	return f
}

func run(t testing.TB, b *Balancer, frame []byte) (uint32, []byte) {
	t.Helper()
	action, out, err := b.program.Test(frame)
	require.NoError(t, err)
	return action, out
}

// reasonOf runs a frame and returns the reason that was counted, and what came out.
func reasonOf(t testing.TB, b *Balancer, frame []byte) (Reason, []byte) {
	t.Helper()
	before, err := b.Stats()
	require.NoError(t, err)
	action, out := run(t, b, frame)
	after, err := b.Stats()
	require.NoError(t, err)
	counted := reasons
	for r, n := range after.Reasons {
		if n != before.Reasons[r] {
			require.Equal(t, reasons, counted, "two reasons for a packet")
			require.Equal(t, before.Reasons[r]+1, n)
			counted = r
		}
	}
	require.NotEqual(t, reasons, counted, "no reason for a packet")
	verdicts := map[Verdict]uint32{Sent: tx, Passed: pass, Dropped: drop}
	require.Equal(t, verdicts[counted.Verdict()], action, counted.String())
	return counted, out
}

// placeOf runs a frame that has to be sent and returns the number of the server it went to.
func placeOf(t testing.TB, b *Balancer, frame []byte) int {
	t.Helper()
	action, out := run(t, b, frame)
	require.EqualValues(t, tx, action)
	require.Equal(t, []byte(macOf(0))[:4], out[:4])
	return int(out[4])<<8 | int(out[5])
}

// entries counts what a map has.
func entries(t testing.TB, m *ebpf.Map) (n int) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	all := m.Iterate()
	for all.Next(&key, &value) {
		n++
	}
	require.NoError(t, all.Err())
	return n
}
