package weir

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// resolve returns the literal addresses that a name stands for, in the order in which to try them. Caller's goroutine.
func (d *Dialer) resolve(ctx context.Context, until ending, network, address string) ([]string, error) {
	family := "ip"
	switch network {
	case "unix":
		return []string{address}, nil
	case "tcp":
	case "tcp4", "tcp6":
		family = "ip" + network[3:]
	default:
		return nil, net.UnknownNetworkError(network)
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	resolver := d.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	port, err := resolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	if host == "" { // as in package net
		host = "127.0.0.1"
		if network == "tcp6" {
			host = "::1"
		}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{net.JoinHostPort(host, strconv.Itoa(port))}, nil
	}
	ctx, cancel := until.context(ctx)
	defer cancel(nil)
	ips, err := resolver.LookupNetIP(ctx, family, host)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("look up %s: %w", host, cause)
		}
		return nil, err
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("%s has no %s address", host, family)
	}
	addresses := make([]string, 0, len(ips))
	for _, ip := range alternate(ips) {
		addresses = append(addresses, net.JoinHostPort(ip.String(), strconv.Itoa(port)))
	}
	return addresses, nil
}

// context returns a context that ends with ctx, or with what ends the Dial beside it, which is then its cause. cancel
// must be called.
func (u ending) context(ctx context.Context) (_ context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(ctx)
	go func() {
		select {
		case <-u.ended:
			cancel(ErrDialerClosed)
		case <-u.engine.stopped:
			cancel(u.why())
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// alternate lets the families take turns, beginning with the resolver's first choice (RFC 8305, 4): when one family
// does not work at all, the second attempt is already of the other.
func alternate(ips []netip.Addr) []netip.Addr {
	var same, other []netip.Addr
	for i, ip := range ips {
		ip = ip.Unmap()
		ips[i] = ip
		if ip.Is4() == ips[0].Is4() {
			same = append(same, ip)
		} else {
			other = append(other, ip)
		}
	}
	mixed := make([]netip.Addr, 0, len(ips))
	for len(same) > 0 || len(other) > 0 {
		if len(same) > 0 {
			mixed, same = append(mixed, same[0]), same[1:]
		}
		if len(other) > 0 {
			mixed, other = append(mixed, other[0]), other[1:]
		}
	}
	return mixed
}
