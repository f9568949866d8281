package sys

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ErrAddress is wrapped by what ParseAddress returns for an address it does not understand.
var ErrAddress = errors.New("bad address")

// maxUnixPath is the room for a path in sockaddr_un without the terminating zero (unix(7)).
const maxUnixPath = 107

// Address is a parsed network and address.
type Address struct {
	// Network is "tcp4", "tcp6" or "unix", with "tcp" resolved to the family that is tried first.
	Network string
	// IP and port; the zone is Zone. Not valid for "unix".
	AddrPort netip.AddrPort
	// Zone is the index of an IPv6 zone's interface, 0 without a zone.
	Zone uint32
	// Path of a Unix socket; a leading '@' is the abstract name space.
	Path string
	// Wildcard: "tcp" without a host or with [::], which stands for all addresses of both families.
	Wildcard bool
}

// ParseAddress understands "tcp", "tcp4" and "tcp6" with an IP literal (IPv6 in brackets, perhaps with a zone) or
// nothing and a numeric port, and "unix" with a path or an abstract name "@x". It resolves no names.
func ParseAddress(network, address string) (Address, error) {
	switch network {
	case "unix":
		if address == "" || len(address) > maxUnixPath {
			return Address{}, fmt.Errorf("%w: unix path %q has %d bytes, not 1 to %d", ErrAddress, address,
				len(address), maxUnixPath)
		}
		return Address{Network: network, Path: address}, nil
	case "tcp", "tcp4", "tcp6":
		return parseTCP(network, address)
	default:
		return Address{}, fmt.Errorf("%w: unknown network %q", ErrAddress, network)
	}
}

// Abstract reports whether a Unix socket's name is in the abstract name space, where no file belongs to it.
func (a *Address) Abstract() bool {
	return a.Network == "unix" && (a.Path[0] == '@' || a.Path[0] == 0)
}

func parseTCP(network, address string) (Address, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return Address{}, fmt.Errorf("%w: %s %q: %w", ErrAddress, network, address, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("%w: %s %q: port %q is not a number below 65536", ErrAddress, network, address,
			portText)
	}
	if host == "" {
		a := Address{Network: network, AddrPort: netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port))}
		switch network {
		case "tcp4":
			a.AddrPort = netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port))
		case "tcp":
			a.Network, a.Wildcard = "tcp6", true
		}
		return a, nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return Address{}, fmt.Errorf("%w: %s %q: %w", ErrAddress, network, address, err)
	}
	zoneName := ip.Zone()
	ip = ip.WithZone("").Unmap()
	if (network == "tcp4" && !ip.Is4()) || (network == "tcp6" && ip.Is4()) {
		return Address{}, fmt.Errorf("%w: %s %q: other address family", ErrAddress, network, address)
	}
	zone, err := zoneIndex(zoneName)
	if err != nil {
		return Address{}, fmt.Errorf("%w: %s %q: %w", ErrAddress, network, address, err)
	}
	a := Address{Network: "tcp4", AddrPort: netip.AddrPortFrom(ip, uint16(port)), Zone: zone}
	if ip.Is6() {
		a.Network = "tcp6"
		a.Wildcard = network == "tcp" && ip.IsUnspecified()
	}
	return a, nil
}

// zoneIndex returns the interface index of an IPv6 zone, which is an interface's name or its index.
func zoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if ifi, err := net.InterfaceByName(zone); err == nil {
		return uint32(ifi.Index), nil
	}
	n, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("no interface %q", zone)
	}
	return uint32(n), nil
}

// zoneName is the inverse of zoneIndex.
func zoneName(index uint32) string {
	if index == 0 {
		return ""
	}
	if ifi, err := net.InterfaceByIndex(int(index)); err == nil {
		return ifi.Name
	}
	return strconv.FormatUint(uint64(index), 10)
}

// unixName is the name that net gives a Unix socket: '@' stands for the zero byte of the abstract name space.
func unixName(path string) string {
	if strings.HasPrefix(path, "\x00") {
		return "@" + path[1:]
	}
	return path
}
