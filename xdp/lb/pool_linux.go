package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/xdp/internal/maglev"
)

// AddVIP begins to balance a VIP, whose packets are dropped until it has servers. health says how they are checked
// while Run runs. The error wraps ErrConfig, ErrExists or ErrFull.
func (b *Balancer) AddVIP(v VIP, health Health) error {
	if err := errors.Join(v.check(), health.check(v)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pools[v] != nil {
		return fmt.Errorf("lb: VIP %v: %w", v, ErrExists)
	}
	slot := slices.Index(b.slots, false)
	if slot < 0 {
		return fmt.Errorf("lb: VIP %v, besides %d others: %w", v, len(b.slots), ErrFull)
	}
	p := &pool{vip: v, health: health, slot: uint32(slot)}
	err := clearCounters(b.maps.VipCounters, p.slot)
	if err == nil {
		err = b.swapRing(p)
	}
	if err == nil {
		err = b.maps.Vips.Put(VIP{Addr: v.Addr}.key(), balancerVip{})
	}
	if err == nil {
		err = b.maps.Vips.Put(v.key(), balancerVip{Slot: p.slot}) // last: packets find the rest
	}
	if err != nil {
		return fmt.Errorf("lb: add VIP %v: %w", v, err)
	}
	b.slots[slot] = true
	b.pools[v] = p
	return nil
}

// SetHealth changes how a VIP's servers are checked: what is pinned does not tell. Without a check all are healthy
// from now on. The error wraps ErrConfig or ErrNotFound.
func (b *Balancer) SetHealth(v VIP, health Health) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pools[v]
	if p == nil {
		return fmt.Errorf("lb: VIP %v: %w", v, ErrNotFound)
	}
	if err := health.check(v); err != nil {
		return err
	}
	p.health = health
	var errs []error
	for _, m := range p.members {
		if health.Kind == NoCheck && !m.healthy {
			m.healthy = true
			errs = append(errs, b.apply(p, m))
		}
	}
	return errors.Join(errs...)
}

// RemoveVIP ends the balancing of a VIP: its packets are the kernel's. The error wraps ErrNotFound.
func (b *Balancer) RemoveVIP(v VIP) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pools[v]
	if p == nil {
		return fmt.Errorf("lb: VIP %v: %w", v, ErrNotFound)
	}
	if err := b.maps.Vips.Delete(v.key()); err != nil {
		return fmt.Errorf("lb: remove VIP %v: %w", v, err)
	}
	delete(b.pools, v)
	var errs []error
	if !b.isVIP(v.Addr) {
		errs = append(errs, b.maps.Vips.Delete(VIP{Addr: v.Addr}.key()))
	}
	errs = append(errs, b.maps.Rings.Delete(p.slot))
	for _, m := range p.members {
		errs = append(errs, b.release(m), b.forget(m.next))
	}
	b.slots[p.slot] = false
	return errors.Join(errs...)
}

func (b *Balancer) isVIP(a netip.Addr) bool {
	for v := range b.pools {
		if v.Addr == a {
			return true
		}
	}
	return false
}

// AddServer adds a server to a VIP. It gets connections once its MAC is known and, where the VIP has checks, the
// first one has succeeded. One that drains takes part again, with its new weight. The error wraps ErrConfig,
// ErrNotFound, ErrExists or ErrFull.
func (b *Balancer) AddServer(v VIP, s Server) error {
	if s.Weight == 0 {
		s.Weight = 1
	}
	if err := s.check(b.cfg); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pools[v]
	if p == nil {
		return fmt.Errorf("lb: server %v of VIP %v: %w", s.Addr, v, ErrNotFound)
	}
	if _, i, err := b.find(v, s.Addr); err == nil {
		m := p.members[i]
		if m.state != Draining || m.Tunnel != s.Tunnel {
			return fmt.Errorf("lb: server %v of VIP %v: %w", s.Addr, v, ErrExists)
		}
		m.state, m.Weight = Active, s.Weight
		return b.apply(p, m)
	}
	free := slices.IndexFunc(b.numbers, func(n number) bool { return !n.taken })
	if free < 0 || len(p.members) >= b.cfg.RingSize {
		return fmt.Errorf("lb: server %v of VIP %v, besides %d of this VIP: %w", s.Addr, v, len(p.members), ErrFull)
	}
	m := &member{Server: s, number: uint16(free), state: Active, healthy: p.health.Kind == NoCheck, next: s.Addr}
	if err := b.nextHop(m); err != nil {
		return err
	}
	if err := clearCounters(b.maps.ServerCounters, uint32(free)); err != nil {
		return fmt.Errorf("lb: add server %v: %w", s.Addr, err)
	}
	n := &b.numbers[free]
	n.taken, n.generation = true, (n.generation+1)&generations
	p.members = append(p.members, m)
	return b.apply(p, m)
}

// generations is the mask of a generation: 14 bits.
const generations = 1<<14 - 1

// DrainServer lets a server keep the connections it has and gives it no others. AddServer takes that back. The error
// wraps ErrNotFound.
func (b *Balancer) DrainServer(v VIP, server netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, i, err := b.find(v, server)
	if err != nil {
		return err
	}
	p.members[i].state = Draining
	return b.apply(p, p.members[i])
}

