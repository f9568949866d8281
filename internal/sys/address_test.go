package sys

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseAddress(t *testing.T) {
	ap := netip.MustParseAddrPort
	for _, c := range []struct {
		network, address string
		want             Address
	}{
		{"tcp", "127.0.0.1:80", Address{Network: "tcp4", AddrPort: ap("127.0.0.1:80")}},
		{"tcp", "0.0.0.0:0", Address{Network: "tcp4", AddrPort: ap("0.0.0.0:0")}},
		{"tcp", "[::1]:65535", Address{Network: "tcp6", AddrPort: ap("[::1]:65535")}},
		{"tcp", "[::ffff:1.2.3.4]:1", Address{Network: "tcp4", AddrPort: ap("1.2.3.4:1")}},
		{"tcp", ":80", Address{Network: "tcp6", AddrPort: ap("[::]:80"), Wildcard: true}},
		{"tcp", "[::]:80", Address{Network: "tcp6", AddrPort: ap("[::]:80"), Wildcard: true}},
		{"tcp4", ":80", Address{Network: "tcp4", AddrPort: ap("0.0.0.0:80")}},
		{"tcp6", ":80", Address{Network: "tcp6", AddrPort: ap("[::]:80")}},
		{"tcp6", "[::]:80", Address{Network: "tcp6", AddrPort: ap("[::]:80")}},
		{"tcp", "[fe80::1%7]:80", Address{Network: "tcp6", AddrPort: ap("[fe80::1]:80"), Zone: 7}},
		{"unix", "/a/b", Address{Network: "unix", Path: "/a/b"}},
		{"unix", "@a", Address{Network: "unix", Path: "@a"}},
		{"unix", strings.Repeat("x", 107), Address{Network: "unix", Path: strings.Repeat("x", 107)}},
	} {
		got, err := ParseAddress(c.network, c.address)
		require.NoError(t, err, "%s %s", c.network, c.address)
		require.Equal(t, c.want, got, "%s %s", c.network, c.address)
	}
	for _, c := range [][2]string{
		{"tcp", ""},
		{"tcp", "127.0.0.1"},
		{"tcp", "127.0.0.1:"},
		{"tcp", "127.0.0.1:http"},
		{"tcp", "127.0.0.1:-1"},
		{"tcp", "127.0.0.1:65536"},
		{"tcp", "localhost:80"},
		{"tcp", "::1:80"},
		{"tcp", "[fe80::1%no-such-interface]:80"},
		{"tcp4", "[::1]:80"},
		{"tcp6", "1.2.3.4:80"},
		{"udp", "1.2.3.4:80"},
		{"", ""},
		{"unix", ""},
		{"unix", strings.Repeat("x", 108)},
	} {
		_, err := ParseAddress(c[0], c[1])
		require.ErrorIs(t, err, ErrAddress, "%v", c)
	}
}

func TestAbstract(t *testing.T) {
	for path, want := range map[string]bool{"@x": true, "\x00x": true, "x": false, "/@": false} {
		a, err := ParseAddress("unix", path)
		require.NoError(t, err)
		require.Equal(t, want, a.Abstract(), "%q", path)
	}
}

func TestTheClockRuns(t *testing.T) {
	c := NewClock()
	before := c.Now()
	for c.Now() == before { // not before the clock's next tick
	}
	require.Positive(t, c.Now())
}
