package lb

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/netlab"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp/internal/packet"
)

// open opens so many connections and returns where each went.
func open(t *testing.T, b *Balancer, v VIP, n int) (places []int) { return openFrom(t, b, v, 1, n) }

// openFrom does it from a certain port on.
func openFrom(t *testing.T, b *Balancer, v VIP, port, n int) (places []int) {
	t.Helper()
	for i := range n {
		places = append(places, placeOf(t, b, client(v, uint16(port+i), packet.SYN).Bytes()))
	}
	return places
}

func TestADrainedServerKeepsItsConnectionsAndGetsNoOthers(t *testing.T) {
	for _, v := range []VIP{web4, web6, dns4, dns6} {
		b := bench(t, Config{})
		serve(t, b, 3, v)
		before := open(t, b, v, 200)
		require.NoError(t, b.DrainServer(v, serverOf(v, 1)))
		for i, place := range before {
			assert.Equal(t, place, placeOf(t, b, client(v, uint16(1+i), packet.ACK).Bytes()), "%v, connection %d", v, i)
		}
		for i := range 200 {
			assert.NotEqual(t, 1, placeOf(t, b, client(v, uint16(1001+i), packet.SYN).Bytes()), "%v", v)
		}
		require.NoError(t, b.AddServer(v, Server{Addr: serverOf(v, 1), Weight: 2}), "it takes part again")
		assert.Contains(t, open(t, b, VIP{v.Addr, v.Port, v.Protocol}, 50), 1)
	}
}

func TestWhatGoesToAServerThatIsGoneGoesToOthers(t *testing.T) {
	leave := map[string]func(*Balancer) error{
		"down":    func(b *Balancer) error { return b.SetHealthy(web4, serverOf(web4, 1), false) },
		"no MAC":  func(b *Balancer) error { return b.SetMAC(serverOf(web4, 1), nil) },
		"removed": func(b *Balancer) error { return b.RemoveServer(web4, serverOf(web4, 1)) },
		"replaced": func(b *Balancer) error { // by one that gets its number: the generations differ
			if err := b.RemoveServer(web4, serverOf(web4, 1)); err != nil {
				return err
			}
			if err := b.AddServer(web4, Server{Addr: serverOf(web4, 7), Weight: 1}); err != nil {
				return err
			}
			return b.SetMAC(serverOf(web4, 7), macOf(7))
		},
	}
	for name, f := range leave {
		b := bench(t, Config{})
		serve(t, b, 3, web4)
		before := open(t, b, web4, 100)
		require.NoError(t, f(b), name)
		moved := map[int]int{}
		for i, place := range before {
			now := placeOf(t, b, client(web4, uint16(1+i), packet.ACK).Bytes())
			if place != 1 {
				assert.Equal(t, place, now, "%s: connection %d of a server that stays", name, i)
			} else {
				moved[now]++
				assert.Equal(t, now, placeOf(t, b, client(web4, uint16(1+i), packet.ACK).Bytes()), "and stays there")
			}
		}
		assert.NotContains(t, moved, 1, name)
		assert.Greater(t, len(moved), 1, "%s: not all to one of the others", name)
	}
}

func TestAServersMACIsReplaced(t *testing.T) {
	b := bench(t, Config{})
	serve(t, b, 1, web4)
	require.Equal(t, 0, placeOf(t, b, client(web4, 1, packet.SYN).Bytes()))
	require.NoError(t, b.SetMAC(serverOf(web4, 0), macOf(9)))
	assert.Equal(t, 9, placeOf(t, b, client(web4, 1, packet.ACK).Bytes()), "of a connection that is known, too")
}

