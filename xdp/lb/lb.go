// Package lb is a load balancer on layer 4 that runs in the driver (XDP), with direct server return: packets to a
// virtual address (VIP) go to one of its servers, and the server replies to the client without passing here again.
// The servers have the VIP as an address of their own that they don't tell the network.
//
// A new connection goes where a Maglev table says, which several balancers with the same servers agree on. Then it
// is in a table of connections and stays with its server, also while that is drained. Both are bounded: when the
// table is full the connections that were idle longest fall back to the Maglev table, and so do those that came
// faster than the limit.
//
// What is decided for each packet, and why, is counted: see Reason. Linux only.
package lb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/xdp/internal/maglev"
)

// Errors that callers branch on.
var (
	ErrConfig   = errors.New("invalid configuration")
	ErrExists   = errors.New("is there already")
	ErrNotFound = errors.New("is not there")
	ErrFull     = errors.New("no room left")
)

// Protocol is a transport protocol by its number in IP.
type Protocol uint8

// Protocols that are balanced.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// String returns the protocol's name.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("Protocol(%d)", uint8(p))
}

// VIP is a virtual address: what clients connect to.
type VIP struct {
	Addr netip.Addr
	// Port is the destination port. Zero stands for all ports that no other VIP of this address and protocol has.
	Port     uint16
	Protocol Protocol
}

// String returns the VIP as tcp/192.0.2.1:80.
func (v VIP) String() string {
	return v.Protocol.String() + "/" + netip.AddrPortFrom(v.Addr, v.Port).String()
}

// Server is one of those who serve a VIP.
type Server struct {
	Addr netip.Addr
	// Weight is its share of new connections, relative to the VIP's other servers: 1 to 1000. Zero means 1.
	Weight uint16
	// Tunnel sends packets to it inside other IP packets (RFC 2003, RFC 2473), for servers behind a router. Otherwise
	// it is on the interface's own network, and only the destination MAC is changed.
	Tunnel bool
}

// State is what a server gets.
type State uint8

// States of servers.
const (
	Active   State = iota + 1 // new connections
	Draining                  // only the connections it has
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Active:
		return "active"
	case Draining:
		return "draining"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Limits of Config.
const (
	MaxVIPs    = 4096
	MaxServers = maglev.Empty - 1
	MaxFlows   = 1 << 26
)

// Config configures a Balancer. Zero values of fields other than Interface mean the defaults that they state.
type Config struct {
	// Interface is the index of the interface whose packets are balanced.
	Interface int
	// PinPath is a directory on a BPF file system in which VIPs, servers and connections outlive the process; New takes
	// over what it finds there. The fields of this Config that size something have to be the same then. Empty: they end
	// with the Balancer.
	PinPath string

	// MaxVIPs bounds the VIPs: 64, at most MaxVIPs. Each has a ring of RingSize cells of 2 bytes. More: ErrFull.
	MaxVIPs int
	// MaxServers bounds the servers of all VIPs together: 1024, at most MaxServers. More: ErrFull.
	MaxServers int
	// RingSize is the number of cells of a Maglev table, a power of two from 256 to 65536, which is the default. A VIP
	// has at most so many servers, and their shares are exact to a cell.
	RingSize int
	// MaxFlows bounds the connections that are remembered: 262,144 (about 25 MB), at most MaxFlows. Each possible
	// processor has an equal share of them, and at its bound forgets the one of its own that was idle longest.
	MaxFlows int
	// FlowsPerSecond bounds how many connections a processor adds to the table in a second: 125,000, and as many again
	// for those whose beginning was not seen, so that a flood of SYNs costs no more than looking up and leaves room for
	// what is established. What is above goes by the Maglev table. Negative: no connection is remembered.
	FlowsPerSecond int

	// HashSeed is part of the hash by which packets find their cell. Balancers that share VIPs have the same.
	HashSeed uint64
	// TunnelSource4 and TunnelSource6 are the source addresses of packets that carry others. Without one, no server that
	// has an address of this family can be a Tunnel.
	TunnelSource4, TunnelSource6 netip.Addr

	// CheckInterval is the pause between two health checks of a server: a second.
	CheckInterval time.Duration
	// CheckTimeout is when a check has failed: a second.
	CheckTimeout time.Duration
	// Rise and Fall are how many checks in a row have to succeed until a server that is down is up, and to fail until
	// one that is up is down: 2 and 3. A server's first check decides alone.
	Rise, Fall int
	// Dial connects for health checks. Nil means that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// defaults returns the configuration with zero values filled in. The error wraps ErrConfig.
func (c Config) defaults() (Config, error) {
	for _, f := range []struct {
		name             string
		value            *int
		zero, least, max int
	}{
		{"MaxVIPs", &c.MaxVIPs, 64, 1, MaxVIPs},
		{"MaxServers", &c.MaxServers, 1024, 1, MaxServers},
		{"RingSize", &c.RingSize, maglev.MaxSize, maglev.MinSize, maglev.MaxSize},
		{"MaxFlows", &c.MaxFlows, 1 << 18, 1, MaxFlows},
		{"FlowsPerSecond", &c.FlowsPerSecond, 125_000, -1, 1_000_000_000},
		{"Rise", &c.Rise, 2, 1, 1000},
		{"Fall", &c.Fall, 3, 1, 1000},
	} {
		if *f.value == 0 {
			*f.value = f.zero
		}
		if *f.value < f.least || *f.value > f.max {
			return c, fmt.Errorf("lb: %s is %d, want %d to %d: %w", f.name, *f.value, f.least, f.max, ErrConfig)
		}
	}
	if c.RingSize&(c.RingSize-1) != 0 {
		return c, fmt.Errorf("lb: RingSize is %d, want a power of two: %w", c.RingSize, ErrConfig)
	}
	for _, f := range []struct {
		name  string
		value *time.Duration
	}{{"CheckInterval", &c.CheckInterval}, {"CheckTimeout", &c.CheckTimeout}} {
		if *f.value == 0 {
			*f.value = time.Second
		}
		if *f.value < 0 {
			return c, fmt.Errorf("lb: %s is %v, want more than 0: %w", f.name, *f.value, ErrConfig)
		}
	}
	if c.TunnelSource4.IsValid() && !c.TunnelSource4.Is4() || c.TunnelSource6.IsValid() && !c.TunnelSource6.Is6() {
		return c, fmt.Errorf("lb: tunnels from %v and %v: %w", c.TunnelSource4, c.TunnelSource6, ErrConfig)
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c, nil
}

// check returns an error that wraps ErrConfig where a VIP is none.
func (v VIP) check() error {
	if !v.Addr.IsValid() || v.Addr.Is4In6() || v.Addr.Zone() != "" || v.Protocol != TCP && v.Protocol != UDP {
		return fmt.Errorf("lb: VIP %v: %w", v, ErrConfig)
	}
	return nil
}

// check does it for a server.
func (s Server) check(cfg Config) error {
	if !s.Addr.IsValid() || s.Addr.Is4In6() || s.Addr.Zone() != "" || s.Weight > maglev.MaxWeight {
		return fmt.Errorf("lb: server %v with weight %d: %w", s.Addr, s.Weight, ErrConfig)
	}
	source := cfg.TunnelSource6
	if s.Addr.Is4() {
		source = cfg.TunnelSource4
	}
	if s.Tunnel && !source.IsValid() {
		return fmt.Errorf("lb: tunnel to %v without a source address: %w", s.Addr, ErrConfig)
	}
	return nil
}
