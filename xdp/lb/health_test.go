package lb

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStateChangesAfterEnoughChecksInARow(t *testing.T) {
	h := hysteresis{rise: 2, fall: 3}
	for _, tc := range []struct{ checks, want string }{
		{"+++", "+++"},
		{"--", "++"},
		{"---", "++-"},
		{"--+--+", "++++++"},
		{"---+", "++--"},
		{"---++", "++--+"},
		{"---+-+-++", "++------+"},
	} {
		healthy, row, got := true, 0, ""
		for _, c := range tc.checks {
			healthy, row = h.observe(healthy, row, c == '+')
			got += map[bool]string{true: "+", false: "-"}[healthy]
		}
		assert.Equal(t, tc.want, got, "checks %s", tc.checks)
	}
}

func TestChecksOfEachKind(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok", "/":
		case "/moved":
			http.Redirect(w, r, "/broken", http.StatusFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer web.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer udp.Close()
	mangle := make(chan bool, 2)
	mangle <- false
	mangle <- true
	go func() {
		b := make([]byte, 100)
		for broken := range mangle {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			if broken {
				b[0]++
			}
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, tc := range []struct {
		name   string
		health Health
		at     string
		ok     bool
	}{
		{"no check", Health{}, closed.Addr().String(), true},
		{"a port that listens", Health{Kind: TCPCheck}, web.Listener.Addr().String(), true},
		{"a port that does not", Health{Kind: TCPCheck}, closed.Addr().String(), false},
		{"no path", Health{Kind: HTTPCheck}, web.Listener.Addr().String(), true},
		{"status 200", Health{Kind: HTTPCheck, Path: "/ok"}, web.Listener.Addr().String(), true},
		{"a redirection is not followed", Health{Kind: HTTPCheck, Path: "/moved"}, web.Listener.Addr().String(), true},
		{"status 503", Health{Kind: HTTPCheck, Path: "/broken"}, web.Listener.Addr().String(), false},
		{"HTTP of nobody", Health{Kind: HTTPCheck}, closed.Addr().String(), false},
		{"an echo", Health{Kind: UDPCheck}, udp.LocalAddr().String(), true},
		{"another echo", Health{Kind: UDPCheck}, udp.LocalAddr().String(), false},
	} {
		at := netip.MustParseAddrPort(tc.at)
		err := tc.health.probe(ctx, at.Addr(), at.Port(), new(net.Dialer).DialContext)
		assert.Equal(t, tc.ok, err == nil, "%s: %v", tc.name, err)
	}
	over, cancelled := context.WithCancel(ctx)
	cancelled()
	at := netip.MustParseAddrPort(web.Listener.Addr().String())
	assert.Error(t, Health{Kind: HTTPCheck}.probe(over, at.Addr(), at.Port(), new(net.Dialer).DialContext), "out of time")
}