func TestICMPErrorsFollowTheConnection(t *testing.T) {
	for _, v := range []VIP{web4, web6, dns4, dns6} {
		b := bench(t, Config{})
		serve(t, b, 3, v)
		kind, code := uint8(3), uint8(4)
		if v.Addr.Is6() {
			kind, code = 2, 0
		}
		before := open(t, b, v, 100)
		require.NoError(t, b.DrainServer(v, serverOf(v, 1)))
		for i, place := range before {
			assert.Equal(t, place, placeOf(t, b, quoting(v, uint16(1+i), kind, code, 60).Bytes()), "%v, connection %d", v, i)
		}
		assert.Equal(t, 100, entries(t, b.maps.Flows), "errors begin no connection")
	}
}

func TestAFloodLeavesRoomForWhatIsEstablished(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	b := bench(t, Config{FlowsPerSecond: 1})
	serve(t, b, 3, web4)
	for i := range 1000 {
		placeOf(t, b, client(web4, uint16(i), packet.SYN).Bytes())
	}
	// One for each processor that the thread has been on, and for each second that it took.
	budget := func() int { return runtime.NumCPU() * (1 + int(time.Since(began)/time.Second)) }
	assert.LessOrEqual(t, entries(t, b.maps.Flows), budget(), "SYNs of a flood were inserted")
	syns := entries(t, b.maps.Flows)
	assert.Positive(t, syns)
	placeOf(t, b, client(web4, 2000, packet.ACK).Bytes())
	reason, _ := reasonOf(t, b, client(web4, 2000, packet.ACK).Bytes())
	assert.Equal(t, Known, reason, "what is established has a budget of its own")
}

func TestNoConnectionIsRememberedWithoutATable(t *testing.T) {
	b := bench(t, Config{FlowsPerSecond: -1})
	serve(t, b, 3, web4, dns4)
	open(t, b, web4, 10)
	open(t, b, dns4, 10)
	assert.Zero(t, entries(t, b.maps.Flows))
}

func TestTheTableOfConnectionsIsBounded(t *testing.T) {
	flows := 250 * ebpf.MustPossibleCPU()
	b := bench(t, Config{MaxFlows: flows - 1}) // rounded up
	serve(t, b, 3, web4)
	open(t, b, web4, 6*flows)
	assert.LessOrEqual(t, entries(t, b.maps.Flows), flows)
	assert.Positive(t, entries(t, b.maps.Flows))
}

// Katran's users saw 74 to 26 % with two servers; chi-square with one degree of freedom is above 10.83 once in a
// thousand.
func TestConnectionsAreSharedByWeight(t *testing.T) {
	for _, weights := range [][]uint16{{1, 1}, {1, 3}, {1, 10, 3}} {
		b := bench(t, Config{FlowsPerSecond: -1})
		require.NoError(t, b.AddVIP(web4, Health{}))
		total := 0
		for i, w := range weights {
			require.NoError(t, b.AddServer(web4, Server{Addr: serverOf(web4, i), Weight: w}))
			require.NoError(t, b.SetMAC(serverOf(web4, i), macOf(i)))
			total += int(w)
		}
		random := rand.New(rand.NewPCG(7, uint64(total)))
		const packets = 5000
		got := make([]float64, len(weights))
		for range packets {
			f := client(web4, uint16(random.Uint32()), packet.SYN)
			f.Src = addr("203.0.113.0").Next()
			got[placeOf(t, b, f.Bytes())]++
		}
		chi := 0.0
		for i, w := range weights {
			want := packets * float64(w) / float64(total)
			chi += (got[i] - want) * (got[i] - want) / want
		}
		assert.Less(t, chi, 16.3, "weights %v: %v", weights, got)
	}
}

func TestBalancersWithTheSameServersAgree(t *testing.T) {
	place := func(seed uint64, order ...int) (places []int) {
		b := bench(t, Config{HashSeed: seed, FlowsPerSecond: -1})
		require.NoError(t, b.AddVIP(web4, Health{}))
		for _, i := range order {
			require.NoError(t, b.AddServer(web4, Server{Addr: serverOf(web4, i)}))
			require.NoError(t, b.SetMAC(serverOf(web4, i), macOf(i)))
		}
		return open(t, b, web4, 200)
	}
	first := place(1, 0, 1, 2)
	assert.Equal(t, first, place(1, 2, 0, 1))
	assert.NotEqual(t, first, place(2, 0, 1, 2), "another seed")
}

