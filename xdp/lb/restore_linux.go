package lb

import (
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
)

// restore reads who has which slot and number from maps that were pinned: the connections name them. Packets go on
// meanwhile.
func (b *Balancer) restore() error {
	slots := map[uint32]*pool{}
	var key balancerVipKey
	var value balancerVip
	for all := b.maps.Vips.Iterate(); all.Next(&key, &value); {
		if key.Proto == 0 {
			continue
		}
		v := VIP{Addr: address(key.Address.Word), Port: key.Port>>8 | key.Port<<8, Protocol: Protocol(key.Proto)}
		if int(value.Slot) >= len(b.slots) || b.slots[value.Slot] {
			return fmt.Errorf("VIP %v has slot %d of %d, or not alone: %w", v, value.Slot, len(b.slots), ErrConfig)
		}
		p := &pool{vip: v, slot: value.Slot}
		b.pools[v], b.slots[value.Slot], slots[value.Slot] = p, true, p
	}
	for i := range b.numbers {
		var s balancerServer
		if err := b.maps.Servers.Lookup(uint32(i), &s); err != nil {
			return fmt.Errorf("server %d: %w", i, err)
		}
		b.numbers[i].generation = s.Generation
		p := slots[s.Vip]
		if s.State == 0 || p == nil {
			continue // nobody, or one of a VIP that was on its way out
		}
		var link [8]byte
		if _, err := b.links.ReadAt(link[:], int64(i)*8); err != nil {
			return fmt.Errorf("link of server %d: %w", i, err)
		}
		m := &member{
			Server: Server{Addr: address(s.Address.Word), Weight: s.Weight, Tunnel: s.Tunnel != 0},
			number: uint16(i), state: State(s.State), healthy: s.Healthy != 0,
		}
		if mac := net.HardwareAddr(link[:6]); slices.Max(mac) != 0 {
			m.mac = slices.Clone(mac)
		}
		// The checks decide anew what is down; that a server has been up stands until they say otherwise.
		m.checked = m.healthy
		m.next = m.Addr
		if err := b.nextHop(m); err != nil {
			return err
		}
		b.numbers[i].taken = true
		p.members = append(p.members, m)
	}
	for _, p := range b.pools { // who wrote them may have ended half-way
		if err := b.swapRing(p); err != nil {
			return fmt.Errorf("VIP %v: %w", p.vip, err)
		}
	}
	return nil
}

// Stats returns the counters of all processors, added up.
func (b *Balancer) Stats() (Stats, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	stats := Stats{Reasons: map[Reason]uint64{}}
	for r := range reasons {
		var each []uint64
		if err := b.maps.Reasons.Lookup(uint32(r), &each); err != nil {
			return stats, fmt.Errorf("lb: count of reason %v: %w", r, err)
		}
		for _, n := range each {
			if n > 0 {
				stats.Reasons[r] += n
			}
		}
	}
	for _, p := range b.pools {
		counters, err := sum(b.maps.VipCounters, p.slot)
		if err != nil {
			return stats, fmt.Errorf("lb: counters of VIP %v: %w", p.vip, err)
		}
		v := VIPStats{VIP: p.vip, Counters: counters}
		for _, m := range p.members {
			if counters, err = sum(b.maps.ServerCounters, uint32(m.number)); err != nil {
				return stats, fmt.Errorf("lb: counters of server %v: %w", m.Addr, err)
			}
			v.Servers = append(v.Servers, ServerStats{Server: m.Server, Counters: counters, State: m.state, Up: m.up()})
		}
		stats.VIPs = append(stats.VIPs, v)
	}
	return stats, nil
}

// sum adds up what the processors have counted.
func sum(m *ebpf.Map, key uint32) (total Counters, err error) {
	var each []balancerCounters
	err = m.Lookup(key, &each)
	for _, c := range each {
		total.Packets += c.Packets
		total.Bytes += c.Bytes
		total.Placed += c.Placed
	}
	return total, err
}
