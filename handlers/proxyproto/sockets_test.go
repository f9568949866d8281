//go:build linux

package proxyproto_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/proxyproto"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
)

const patience = servertest.Patience

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// teller replies with what the header says, and then with what it receives.
type teller struct{}

func (teller) ChannelEvent(ctx *pipeline.Context, event any) error {
	h := event.(*proxyproto.Header)
	if h.Local {
		return ctx.Write("local\n")
	}
	id, _ := h.TLV(proxyproto.TypeUniqueID)
	_, sum := h.TLV(proxyproto.TypeCRC32C)
	return ctx.Write(fmt.Sprintf("%d %v %v %q %v\n", h.Version, h.Protocol, h.Source, id, sum))
}

func (teller) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

// serve returns the address of a server of tellers.
func serve(t *testing.T, kind weir.Kind) string {
	return servertest.Serve(t, kind, func() ([]any, error) {
		d, err := proxyproto.NewDecoder(proxyproto.DecoderConfig{Trusted: loopback})
		return []any{d, teller{}}, err
	})
}

func eachTransport(t *testing.T, test func(t *testing.T, address string)) {
	servertest.Each(t, func(t *testing.T, kind weir.Kind) { test(t, serve(t, kind)) })
}

// ask sends the pieces, finishes sending and returns everything that comes back, and the address it asked from.
func ask(t *testing.T, address string, pieces ...string) (answer, from string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	for _, p := range pieces {
		_, err = io.WriteString(c, p)
		require.NoError(t, err)
	}
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	all, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(all), c.LocalAddr().String()
}

func TestOverRealSockets(t *testing.T) {
	eachTransport(t, func(t *testing.T, address string) {
		answer, _ := ask(t, address, line4+"hello")
		assert.Equal(t, "1 TCP4 192.168.0.1:56324 \"\" false\nhello", answer)

		h := header4(2, proxyproto.TLV{Type: proxyproto.TypeCRC32C},
			proxyproto.TLV{Type: proxyproto.TypeUniqueID, Value: []byte("id")})
		wire, err := h.AppendTo(nil)
		require.NoError(t, err)
		large := strings.Repeat("x", 300<<10)
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		failed := make(chan error, 1)
		go func() {
			var err error
			for i := 0; i < len(wire) && err == nil; i++ {
				_, err = c.Write(wire[i : i+1])
			}
			if err == nil {
				_, err = io.WriteString(c, large)
			}
			if err == nil {
				err = c.(*net.TCPConn).CloseWrite()
			}
			failed <- err
		}()
		all, err := io.ReadAll(c)
		require.NoError(t, err)
		require.NoError(t, <-failed)
		assert.True(t, "2 TCP4 192.168.0.1:56324 \"id\" true\n"+large == string(all), "%d bytes", len(all))
	})
}

// TestHAProxy lets a real proxy (Debian's package haproxy) send the headers.
func TestHAProxy(t *testing.T) {
	program, err := exec.LookPath("haproxy")
	testenv.Require(t, "haproxy", err)
	for _, c := range []struct{ options, want string }{
		{"send-proxy", "1 TCP4 %s \"\" false\n"},
		{"send-proxy-v2", "2 TCP4 %s \"\" false\n"},
		{"send-proxy-v2 proxy-v2-options crc32c,unique-id", "2 TCP4 %s \"weir-7\" true\n"},
	} {
		t.Run(c.options, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, address string) {
				front := runHAProxy(t, program, address, c.options)
				answer, from := ask(t, front, "hello")
				assert.Equal(t, fmt.Sprintf(c.want, from)+"hello", answer)
			})
		})
	}
}

// runHAProxy returns the address of a haproxy before the server, for the time of the test.
func runHAProxy(t *testing.T, program, server, options string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	front := l.Addr().String()
	require.NoError(t, l.Close())
	dir := t.TempDir()
	conf := filepath.Join(dir, "haproxy.cfg")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
global
	nbthread 1
	maxconn 64
defaults
	mode tcp
	timeout connect 10s
	timeout client 30s
	timeout server 30s
listen front
	bind %s
	unique-id-format weir-7
	server weir %s %s
`, front, server, options), 0o600))
	var out strings.Builder
	cmd := exec.Command(program, "-db", "-f", conf)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(out.String())
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", front)
		if err == nil {
			c.Close()
			return front
		}
		require.True(t, time.Now().Before(deadline), "haproxy does not listen: %v", err)
	}
}

func TestPeersOnAUnixSocketAreTrustedOnlyWhenAsked(t *testing.T) {
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
		for _, trusted := range []bool{false, true} {
			t.Run(fmt.Sprintf("trusted=%v", trusted), func(t *testing.T) {
				init := servertest.Chain(func() ([]any, error) {
					d, err := proxyproto.NewDecoder(proxyproto.DecoderConfig{Trusted: everybody, TrustUnix: trusted})
					return []any{d, teller{}}, err
				})
				srv := &weir.Server{Transport: kind, Loops: 1, Init: init}
				addr := servertest.Start(t, srv, "unix", servertest.SocketPath(t))
				c := servertest.Dial(t, "unix", addr.String())
				_, werr := io.WriteString(c, line4)
				if werr == nil {
					_ = c.(*net.UnixConn).CloseWrite()
				}
				all, _ := io.ReadAll(c)
				if trusted {
					require.NoError(t, werr)
					assert.Equal(t, "1 TCP4 192.168.0.1:56324 \"\" false\n", string(all))
				} else {
					assert.Empty(t, all)
				}
			})
		}
	})
}