func TestAPortsOwnVIPComesFirst(t *testing.T) {
	b := bench(t, Config{})
	serve(t, b, 1, any4)
	own := VIP{any4.Addr, 443, TCP}
	require.NoError(t, b.AddVIP(own, Health{}))
	require.NoError(t, b.AddServer(own, Server{Addr: serverOf(own, 5)}))
	require.NoError(t, b.SetMAC(serverOf(own, 5), macOf(5)))
	assert.Equal(t, 5, placeOf(t, b, client(own, 1, packet.SYN).Bytes()))
	assert.Equal(t, 0, placeOf(t, b, client(VIP{any4.Addr, 444, TCP}, 1, packet.SYN).Bytes()))
	require.NoError(t, b.RemoveVIP(own))
	assert.Equal(t, 0, placeOf(t, b, client(own, 1, packet.SYN).Bytes()), "the other one is left")
}

func TestReloadsAndSuccessorsKeepConnections(t *testing.T) {
	pins, closeFS, err := netlab.BPFFS()
	testenv.Require(t, "bpffs", err)
	defer func() { assert.NoError(t, closeFS()) }()
	pins = filepath.Join(pins, "lb")
	require.NoError(t, os.Mkdir(pins, 0o700))
	cfg := Config{PinPath: pins, MaxServers: 16, MaxVIPs: 8, MaxFlows: 1001*ebpf.MustPossibleCPU() - 1}
	b := bench(t, cfg)
	serve(t, b, 3, web4, web6)
	before := open(t, b, web4, 100)
	require.NoError(t, b.DrainServer(web4, serverOf(web4, 1)))
	require.NoError(t, b.SetHealthy(web4, serverOf(web4, 2), false))
	same := func(b *Balancer, what string) {
		for i, place := range before {
			now := placeOf(t, b, client(web4, uint16(1+i), packet.ACK).Bytes())
			if place != 2 {
				assert.Equal(t, place, now, "%s: connection %d", what, i)
			}
		}
	}
	require.NoError(t, b.Reload())
	same(b, "the same process")

	successor := bench(t, cfg)
	same(successor, "another process")
	stats, err := successor.Stats()
	require.NoError(t, err)
	states := map[string]bool{}
	for _, v := range stats.VIPs {
		for _, s := range v.Servers {
			states[v.String()+" "+s.Addr.String()+" "+s.State.String()] = s.Up
		}
	}
	assert.Equal(t, map[string]bool{
		"tcp/192.0.2.1:80 198.51.100.1 active": true, "tcp/192.0.2.1:80 198.51.100.2 draining": true,
		"tcp/192.0.2.1:80 198.51.100.3 active":      false,
		"tcp/[2001:db8::1]:80 2001:db8:5::1 active": true, "tcp/[2001:db8::1]:80 2001:db8:5::2 active": true,
		"tcp/[2001:db8::1]:80 2001:db8:5::3 active": true,
	}, states)
	assert.ErrorIs(t, successor.AddVIP(web4, Health{}), ErrExists)
	require.NoError(t, successor.SetMAC(serverOf(web4, 2), macOf(2)))
	assert.NotContains(t, openFrom(t, successor, web4, 5000, 50), 2, "it is still down")
	require.NoError(t, successor.SetHealth(web4, Health{}))
	assert.Contains(t, openFrom(t, successor, web4, 5000, 50), 2, "without a check it is up")
	require.NoError(t, successor.SetHealthy(web4, serverOf(web4, 2), false))
	require.NoError(t, successor.AddServer(web4, Server{Addr: serverOf(web4, 9)}), "a number that is free")
	require.NoError(t, successor.SetMAC(serverOf(web4, 9), macOf(9)))
	same(successor, "with another server")
	assert.Contains(t, openFrom(t, successor, web4, 5000, 300), 9)
}
