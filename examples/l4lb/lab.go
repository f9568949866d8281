//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/netlab"
	"github.com/weirnet/weir/xdp"
	"github.com/weirnet/weir/xdp/lb"
)

const (
	servers  = 3
	patience = time.Minute // for what takes milliseconds
)

// lab is the network, with the balancer on it.
type lab struct {
	star     *netlab.Star
	client   *netlab.Space
	echoes   [servers]*netlab.Echo
	entries  []*xdp.Entry
	balancer *lb.Balancer
	vips     []lb.VIP
	stop     context.CancelFunc
	ended    chan error
}

// newLab builds it and waits until all servers take part.
func newLab(ctx context.Context, mode xdp.Mode) (*lab, error) {
	vip4, vip6 := netip.MustParseAddr("10.77.0.100"), netip.MustParseAddr("fd77::100")
	l := &lab{vips: []lb.VIP{
		{Addr: vip4, Port: 80, Protocol: lb.TCP},
		{Addr: vip6, Port: 80, Protocol: lb.TCP},
		{Addr: vip4, Port: 53, Protocol: lb.UDP},
		{Addr: vip6, Port: 53, Protocol: lb.UDP},
	}}
	err := l.connect(vip4, vip6)
	if err == nil {
		err = l.balance(ctx, mode)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// connect builds the network. The balancer has the virtual addresses; the servers have them, too, and do not say so.
func (l *lab) connect(vip4, vip6 netip.Addr) (err error) {
	names := []string{"client", "lb"}
	for i := range servers {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	if l.star, err = netlab.NewStar(names...); err != nil {
		return err
	}
	l.client = l.star.Spaces[0]
	virtual := []string{vip4.String() + "/32", vip6.String() + "/128"}
	if err := l.star.Spaces[1].Address("eth0", virtual...); err != nil {
		return err
	}
	for i := range servers {
		if err := l.star.Spaces[2+i].Hide(virtual...); err != nil {
			return err
		}
		if err := l.serve(i); err != nil {
			return err
		}
	}
	return nil
}

// serve starts a server.
func (l *lab) serve(i int) (err error) {
	l.echoes[i], err = netlab.NewEcho(l.star.Spaces[2+i], byte(i), 80,
		netip.AddrPortFrom(l.vips[0].Addr, 53), netip.AddrPortFrom(l.vips[1].Addr, 53))
	return err
}

// server is the i-th of a VIP.
func server(v lb.VIP, i int) lb.Server {
	if v.Addr.Is4() {
		return lb.Server{Addr: netlab.Host4(2 + i)}
	}
	return lb.Server{Addr: netlab.Host6(2 + i)}
}

// attach puts an entry on an interface.
func (l *lab) attach(s *netlab.Space, name string, mode xdp.Mode) (entry *xdp.Entry, index int, err error) {
	link, err := s.Link(name)
	if err != nil {
		return nil, 0, err
	}
	index = link.Attrs().Index
	err = s.Do(func() error { entry, err = xdp.Attach(xdp.Config{Interface: index, Mode: mode}); return err })
	if err == nil {
		l.entries = append(l.entries, entry)
	}
	return entry, index, err
}

// balance starts the balancer.
func (l *lab) balance(ctx context.Context, mode xdp.Mode) error {
	// What a virtual interface's program sends back arrives only where the other end has a program as well, and with
	// checksums only where they are not left to the hardware.
	if _, _, err := l.attach(l.star.Fabric, "p-lb", mode); err != nil {
		return err
	}
	if err := l.star.Fabric.ChecksumInSoftware("p-lb"); err != nil {
		return err
	}
	space := l.star.Spaces[1]
	entry, index, err := l.attach(space, "eth0", mode)
	if err != nil {
		return err
	}
	err = space.Do(func() (err error) {
		l.balancer, err = lb.New(lb.Config{Interface: index, CheckInterval: 100 * time.Millisecond, Dial: space.Dial})
		return err
	})
	if err != nil {
		return err
	}
	if err := l.balancer.Install(entry); err != nil {
		return err
	}
	for _, v := range l.vips {
		if err := l.balancer.AddVIP(v, lb.Health{Kind: lb.TCPCheck, Port: 80}); err != nil {
			return err
		}
		for i := range servers {
			if err := l.balancer.AddServer(v, server(v, i)); err != nil {
				return err
			}
		}
	}
	running, stop := context.WithCancel(ctx)
	l.stop, l.ended = stop, make(chan error, 1)
	go func() { l.ended <- space.Do(func() error { return l.balancer.Run(running) }) }()
	return l.await(ctx, func(s lb.ServerStats) bool { return s.Up })
}

// await returns when a condition holds for each server of each VIP.
func (l *lab) await(ctx context.Context, holds func(lb.ServerStats) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		stats, err := l.balancer.Stats()
		if err != nil {
			return err
		}
		all := true
		for _, v := range stats.VIPs {
			all = all && !slices.ContainsFunc(v.Servers, func(s lb.ServerStats) bool { return !holds(s) })
		}
		if all {
			return nil
		}
		select {
		case <-poll.C:
		case err := <-l.ended:
			l.ended <- err
			return fmt.Errorf("the balancer has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the servers' state did not become what it should: %w", ctx.Err())
		}
	}
}

// report prints what was counted.
func (l *lab) report(out io.Writer) error {
	stats, err := l.balancer.Stats()
	if err != nil {
		return err
	}
	slices.SortFunc(stats.VIPs, func(a, b lb.VIPStats) int { return cmp.Compare(a.VIP.String(), b.VIP.String()) })
	for _, v := range stats.VIPs {
		fmt.Fprintf(out, "%-22s %9d packets %12d bytes\n", v.VIP, v.Packets, v.Bytes)
		for _, s := range v.Servers {
			fmt.Fprintf(out, "  %-20s %9d packets %12d bytes, %d placed, %v, up: %t\n",
				s.Addr, s.Packets, s.Bytes, s.Placed, s.State, s.Up)
		}
	}
	reasons := make([]lb.Reason, 0, len(stats.Reasons))
	for r := range stats.Reasons {
		reasons = append(reasons, r)
	}
	slices.Sort(reasons)
	for _, r := range reasons {
		fmt.Fprintf(out, "%-22s %9d packets\n", r.Verdict().String()+": "+r.String(), stats.Reasons[r])
	}
	return nil
}

// close takes everything down.
func (l *lab) close() {
	var errs []error
	if l.stop != nil {
		l.stop()
		<-l.ended
	}
	for _, e := range l.entries {
		errs = append(errs, e.Close())
	}
	if l.balancer != nil {
		errs = append(errs, l.balancer.Close())
	}
	for _, e := range l.echoes {
		if e != nil {
			e.Close()
		}
	}
	if l.star != nil {
		l.star.Close()
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Println("taking down:", err)
	}
}
