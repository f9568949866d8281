package channel_test

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/handlers/proxyproto"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// forgetful is a transport that does not know who its peers are.
type forgetful struct{ transport.Transport }

func (f forgetful) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	out, err := f.Transport.Wait(dst, timeout)
	for i := range out {
		out[i].Addr, out[i].Unix = netip.AddrPort{}, false
	}
	return out, err
}

// TestWhoAPeerIs decides whom handlers trust: a peer of which it is not known who it is passes no deny list and no
// TrustUnix, whoever else may.
func TestWhoAPeerIs(t *testing.T) {
	filter := func() any {
		f, err := ipfilter.New(ipfilter.Config{Deny: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}})
		require.NoError(t, err)
		return f
	}
	proxy := func() any {
		d, err := proxyproto.NewDecoder(proxyproto.DecoderConfig{TrustUnix: true})
		require.NoError(t, err)
		return d
	}
	tcp := transport.DialConfig{Network: "tcp", Address: "10.0.0.1:7000"}
	unix := transport.DialConfig{Network: "unix", Address: "/s"}
	for _, tc := range []struct {
		name    string
		to      transport.DialConfig
		unknown bool
		network string
		handler func() any
		passes  bool
	}{
		{"TCP, deny list", tcp, false, "tcp", filter, true},
		{"Unix, deny list", unix, false, "unix", filter, true},
		{"unknown, deny list", tcp, true, "unknown", filter, false},
		{"unknown on a Unix socket, deny list", unix, true, "unknown", filter, false},
		{"TCP, TrustUnix", tcp, false, "tcp", proxy, false},
		{"Unix, TrustUnix", unix, false, "unix", proxy, true},
		{"unknown, TrustUnix", tcp, true, "unknown", proxy, false},
		{"unknown on a Unix socket, TrustUnix", unix, true, "unknown", proxy, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			world := sim.NewWorld(1, sim.Config{})
			open := func(unknown bool) *loop.Loop {
				l, err := loop.New(loop.Config{
					Logger: slog.New(slog.DiscardHandler),
					Open: func(bool) (transport.Transport, error) {
						if unknown {
							return forgetful{world.Open()}, nil
						}
						return world.Open(), nil
					},
				})
				require.NoError(t, err)
				require.NoError(t, l.Open())
				t.Cleanup(func() { require.NoError(t, l.Close()) })
				return l
			}
			server, client := open(tc.unknown), open(false)
			seen := &probe{}
			var remote net.Addr
			closed := 0
			_, err := channel.Listen(server, channel.ListenerConfig{
				Transport: transport.ListenConfig{Network: tc.to.Network, Address: tc.to.Address},
				Channel: &channel.Config{
					Init: initWith(func() []any { return []any{tc.handler(), seen} }),
					Closed: func(c *channel.Channel) {
						closed++
						remote = c.RemoteAddr()
					},
				},
			})
			require.NoError(t, err)
			var dialed *channel.Channel
			channel.Dial(client, &tc.to, nil, func(c *channel.Channel, err error) {
				require.NoError(t, err)
				dialed = c
				require.Equal(t, tc.to.Network, c.RemoteAddr().Network())
				hello := buffer.Wrap([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nhello"))
				require.NoError(t, c.Pipeline().Write(hello))
				hello.Release()
			})
			for range 200 {
				for _, l := range []*loop.Loop{server, client} {
					_, err := l.RunOnce(time.Millisecond)
					require.NoError(t, err)
				}
				if dialed != nil && seen.got.Len() > 0 {
					dialed.Close(nil)
				}
			}
			require.Equal(t, tc.passes, seen.got.Len() > 0, "%q", seen.got.String())
			require.Equal(t, 1, closed)
			require.Equal(t, tc.network, remote.Network())
			require.NotEmpty(t, remote.Network()+remote.String())
		})
	}
}
