package lb

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/weirnet/weir/internal/netlab"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp"
	"github.com/weirnet/weir/xdp/internal/measure"
	"github.com/weirnet/weir/xdp/internal/packet"
)

// network is a client, a balancer and two servers around a bridge, with a VIP of each family.
type network struct {
	*netlab.Star
	client, balancer *netlab.Space
	servers          [2]*netlab.Space
	echoes           [2]*netlab.Echo
	pins             [2]string // of the entry and of the balancer
	cfg              xdp.Config
	entry            *xdp.Entry
	b                *Balancer
	stop             func()
	vips             []VIP
}

const patience = time.Minute // with what comes in milliseconds

func newNetwork(t *testing.T, mode xdp.Mode, health Health) *network {
	t.Helper()
	testenv.Require(t, "xdp", xdp.Check())
	star, err := netlab.NewStar("client", "lb", "s0", "s1")
	testenv.Require(t, "netns", err)
	t.Cleanup(star.Close)
	n := &network{Star: star, client: star.Spaces[0], balancer: star.Spaces[1], servers: [2]*netlab.Space(star.Spaces[2:])}
	vip4, vip6 := addr("10.77.0.100"), addr("fd77::100")
	n.vips = []VIP{{vip4, 80, TCP}, {vip6, 80, TCP}, {vip4, 53, UDP}, {vip6, 53, UDP}}
	require.NoError(t, n.balancer.Address("eth0", vip4.String()+"/32", vip6.String()+"/128"))
	for i, s := range n.servers {
		require.NoError(t, s.Hide(vip4.String()+"/32", vip6.String()+"/128"))
		n.serve(t, i)
	}
	n.start(t, mode, health)
	return n
}

// serve starts the i-th server.
func (n *network) serve(t *testing.T, i int) {
	t.Helper()
	e, err := netlab.NewEcho(n.servers[i], byte(i), 80,
		netip.AddrPortFrom(n.vips[0].Addr, 53), netip.AddrPortFrom(n.vips[1].Addr, 53))
	require.NoError(t, err)
	t.Cleanup(e.Close)
	n.echoes[i] = e
}

// start attaches the balancer and waits until it has its servers.
func (n *network) start(t *testing.T, mode xdp.Mode, health Health) {
	t.Helper()
	pins, closeFS, err := netlab.BPFFS()
	testenv.Require(t, "bpffs", err)
	t.Cleanup(func() { assert.NoError(t, closeFS()) })
	for i, name := range []string{"entry", "lb"} {
		n.pins[i] = filepath.Join(pins, name)
		require.NoError(t, os.Mkdir(n.pins[i], 0o700))
	}
	// A virtual interface takes what its peer's program sends only when it has a program itself.
	peer := attach(t, n.Fabric, "p-lb", xdp.Config{Mode: mode})
	t.Cleanup(func() { assert.NoError(t, peer.Close()) })
	require.NoError(t, n.Fabric.ChecksumInSoftware("p-lb"))
	t.Cleanup(func() {
		if n.stop != nil {
			n.stop()
			assert.NoError(t, n.entry.Detach())
		}
	})
	n.cfg.Mode = mode
	n.succeed(t)
	for _, v := range n.vips {
		require.NoError(t, n.b.AddVIP(v, health))
		for i := range n.servers {
			require.NoError(t, n.b.AddServer(v, n.server(v, i)))
		}
	}
	n.await(t, "all servers are up", func(_ VIP, s ServerStats) bool { return s.Up })
}

func attach(t *testing.T, s *netlab.Space, name string, cfg xdp.Config) (entry *xdp.Entry) {
	t.Helper()
	link, err := s.Link(name)
	require.NoError(t, err)
	cfg.Interface = link.Attrs().Index
	require.NoError(t, s.Do(func() (err error) { entry, err = xdp.Attach(cfg); return err }))
	return entry
}

// succeed puts a balancer in the place of the one that runs, if there is one, as another process would.
func (n *network) succeed(t *testing.T) {
	t.Helper()
	if n.stop != nil {
		n.stop()
		require.NoError(t, n.entry.Close())
	}
	n.cfg.PinPath = n.pins[0]
	n.entry = attach(t, n.balancer, "eth0", n.cfg)
	link, err := n.balancer.Link("eth0")
	require.NoError(t, err)
	require.NoError(t, n.balancer.Do(func() (err error) {
		n.b, err = New(Config{
			Interface: link.Attrs().Index, PinPath: n.pins[1], MaxFlows: 1001*ebpf.MustPossibleCPU() - 1, RingSize: 1024,
			FlowsPerSecond: 2000, CheckInterval: 20 * time.Millisecond, Dial: n.balancer.Dial,
		})
		return err
	}))
	require.NoError(t, n.b.Install(n.entry))
	ctx, cancel := context.WithCancel(context.Background())
	ended, b := make(chan error, 1), n.b
	go func() { ended <- n.balancer.Do(func() error { return b.Run(ctx) }) }()
	n.stop = func() {
		cancel()
		assert.ErrorIs(t, <-ended, context.Canceled)
		assert.NoError(t, b.Close())
	}
}

