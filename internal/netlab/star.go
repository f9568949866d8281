//go:build linux

package netlab

import (
	"fmt"
	"net/netip"
)

// Star is a bridge with namespaces around it. Each has one interface, eth0, with an address of each family. The
// i-th, from 0, has 10.77.0.(i+1) and fd77::(i+1).
type Star struct {
	Fabric *Space
	Spaces []*Space
}

// NewStar makes a star of namespaces with these names. The bridge's port to each is p-NAME.
func NewStar(names ...string) (*Star, error) {
	s := &Star{}
	err := s.build(names)
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Star) build(names []string) (err error) {
	if s.Fabric, err = NewSpace("fabric"); err != nil {
		return err
	}
	// A bridge that speaks IPv6 itself disturbs the others' neighbour discovery.
	for _, which := range []string{"all", "default"} {
		if err = s.Fabric.Sysctl("net/ipv6/conf/"+which+"/disable_ipv6", "1"); err != nil {
			return err
		}
	}
	var ports []string
	for i, name := range names {
		space, err := NewSpace(name)
		if err != nil {
			return err
		}
		s.Spaces = append(s.Spaces, space)
		ports = append(ports, "p-"+name)
		if err := Join(space, "eth0", s.Fabric, "p-"+name); err != nil {
			return err
		}
		if err := space.Address("eth0", Host4(i).String()+"/24", Host6(i).String()+"/64"); err != nil {
			return err
		}
	}
	return s.Fabric.Bridge("br0", ports...)
}

// Host4 is the IPv4 address of a star's i-th namespace.
func Host4(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)}) }

// Host6 is its IPv6 address.
func Host6(i int) netip.Addr {
	a, err := netip.ParseAddr(fmt.Sprintf("fd77::%x", i+1))
	if err != nil {
		panic(err) // not for any i ≥ 0
	}
	return a
}

// Close gives all of it up.
func (s *Star) Close() {
	for _, space := range s.Spaces {
		space.Close()
	}
	if s.Fabric != nil {
		s.Fabric.Close()
	}
}
