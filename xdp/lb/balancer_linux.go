package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/xdp"
)

// Balancer is a balancer's program with its VIPs and servers. Its methods are for any goroutine.
type Balancer struct {
	cfg   Config
	maps  objects
	links *ebpf.Memory
	route *netlink.Handle // of the network namespace in which New was called

	mu      sync.Mutex
	program *ebpf.Program
	entry   *xdp.Entry // nil until Install
	pools   map[VIP]*pool
	numbers []number // of servers
	slots   []bool   // of VIPs: taken
}

// objects are the maps that the program shares with its successors.
type objects struct {
	Flows          *ebpf.Map `ebpf:"flows"`
	Links          *ebpf.Map `ebpf:"links"`
	Reasons        *ebpf.Map `ebpf:"reasons"`
	Rings          *ebpf.Map `ebpf:"rings"`
	ServerCounters *ebpf.Map `ebpf:"server_counters"`
	Servers        *ebpf.Map `ebpf:"servers"`
	VipCounters    *ebpf.Map `ebpf:"vip_counters"`
	Vips           *ebpf.Map `ebpf:"vips"`
}

func (o *objects) named() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"flows": o.Flows, "links": o.Links, "reasons": o.Reasons, "rings": o.Rings, "server_counters": o.ServerCounters,
		"servers": o.Servers, "vip_counters": o.VipCounters, "vips": o.Vips,
	}
}

// pool is a VIP with its servers.
type pool struct {
	vip     VIP
	health  Health
	slot    uint32
	members []*member
}

// number is a server's in the maps. Its generation tells those who have had it apart.
type number struct {
	taken      bool
	generation uint16
}

// member is a server of a pool.
type member struct {
	Server
	number  uint16
	state   State
	next    netip.Addr // who is sent to: the server, or the router to it
	mac     net.HardwareAddr
	healthy bool
	checked bool
	row     int // checks in a row that contradict healthy
}

// up reports whether packets can be sent to it.
func (m *member) up() bool { return m.healthy && m.mac != nil }

// New loads the program, and takes over what is pinned. It has to be called in the interface's network namespace. The
// program runs from Install on. The error wraps ErrConfig, xdp.ErrPrivilege, xdp.ErrUnsupported, or is the kernel's.
func New(cfg Config) (*Balancer, error) {
	cfg, err := cfg.defaults()
	if err != nil {
		return nil, err
	}
	if err := xdp.Check(); err != nil {
		return nil, err
	}
	b := &Balancer{
		cfg: cfg, pools: map[VIP]*pool{},
		numbers: make([]number, cfg.MaxServers), slots: make([]bool, cfg.MaxVIPs),
	}
	if b.route, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("lb: netlink: %w", err)
	}
	if b.program, err = b.load(); err == nil {
		b.links, err = b.maps.Links.Memory()
	}
	if err == nil {
		err = b.restore()
	}
	if err != nil {
		_ = b.Close() // the first error is what matters
		return nil, fmt.Errorf("lb: load: %w", err)
	}
	return b, nil
}

// Install makes the balancer the entry's stage: packets are balanced from now on. It has to be the same interface's.
func (b *Balancer) Install(entry *xdp.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := entry.Set(xdp.Balancer, b.program); err != nil {
		return err
	}
	b.entry = entry
	return nil
}

// Reload loads the program again, with what the interface's MAC and MTU are now, and puts it in place of the one that
// runs. Connections stay where they are and no packet is missed.
func (b *Balancer) Reload() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	program, err := b.load()
	if err != nil {
		return fmt.Errorf("lb: reload: %w", err)
	}
	if b.entry != nil {
		if err := b.entry.Set(xdp.Balancer, program); err != nil {
			return errors.Join(err, program.Close())
		}
	}
	old := b.program
	b.program = program
	return old.Close()
}

// Close gives the balancer up. What is installed or pinned goes on without it: xdp.Entry.Clear takes it out.
func (b *Balancer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.route != nil {
		b.route.Close()
	}
	errs := []error{b.program.Close()}
	for _, m := range b.maps.named() {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// load makes a program for the interface as it is now, on the maps that are there or new ones.
func (b *Balancer) load() (*ebpf.Program, error) {
	spec, err := loadBalancer()
	if err != nil {
		return nil, err
	}
	if err := b.size(spec); err != nil {
		return nil, err
	}
	if err := b.constants(spec); err != nil {
		return nil, err
	}
	opts := &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: b.cfg.PinPath}}
	loaded := struct {
		objects
		Balance *ebpf.Program `ebpf:"balance"`
	}{}
	if b.maps.Flows != nil {
		opts.MapReplacements = b.maps.named()
		program := struct {
			Balance *ebpf.Program `ebpf:"balance"`
		}{}
		err = spec.LoadAndAssign(&program, opts)
		return program.Balance, err
	}
	err = spec.LoadAndAssign(&loaded, opts)
	b.maps = loaded.objects
	return loaded.Balance, err
}

