//go:build linux

package weir_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/testenv"
)

// resolver returns a net.Resolver for which every name has these addresses. It asks a name server of its own on
// loopback.
func resolver(t *testing.T, ips ...string) *net.Resolver {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(reply(query[:n], ips), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// reply is the response to a query for A records (RFC 1035, 4.1): the header, the question, and a record for each
// address. Queries of other types get an empty response.
func reply(query []byte, ips []string) []byte {
	end := 12
	for end < len(query) && query[end] != 0 { // the labels of the name
		end += 1 + int(query[end])
	}
	end += 1 + 4 // the empty label, type and class
	if end > len(query) {
		return nil
	}
	const typeA, classIN = 1, 1
	if binary.BigEndian.Uint16(query[end-4:]) != typeA {
		ips = nil
	}
	b := append([]byte(nil), query[:2]...)
	b = append(b, 0x81, 0x80)               // a response, without an error
	b = binary.BigEndian.AppendUint16(b, 1) // questions
	b = binary.BigEndian.AppendUint16(b, uint16(len(ips)))
	b = append(b, 0, 0, 0, 0)
	b = append(b, query[12:end]...)
	for _, ip := range ips {
		b = append(b, 0xc0, 12) // the name is that of the question
		b = binary.BigEndian.AppendUint16(b, typeA)
		b = binary.BigEndian.AppendUint16(b, classIN)
		b = binary.BigEndian.AppendUint32(b, 60)
		b = binary.BigEndian.AppendUint16(b, 4)
		b = append(b, netip.MustParseAddr(ip).AsSlice()...)
	}
	return b
}

// silentResolver asks a name server that does not reply, and tells when it does.
func silentResolver() (r *net.Resolver, asked chan struct{}) {
	asked = make(chan struct{}, 10)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}, asked
}

func TestADialThatResolvesEndsWithItsDialerAndItsServer(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(d *weir.Dialer, srv *weir.Server) error
		want error
	}{
		{"Dialer.Close", func(d *weir.Dialer, _ *weir.Server) error { return d.Close() }, weir.ErrDialerClosed},
		{"Dialer.Shutdown", func(d *weir.Dialer, _ *weir.Server) error {
			return d.Shutdown(context.Background())
		}, weir.ErrDialerClosed},
		{"Close of a Dialer on a server", func(d *weir.Dialer, srv *weir.Server) error {
			return errors.Join(d.Close(), srv.Close())
		}, weir.ErrDialerClosed},
		{"Server.Close", func(_ *weir.Dialer, srv *weir.Server) error { return srv.Close() }, weir.ErrServerClosed},
		{"Server.Shutdown", func(_ *weir.Dialer, srv *weir.Server) error {
			return srv.Shutdown(context.Background())
		}, weir.ErrServerClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, srv := &weir.Dialer{}, &weir.Server{Init: initEcho, Loops: 1, Logger: quiet()}
			if strings.Contains(strings.ToLower(tc.name), "server") {
				d.Server = srv
			}
			var asked chan struct{}
			d.Resolver, asked = silentResolver()
			require.NoError(t, ready(d))
			dialed := make(chan error, 1)
			go func() {
				_, err := d.Dial(context.Background(), "tcp", "silent.test:1", nil)
				dialed <- err
			}()
			receive(t, asked, "a question")
			require.NoError(t, tc.end(d, srv))
			err := receive(t, dialed, "Dial's result")
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, "look up silent.test")
			require.NoError(t, srv.Close())
		})
	}
}

// loopbacks are addresses of this host.
func loopbacks() []string { return []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} }

func TestDialTriesTheNextAddressWhenOneRefuses(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, serving := range loopbacks() {
			addr := listen(t, "tcp", serving+":0", echoing)
			_, port, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			d := startDialer(t, &weir.Dialer{
				Transport: kind, Resolver: resolver(t, loopbacks()...),
				FallbackDelay: -1, // only when one has failed
			})
			got := make(chan string, 1)
			ref, err := d.Dial(background(t), "tcp", "many.test:"+port, only(func() any { return collector{got} }))
			require.NoError(t, err, "served by %s", serving)
			require.NoError(t, ref.TryWrite([]byte("found")))
			assert.Equal(t, "found", receive(t, got, "the echo"))
		}
		d := startDialer(t, &weir.Dialer{Transport: kind, Resolver: resolver(t, loopbacks()...)})
		_, err := d.Dial(background(t), "tcp", "many.test:1", nil)
		require.ErrorContains(t, err, "many.test:1")
		require.True(t, strings.Contains(err.Error(), "refused"), "%v", err)
	})
}

func TestDialTriesTheNextAddressBesideOneThatHangs(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		_, port, err := net.SplitHostPort(full(t)) // on 127.0.0.1
		require.NoError(t, err)
		const answering = "127.0.0.2"
		served := make(chan struct{}, 10)
		l, err := net.Listen("tcp", net.JoinHostPort(answering, port))
		testenv.Require(t, "a second loopback address", err)
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				served <- struct{}{}
				defer c.Close()
			}
		}()
		for _, order := range [][]string{{"127.0.0.1", answering}, {answering, "127.0.0.1"}} {
			d := startDialer(t, &weir.Dialer{Transport: kind, Resolver: resolver(t, order...), FallbackDelay: time.Millisecond})
			_, err = d.Dial(background(t), "tcp", "some.test:"+port, nil)
			require.NoError(t, err, "%v", order)
			receive(t, served, "a connection")
			eventually(t, func() bool { // the attempt that hung is given up
				st, err := d.Stats(background(t))
				return err == nil && st.Loops[0].Kernel.Open == 1
			}, "one socket")
		}
	})
}

func TestTheFastestOfSeveralAddressesWinsAndTheOthersLeaveNothing(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		first := listen(t, "tcp", loopbacks()[0]+":0", echoing)
		_, port, err := net.SplitHostPort(first)
		require.NoError(t, err)
		for _, ip := range loopbacks()[1:] {
			listen(t, "tcp", net.JoinHostPort(ip, port), echoing)
		}
		d := startDialer(t, &weir.Dialer{
			Transport: kind, Resolver: resolver(t, loopbacks()...),
			FallbackDelay: 1, // all at once
		})
		const dials = 100
		require.NoError(t, all(dials, func(int) error {
			ref, err := d.Dial(context.Background(), "tcp", "many.test:"+port, nil)
			if err != nil {
				return err
			}
			select {
			case <-ref.Closed():
				return errors.New("the winner was closed")
			default:
				return nil
			}
		}))
		eventually(t, func() bool {
			st, err := d.Stats(background(t))
			return err == nil && st.Open == dials && st.Loops[0].Kernel.Open == dials
		}, "one channel for each dial")
	})
}