// RemoveServer takes a server out. Connections that it had go to others, which reset them. The error wraps
// ErrNotFound.
func (b *Balancer) RemoveServer(v VIP, server netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, i, err := b.find(v, server)
	if err != nil {
		return err
	}
	m := p.members[i]
	p.members = slices.Delete(p.members, i, i+1)
	return errors.Join(b.swapRing(p), b.release(m), b.forget(m.next))
}

// SetHealthy says whether a server of a VIP takes packets, for those who know better than the checks of Run. What
// goes to one that is down goes to others from now on. The error wraps ErrNotFound.
func (b *Balancer) SetHealthy(v VIP, server netip.Addr, healthy bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, i, err := b.find(v, server)
	if err != nil {
		return err
	}
	m := p.members[i]
	if m.healthy == healthy {
		return nil
	}
	m.healthy = healthy
	return b.apply(p, m)
}

// SetMAC says where packets to a neighbour go: a server, or the router to some. Run does it for all; nil means that
// the MAC is not known, and the servers are down. One that no server needs is ignored.
func (b *Balancer) SetMAC(neighbour netip.Addr, mac net.HardwareAddr) error {
	if len(mac) != 6 && mac != nil {
		return fmt.Errorf("lb: neighbour %v has MAC %v: %w", neighbour, mac, ErrConfig)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, p := range b.pools {
		for _, m := range p.members {
			if m.next == neighbour && !slices.Equal(m.mac, mac) {
				m.mac = slices.Clone(mac)
				errs = append(errs, b.apply(p, m))
			}
		}
	}
	return errors.Join(errs...)
}

// apply makes the maps what the pool is, after a member has changed. A ring never leads to a server that is down: who
// comes up does so before it is in the ring, who goes down is out of the ring before.
func (b *Balancer) apply(p *pool, changed *member) error {
	err := b.writeServer(p, changed)
	if err == nil && changed.up() {
		err = b.writeLink(changed)
	}
	if err == nil {
		err = b.swapRing(p)
	}
	if err == nil && !changed.up() {
		err = b.writeLink(changed)
	}
	if err != nil {
		return fmt.Errorf("lb: server %v of VIP %v: %w", changed.Addr, p.vip, err)
	}
	return nil
}

// writeServer remembers who has a number.
func (b *Balancer) writeServer(p *pool, m *member) error {
	s := balancerServer{
		Vip: p.slot, Weight: m.Weight, Generation: b.numbers[m.number].generation, State: uint8(m.state),
	}
	s.Address.Word = words(m.Addr)
	if m.Tunnel {
		s.Tunnel = 1
	}
	if m.healthy {
		s.Healthy = 1
	}
	return b.maps.Servers.Put(uint32(m.number), s)
}

// Bits of a link behind the six bytes of a MAC.
const (
	linkUp         = 1
	linkTunnel     = 2
	linkGeneration = 2 // the first bit of it
)

// writeLink says how a server is reached, in one write.
func (b *Balancer) writeLink(m *member) error {
	var link [8]byte
	copy(link[:6], m.mac)
	bits := b.numbers[m.number].generation << linkGeneration
	if m.up() {
		bits |= linkUp
	}
	if m.Tunnel {
		bits |= linkTunnel
	}
	binary.LittleEndian.PutUint16(link[6:], bits)
	// Eight aligned bytes are copied in one move, so that the program never sees half of them.
	_, err := b.links.WriteAt(link[:], int64(m.number)*int64(len(link)))
	return err
}

// release gives a number back, with its generation.
func (b *Balancer) release(m *member) error {
	n := &b.numbers[m.number]
	n.taken = false
	_, err := b.links.WriteAt(make([]byte, 8), int64(m.number)*8)
	return errors.Join(err, b.maps.Servers.Put(uint32(m.number), balancerServer{Generation: n.generation}))
}

// swapRing builds the pool's table anew and puts it in place of the old one: a packet sees either. When Put returns
// no packet sees the old one any more, and it ends, so that there is one for each VIP and one at most besides.
func (b *Balancer) swapRing(p *pool) error {
	var members []maglev.Member
	for _, m := range p.members {
		if m.up() && m.state == Active {
			members = append(members, maglev.Member{Key: m.Addr.String(), Value: m.number, Weight: m.Weight})
		}
	}
	cells, err := maglev.Build(b.cfg.RingSize, members)
	if err != nil {
		return err
	}
	keys := make([]uint32, len(cells)/ringLine)
	lines := make([]balancerRingLine, len(keys))
	for i := range keys {
		keys[i] = uint32(i)
		copy(lines[i].Cell[:], cells[i*ringLine:])
	}
	inner, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: uint32(2 * ringLine), MaxEntries: uint32(len(keys)),
	})
	if err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	defer inner.Close()
	if _, err := inner.BatchUpdate(keys, lines, nil); err != nil {
		return fmt.Errorf("fill the ring: %w", err)
	}
	if err := b.maps.Rings.Put(p.slot, inner); err != nil {
		return fmt.Errorf("swap the ring: %w", err)
	}
	return nil
}

// clearCounters makes all processors' zero.
func clearCounters(m *ebpf.Map, key uint32) error {
	processors, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	return m.Put(key, make([]balancerCounters, processors))
}