// size sets how large maps are, and which outlive the process.
func (b *Balancer) size(spec *ebpf.CollectionSpec) error {
	spec.Maps["vips"].MaxEntries = uint32(2 * b.cfg.MaxVIPs) // with one entry for each address
	spec.Maps["rings"].MaxEntries = uint32(b.cfg.MaxVIPs)
	spec.Maps["vip_counters"].MaxEntries = uint32(b.cfg.MaxVIPs)
	for _, name := range []string{"links", "servers", "server_counters"} {
		spec.Maps[name].MaxEntries = uint32(b.cfg.MaxServers)
	}
	spec.Maps["rings"].InnerMap.MaxEntries = uint32(b.cfg.RingSize / ringLine)
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	// Each processor has a share; the kernel rounds up, and what is pinned is compared with what it made of it.
	spec.Maps["flows"].MaxEntries = uint32((b.cfg.MaxFlows + processors - 1) / processors * processors)
	if b.cfg.PinPath != "" {
		for name := range b.maps.named() {
			spec.Maps[name].Pinning = ebpf.PinByName
		}
	}
	return nil
}

const (
	ringLine = len(balancerRingLine{}.Cell)
	// burst is how long a processor may save up what it did not insert: longer than the kernel's coarsest tick, 10 ms.
	burst  = 1_000_000_000 / 64
	second = 1_000_000_000
)

// constants sets what the program knows of its interface.
func (b *Balancer) constants(spec *ebpf.CollectionSpec) error {
	mac, mtu, err := b.device()
	if err != nil {
		return err
	}
	insert, saved := uint64(0), uint64(0)
	if b.cfg.FlowsPerSecond > 0 {
		insert, saved = max(1, second/uint64(b.cfg.FlowsPerSecond)), burst
	}
	for name, value := range map[string]any{
		"own_mac": mac, "link_mtu": mtu,
		"ring_mask": uint32(b.cfg.RingSize - 1), "hash_seed": b.cfg.HashSeed, "insert_ns": insert, "insert_burst_ns": saved,
		"tunnel_source4": words(b.cfg.TunnelSource4)[3], "tunnel_source6": words(b.cfg.TunnelSource6),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}

// device returns the interface's MAC, padded to a word, and its MTU. Without an interface, which tests have not, all
// MACs are zero.
func (b *Balancer) device() (mac [8]byte, mtu uint32, err error) {
	if b.cfg.Interface == testInterface {
		return [8]byte{2}, 1500, nil
	}
	link, err := b.route.LinkByIndex(b.cfg.Interface)
	if err != nil {
		return mac, 0, fmt.Errorf("interface %d: %w", b.cfg.Interface, err)
	}
	if len(link.Attrs().HardwareAddr) != 6 {
		return mac, 0, fmt.Errorf("interface %s is not Ethernet: %w", link.Attrs().Name, ErrConfig)
	}
	copy(mac[:], link.Attrs().HardwareAddr)
	return mac, uint32(link.Attrs().MTU), nil
}

// testInterface stands for one that is not there: the MAC is 02:00:00:00:00:00, the MTU 1500.
const testInterface = -1

// words returns an address as the program has it: IPv4 mapped into IPv6, in network order.
func words(a netip.Addr) (w [4]uint32) {
	if !a.IsValid() {
		return w
	}
	bytes := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(bytes[4*i:])
	}
	return w
}

// address is the inverse of words.
func address(w [4]uint32) netip.Addr {
	var bytes [16]byte
	for i := range w {
		binary.NativeEndian.PutUint32(bytes[4*i:], w[i])
	}
	return netip.AddrFrom16(bytes).Unmap()
}

// key is a VIP's in the map. With protocol and port 0 it says that an address is a VIP's.
func (v VIP) key() balancerVipKey {
	k := balancerVipKey{Port: v.Port>>8 | v.Port<<8, Proto: uint8(v.Protocol)}
	k.Address.Word = words(v.Addr)
	return k
}

// find returns the pool of a VIP and the place of a server in it.
func (b *Balancer) find(v VIP, server netip.Addr) (*pool, int, error) {
	p := b.pools[v]
	if p == nil {
		return nil, 0, fmt.Errorf("lb: VIP %v: %w", v, ErrNotFound)
	}
	i := slices.IndexFunc(p.members, func(m *member) bool { return m.Addr == server })
	if i < 0 {
		return nil, 0, fmt.Errorf("lb: server %v of VIP %v: %w", server, v, ErrNotFound)
	}
	return p, i, nil
}
