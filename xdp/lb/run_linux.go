package lb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// maxChecks is how many health checks run at a time.
const maxChecks = 64

// Run follows the neighbours' MACs and checks the servers, until ctx ends: then it returns ctx's error. It has to be
// called in the interface's network namespace, once at a time. Other errors are netlink's.
func (b *Balancer) Run(ctx context.Context) error {
	here, err := netns.Get() // goroutines of the subscription may be elsewhere
	if err != nil {
		return fmt.Errorf("lb: network namespace: %w", err)
	}
	defer here.Close()
	ctx, cancel := context.WithCancel(ctx)
	var checks sync.WaitGroup
	defer checks.Wait()
	defer cancel()
	checks.Go(func() { every(ctx, b.cfg.CheckInterval, func() { b.checkAll(ctx) }) })
	for {
		err := b.follow(ctx, here)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		// There was more than the socket holds, and something was lost: all are listed again.
	}
}

// follow takes over what the kernel knows of neighbours and what changes, until ctx ends or netlink fails.
func (b *Balancer) follow(ctx context.Context, here netns.NsHandle) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	updates, done := make(chan netlink.NeighUpdate, 64), make(chan struct{})
	err := netlink.NeighSubscribeWithOptions(updates, done, netlink.NeighSubscribeOptions{
		Namespace: &here, ListExisting: true,
		ErrorCallback: func(err error) { cancel(fmt.Errorf("lb: neighbours: %w", err)) },
	})
	if err != nil {
		return fmt.Errorf("lb: follow neighbours: %w", err)
	}
	defer func() {
		close(done)
		for range updates { // the subscription ends when it can hand out what it has
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case u, open := <-updates:
			if !open {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				return errors.New("lb: neighbours: the subscription has ended")
			}
			if err := b.neighbour(u); err != nil {
				return err
			}
		}
	}
}

// known are the states in which the kernel would send to a neighbour's MAC.
const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT

// neighbour takes over what the kernel knows of one.
func (b *Balancer) neighbour(u netlink.NeighUpdate) error {
	ip, ok := netip.AddrFromSlice(u.IP)
	if !ok || u.LinkIndex != b.cfg.Interface {
		return nil
	}
	switch {
	case u.Type == unix.RTM_NEWNEIGH && u.State&known != 0 && len(u.HardwareAddr) == 6:
		return b.SetMAC(ip.Unmap(), u.HardwareAddr)
	case u.Type == unix.RTM_NEWNEIGH && u.State&unix.NUD_FAILED != 0:
		return b.SetMAC(ip.Unmap(), nil)
	}
	return nil // being asked for; or forgotten, which says nothing about the neighbour
}

// nextHop finds out who packets to a server are sent to, and has the kernel keep its MAC fresh.
func (b *Balancer) nextHop(m *member) error {
	m.next = m.Addr
	if b.cfg.Interface == testInterface {
		return nil
	}
	if m.Tunnel {
		routes, err := b.route.RouteGet(m.Addr.AsSlice())
		if err != nil {
			return fmt.Errorf("lb: route to %v: %w", m.Addr, err)
		}
		if len(routes) == 0 || routes[0].LinkIndex != b.cfg.Interface {
			return fmt.Errorf("lb: the route to %v does not lead through interface %d: %w", m.Addr, b.cfg.Interface, ErrConfig)
		}
		if router, ok := netip.AddrFromSlice(routes[0].Gw); ok {
			m.next = router.Unmap()
		}
	}
	// Of who is known already no event has to come, and asking would make what was set by hand expire.
	neighbours, err := b.route.NeighList(b.cfg.Interface, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("lb: neighbours of interface %d: %w", b.cfg.Interface, err)
	}
	for _, n := range neighbours {
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == m.next && n.State&known != 0 && len(n.HardwareAddr) == 6 {
			m.mac = slices.Clone(n.HardwareAddr)
			if n.State&unix.NUD_PERMANENT != 0 {
				return nil
			}
		}
	}
	return b.ask(m.next, netlink.NTF_EXT_MANAGED)
}

// ask makes the kernel resolve a neighbour and, where it is to be managed and the kernel can (Linux 5.16), keep on
// doing that.
func (b *Balancer) ask(neighbour netip.Addr, managed int) error {
	n := &netlink.Neigh{
		LinkIndex: b.cfg.Interface, IP: net.IP(neighbour.AsSlice()), State: unix.NUD_NONE, Flags: unix.NTF_USE,
		FlagsExt: managed,
	}
	err := b.route.NeighSet(n)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		n.FlagsExt = 0
		err = b.route.NeighSet(n)
	}
	if err != nil {
		return fmt.Errorf("lb: resolve %v on interface %d: %w", neighbour, b.cfg.Interface, err)
	}
	return nil
}

// forget lets the kernel forget a neighbour that no server is reached by any more.
func (b *Balancer) forget(neighbour netip.Addr) error {
	if b.cfg.Interface == testInterface {
		return nil
	}
	for _, p := range b.pools {
		if slices.ContainsFunc(p.members, func(m *member) bool { return m.next == neighbour }) {
			return nil
		}
	}
	all, err := b.route.NeighList(b.cfg.Interface, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("lb: neighbours of interface %d: %w", b.cfg.Interface, err)
	}
	for _, n := range all {
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == neighbour && n.State&unix.NUD_PERMANENT == 0 {
			return b.ask(neighbour, 0)
		}
	}
	return nil
}

// checkAll checks each server once, and returns when all have answered or failed.
func (b *Balancer) checkAll(ctx context.Context) {
	type job struct {
		vip    VIP
		health Health
		server netip.Addr
	}
	b.mu.Lock()
	var jobs []job
	for v, p := range b.pools {
		for _, m := range p.members {
			if p.health.Kind != NoCheck {
				jobs = append(jobs, job{v, p.health, m.Addr})
			}
		}
	}
	b.mu.Unlock()
	slots := make(chan struct{}, maxChecks)
	var all sync.WaitGroup
	for _, j := range jobs {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			port := j.health.Port
			if port == 0 {
				port = j.vip.Port
			}
			timed, cancel := context.WithTimeout(ctx, b.cfg.CheckTimeout)
			defer cancel()
			err := j.health.probe(timed, j.server, port, b.cfg.Dial)
			if ctx.Err() == nil { // not what the end of Run has broken off
				b.observe(j.vip, j.server, err == nil)
			}
		})
	}
	all.Wait()
}

// observe takes a check's outcome into account.
func (b *Balancer) observe(v VIP, server netip.Addr, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, i, err := b.find(v, server)
	if err != nil {
		return // removed meanwhile
	}
	m := p.members[i]
	was := m.healthy
	if m.checked {
		m.healthy, m.row = hysteresis{b.cfg.Rise, b.cfg.Fall}.observe(m.healthy, m.row, ok)
	} else {
		m.healthy, m.checked = ok, true
	}
	if m.healthy == was {
		return
	}
	if err := b.apply(p, m); err != nil {
		m.healthy = was // the next check tries again
	}
}