func (n *network) server(v VIP, i int) Server {
	if v.Addr.Is4() {
		return Server{Addr: netlab.Host4(2 + i)}
	}
	return Server{Addr: netlab.Host6(2 + i)}
}

// await waits until a condition holds for every server of every VIP.
func (n *network) await(t *testing.T, what string, holds func(VIP, ServerStats) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		stats, err := n.b.Stats()
		require.NoError(t, err)
		for _, v := range stats.VIPs {
			for _, s := range v.Servers {
				if !holds(v.VIP, s) {
					return false
				}
			}
		}
		return true
	}, patience, 5*time.Millisecond, what)
}

func (v VIP) network() (network, address string) {
	return v.Protocol.String(), netip.AddrPortFrom(v.Addr, v.Port).String()
}

// call makes a connection to a VIP and returns which server served it.
func (n *network) call(v VIP) (byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	network, address := v.network()
	return n.client.Call(ctx, network, address, []byte("hello"))
}

func TestConnectionsArriveAndRepliesReturn(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.Native, xdp.Generic} {
		n := newNetwork(t, mode, Health{})
		for _, v := range n.vips {
			served := map[byte]int{}
			for range 40 {
				id, err := n.call(v)
				require.NoError(t, err, "%v %v", mode, v)
				served[id]++
			}
			assert.Len(t, served, 2, "%v %v: all went to one server", mode, v)
		}
	}
}

func TestUploadsArriveIntact(t *testing.T) {
	n := newNetwork(t, xdp.Native, Health{})
	n.upload(t)
	for _, s := range n.Spaces { // jumbo frames, of several buffers
		require.NoError(t, s.MTU("eth0", 9000))
		require.NoError(t, n.Fabric.MTU("p-"+s.Name, 9000))
	}
	n.upload(t)
}

// upload sends 64 MiB to each VIP of TCP and has them back.
func (n *network) upload(t *testing.T) {
	t.Helper()
	const size = 64 << 20
	for _, v := range n.vips[:2] {
		network, address := v.network()
		c, err := n.client.Dial(context.Background(), network, address)
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		sent, got := sha256.New(), sha256.New()
		done := make(chan error, 1)
		go func() {
			block := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
			for n := 0; n < size; n += len(block) {
				block[n>>16&0xffff]++
				sent.Write(block)
				if _, err := c.Write(block); err != nil {
					done <- err
					return
				}
			}
			done <- c.(*net.TCPConn).CloseWrite()
		}()
		_, err = io.ReadFull(c, make([]byte, 1)) // who it is
		require.NoError(t, err)
		back, err := io.Copy(got, c)
		require.NoError(t, err)
		require.NoError(t, <-done)
		assert.EqualValues(t, size, back)
		assert.Equal(t, sent.Sum(nil), got.Sum(nil), "%v", v)
		require.NoError(t, c.Close())
	}
}

// load are connections that are in use and others that are opened, until stop.
type load struct {
	wg               sync.WaitGroup
	stopped          atomic.Bool
	messages, opened atomic.Int64
	failures         chan error
	onDrained        atomic.Int64
	drained          atomic.Bool
	lastOf           byte
}

func (n *network) load(t *testing.T, v VIP, open int, drained byte) *load {
	t.Helper()
	l := &load{failures: make(chan error, 100), lastOf: drained}
	for range open {
		network, address := v.network()
		c, err := n.client.Dial(context.Background(), network, address)
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(3*patience)))
		id := make([]byte, 1)
		_, err = io.ReadFull(c, id)
		require.NoError(t, err)
		if id[0] == drained {
			l.onDrained.Add(1)
		}
		l.wg.Go(func() {
			defer c.Close()
			message, back := []byte("are you there?"), make([]byte, 14)
			for !l.stopped.Load() {
				_, err := c.Write(message)
				if err == nil {
					_, err = io.ReadFull(c, back)
				}
				if err == nil && !bytes.Equal(message, back) {
					err = errors.New("another message came back")
				}
				if err != nil {
					l.failures <- err
					return
				}
				l.messages.Add(1)
			}
		})
	}
	for range 2 {
		l.wg.Go(func() {
			for !l.stopped.Load() {
				after := l.drained.Load()
				id, err := n.call(v)
				switch {
				case err != nil:
					l.failures <- err
					return
				case after && id == drained:
					l.failures <- errors.New("a new connection on a server that drains")
				}
				l.opened.Add(1)
			}
		})
	}
	return l
}

// more waits until so many messages and connections more have been.
func (l *load) more(t *testing.T, messages, opened int64) {
	t.Helper()
	m, o := l.messages.Load()+messages, l.opened.Load()+opened
	require.Eventually(t, func() bool {
		return len(l.failures) > 0 || l.messages.Load() >= m && l.opened.Load() >= o
	}, patience, time.Millisecond)
}

