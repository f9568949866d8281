package sim

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/weirnet/weir/transport"
)

// address is a TCP or a Unix address.
type address struct {
	network string // "tcp" or "unix"
	ap      netip.AddrPort
	path    string
}

// parseAddress reads what transport.ListenConfig and DialConfig say.
func parseAddress(network, text string) (address, error) {
	switch network {
	case "unix":
		if text == "" {
			return address{}, fmt.Errorf("no path: %w", syscall.EINVAL)
		}
		return address{network: "unix", path: text}, nil
	case "tcp", "tcp4", "tcp6":
	default:
		return address{}, fmt.Errorf("network %q: %w", network, transport.ErrNotSupported)
	}
	if strings.HasPrefix(text, ":") {
		text = map[string]string{"tcp": "[::]", "tcp4": "0.0.0.0", "tcp6": "[::]"}[network] + text
	}
	ap, err := netip.ParseAddrPort(text)
	if err != nil {
		return address{}, fmt.Errorf("%w: %w", syscall.EINVAL, err)
	}
	ap = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	if network == "tcp4" && !ap.Addr().Is4() || network == "tcp6" && !ap.Addr().Is6() {
		return address{}, fmt.Errorf("%s is not of %s: %w", ap, network, syscall.EAFNOSUPPORT)
	}
	return address{network: "tcp", ap: ap}, nil
}

func (a address) unix() bool { return a.network == "unix" }

// reachable is the loopback address for "any address", as connect(2) takes it.
func (a address) reachable() address {
	switch {
	case !a.ap.Addr().IsUnspecified():
	case a.ap.Addr().Is4():
		a.ap = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.ap.Port())
	default:
		a.ap = netip.AddrPortFrom(netip.IPv6Loopback(), a.ap.Port())
	}
	return a
}

func (a address) net() net.Addr {
	if a.unix() {
		return &net.UnixAddr{Net: "unix", Name: a.path}
	}
	return net.TCPAddrFromAddrPort(a.ap)
}

func (a address) String() string {
	if a.unix() {
		return "unix " + a.path
	}
	return a.ap.String()
}
