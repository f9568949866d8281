//go:build linux

package sys

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSockaddrRoundTrip(t *testing.T) {
	var sa Sockaddr
	for _, c := range []struct {
		family int
		in     string
		want   string
		size   uint32
	}{
		{unix.AF_INET, "1.2.3.4:258", "1.2.3.4:258", 16},
		{unix.AF_INET, "[::ffff:1.2.3.4]:80", "1.2.3.4:80", 16},
		{unix.AF_INET, "[::]:80", "0.0.0.0:80", 16},
		{unix.AF_INET6, "[2001:db8::1]:65535", "[2001:db8::1]:65535", 28},
		{unix.AF_INET6, "1.2.3.4:80", "1.2.3.4:80", 28},
	} {
		sa.SetAddrPort(c.family, netip.MustParseAddrPort(c.in), 0)
		require.Equal(t, c.want, sa.AddrPort().String())
		require.Equal(t, c.size, sa.Size())
		require.Equal(t, c.family, sa.Family())
		require.Equal(t, c.want, sa.NetAddr().String())
		require.Empty(t, sa.Path())
	}
	for path, size := range map[string]uint32{
		"/a": 5, "@ab": 5, "@a\x00b": 6, strings.Repeat("p", 107): 110,
	} {
		sa.SetUnix(path)
		require.Equal(t, path, sa.Path())
		require.Equal(t, size, sa.Size())
		require.Equal(t, &net.UnixAddr{Name: path, Net: "unix"}, sa.NetAddr())
		require.False(t, sa.AddrPort().IsValid())
	}
	sa = Sockaddr{}
	require.Nil(t, sa.NetAddr())
}

func TestZonesAreNamedLikeNetDoes(t *testing.T) {
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	require.NotEmpty(t, interfaces)
	ifi := interfaces[0]
	a, err := ParseAddress("tcp6", "[fe80::1%"+ifi.Name+"]:80")
	require.NoError(t, err)
	require.EqualValues(t, ifi.Index, a.Zone)
	var sa Sockaddr
	a.sockaddr(&sa, unix.AF_INET6)
	require.Equal(t, "[fe80::1%"+ifi.Name+"]:80", sa.AddrPort().String())
	sa.SetAddrPort(unix.AF_INET6, a.AddrPort, 1<<30)
	require.Equal(t, "[fe80::1%1073741824]:80", sa.AddrPort().String())
}

func TestAddressesAllocateNothing(t *testing.T) {
	var sa Sockaddr
	v4, v6 := netip.MustParseAddrPort("1.2.3.4:80"), netip.MustParseAddrPort("[::1]:80")
	allocs := testing.AllocsPerRun(100, func() {
		for _, ap := range []netip.AddrPort{v4, v6} {
			sa.SetAddrPort(unix.AF_INET6, ap, 0)
			if sa.AddrPort() != ap {
				t.Fatal(sa.AddrPort())
			}
		}
	})
	require.Zero(t, allocs)
}