func (l *load) stop(t *testing.T) {
	t.Helper()
	l.stopped.Store(true)
	l.wg.Wait()
	close(l.failures)
	for err := range l.failures {
		assert.NoError(t, err)
	}
	t.Logf("%d messages, %d connections", l.messages.Load(), l.opened.Load())
}

func TestDrainingUnderLoadBreaksNothing(t *testing.T) {
	n := newNetwork(t, xdp.Native, Health{})
	for _, v := range n.vips[:2] {
		l := n.load(t, v, 30, 1)
		l.more(t, 300, 20)
		require.NoError(t, n.b.DrainServer(v, n.server(v, 1).Addr))
		l.drained.Store(true)
		l.more(t, 1000, 50)
		assert.Positive(t, l.onDrained.Load())
		l.stop(t)
	}
}

func TestAFloodBreaksNothing(t *testing.T) {
	n := newNetwork(t, xdp.Native, Health{})
	l := n.load(t, n.vips[0], 20, 1)
	l.more(t, 100, 10)

	from, err := n.Fabric.Link("p-lb")
	require.NoError(t, err)
	to, err := n.balancer.Link("eth0")
	require.NoError(t, err)
	mac := [6]byte(to.Attrs().HardwareAddr)
	m, err := measure.New(nil, mac, 1<<32)
	require.NoError(t, err)
	defer m.Close()
	f := client(n.vips[0], 1, packet.SYN)
	f.DstMAC, f.SrcMAC = mac, [6]byte(from.Attrs().HardwareAddr) // its clients are everywhere, behind the bridge's port
	var stats Stats
	for round := 0; stats.Reasons[Placed] < 100_000; round++ { // the interface's queue does not take all
		require.Less(t, round, 100)
		require.NoError(t, n.Fabric.Do(func() error { return m.Flood(from.Attrs().Index, f.Bytes(), 50_000) }))
		stats, err = n.b.Stats()
		require.NoError(t, err)
	}
	require.NoError(t, n.b.DrainServer(n.vips[0], n.server(n.vips[0], 1).Addr))
	l.drained.Store(true)
	l.more(t, 500, 20)
	l.stop(t)
}

func TestReloadingUnderLoadLosesNothing(t *testing.T) {
	n := newNetwork(t, xdp.Native, Health{})
	l := n.load(t, n.vips[0], 10, 255)
	for range 5 {
		require.NoError(t, n.b.Reload())
		l.more(t, 20, 2)
		n.succeed(t)
		l.more(t, 20, 2)
	}
	l.stop(t)
}

func TestAServerThatFailsItsChecksGetsNothing(t *testing.T) {
	n := newNetwork(t, xdp.Native, Health{Kind: TCPCheck, Port: 80})
	n.echoes[1].Close()
	one := netip.AddrFrom4(netlab.Host4(3).As4())
	down := func(s ServerStats) bool { return s.Addr == one || s.Addr == netlab.Host6(3) }
	n.await(t, "it is down", func(_ VIP, s ServerStats) bool { return s.Up != down(s) })
	for _, v := range n.vips {
		for range 10 {
			id, err := n.call(v)
			require.NoError(t, err)
			assert.Zero(t, id)
		}
	}
	n.serve(t, 1)
	n.await(t, "it is up again", func(_ VIP, s ServerStats) bool { return s.Up })
}

func TestAServerWithAnotherMACIsFound(t *testing.T) {
	n := newNetwork(t, xdp.Native, Health{})
	for i := range n.servers {
		link, err := n.servers[i].Link("eth0")
		require.NoError(t, err)
		require.NoError(t, n.servers[i].Links.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0x77, 0, 0, 0, byte(i)}))
	}
	require.Eventually(t, func() bool {
		n.b.mu.Lock()
		defer n.b.mu.Unlock()
		for _, p := range n.b.pools {
			for _, m := range p.members {
				if len(m.mac) == 0 || m.mac[1] != 0x77 {
					return false
				}
			}
		}
		return true
	}, patience, 5*time.Millisecond, "the new MACs are known")
	for _, v := range n.vips {
		_, err := n.call(v)
		require.NoError(t, err, "%v", v)
		require.NoError(t, n.b.RemoveServer(v, n.server(v, 1).Addr))
	}
	link, err := n.balancer.Link("eth0")
	require.NoError(t, err)
	managed, err := n.balancer.Links.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	require.NoError(t, err)
	for _, neighbour := range managed {
		stays := neighbour.IP.Equal(netlab.Host4(2).AsSlice()) || neighbour.IP.Equal(netlab.Host6(2).AsSlice())
		assert.Equal(t, stays, neighbour.FlagsExt&netlink.NTF_EXT_MANAGED != 0, "the kernel keeps %v", neighbour.IP)
	}
}
