//go:build linux

package weir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

func needIPv6(t testing.TB) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err == nil {
		l.Close()
	}
	testenv.Require(t, "ipv6", err)
}

func TestServesEveryNetworkAndFormOfAddress(t *testing.T) {
	for _, tc := range []struct {
		name, network, address string
		ipv6                   bool
		from                   []string // the hosts from which it is reached
	}{
		{name: "IPv4 literal", network: "tcp", address: "127.0.0.1:0", from: []string{"127.0.0.1"}},
		{name: "IPv6 literal", network: "tcp", address: "[::1]:0", ipv6: true, from: []string{"::1"}},
		{name: "all addresses", network: "tcp", address: ":0", ipv6: true, from: []string{"127.0.0.1", "::1"}},
		{name: "all IPv4 addresses", network: "tcp4", address: ":0", from: []string{"127.0.0.1"}},
		{name: "all IPv6 addresses", network: "tcp6", address: ":0", ipv6: true, from: []string{"::1"}},
		{name: "name", network: "tcp4", address: "localhost:0", from: []string{"127.0.0.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				if tc.ipv6 {
					needIPv6(t)
				}
				addr := start(t, &weir.Server{Transport: kind, Init: initEcho}, tc.network, tc.address).(*net.TCPAddr)
				require.NotZero(t, addr.Port)
				for _, host := range tc.from {
					for i := range 8 { // more than loops: a loop that listens on another port would show
						c := connect(t, "tcp", net.JoinHostPort(host, fmt.Sprint(addr.Port)))
						require.NoError(t, ping(c, "hello"), "%s, connection %d", host, i)
					}
				}
			})
		})
	}
}

func TestServesUnixSocketsAndRemovesTheirPath(t *testing.T) {
	for _, loops := range []int{1, 3} {
		t.Run(fmt.Sprintf("loops=%d", loops), func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				path := socketPath(t)
				srv := &weir.Server{Transport: kind, Loops: loops, Init: initEcho}
				addr := start(t, srv, "unix", path)
				assert.Equal(t, path, addr.String())
				require.NoError(t, all(20, func(i int) error {
					return ping(connect(t, "unix", path), fmt.Sprint("hello ", i))
				}))

				other := &weir.Server{Transport: kind, Init: initEcho, Logger: quiet()}
				require.NoError(t, ready(&weir.Dialer{Server: other}))
				_, err := other.Listen("unix", path)
				require.ErrorIs(t, err, syscall.EADDRINUSE)
				require.NoError(t, other.Close())

				require.NoError(t, srv.Close())
				_, err = os.Stat(path)
				require.ErrorIs(t, err, os.ErrNotExist)
			})
		})
	}
}

func TestServesManyConnections(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns, rounds = 1000, 5
		srv := &weir.Server{Transport: kind, Init: initEcho}
		addr := startTCP(t, srv)
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
		}
		require.NoError(t, all(conns, func(i int) error {
			for round := range rounds {
				if err := ping(clients[i], fmt.Sprintf("client %d, round %d", i, round)); err != nil {
					return fmt.Errorf("client %d: %w", i, err)
				}
			}
			return nil
		}))
		st, err := srv.Stats(background(t))
		require.NoError(t, err)
		assert.EqualValues(t, conns, st.Accepted)
		assert.Equal(t, conns, st.Open)
		for i, l := range st.Loops {
			assert.Equal(t, kind, l.Transport, "loop %d", i)
			assert.Equal(t, l.Open, l.Kernel.Open-1, "loop %d: sockets without the listener", i)
		}
		for _, c := range clients {
			c.Close()
		}
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.Open == 0
		}, "all channels closed")
	})
}

func TestSpreadsConnectionsOverTheLoops(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 3, Init: initEcho}
		addr := startTCP(t, srv)
		for range 300 { // the chance that a hash leaves a loop out is (2/3)^300
			require.NoError(t, ping(connect(t, "tcp", addr), "x"))
		}
		st, err := srv.Stats(background(t))
		require.NoError(t, err)
		require.Len(t, st.Loops, 3)
		for i, l := range st.Loops {
			assert.NotZero(t, l.Accepted, "loop %d", i)
		}
	})
}

func TestEchoesBulkUnchanged(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		size := int64(64 << 20)
		if testing.Short() {
			size = 4 << 20
		}
		addr := startTCP(t, &weir.Server{Transport: kind, Init: initEcho})
		c := connect(t, "tcp", addr)
		sent := make(chan error, 1)
		go func() {
			_, err := io.Copy(c, noise(1, size))
			sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
		}()
		require.NoError(t, compare(c, noise(1, size)))
		require.NoError(t, <-sent)
	})
}

// afterEOF responds when the peer has finished sending, with all it has sent.
type afterEOF struct{ got []byte }

func (h *afterEOF) ChannelRead(_ *pipeline.Context, msg any) error {
	h.got = append(h.got, msg.(interface{ Bytes() []byte }).Bytes()...)
	return nil
}

func (h *afterEOF) ChannelReadClosed(ctx *pipeline.Context) error {
	if err := ctx.Write(h.got); err != nil {
		return err
	}
	return ctx.Close()
}

func TestAHalfClosedClientStillGetsItsAnswer(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		addr := startTCP(t, &weir.Server{Transport: kind, Init: only(func() any { return &afterEOF{} })})
		request, err := io.ReadAll(noise(2, 3<<20))
		require.NoError(t, err)
		c := connect(t, "tcp", addr)
		_, err = c.Write(request)
		require.NoError(t, err)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		answer, err := io.ReadAll(c)
		require.NoError(t, err)
		require.True(t, bytes.Equal(request, answer), "sent %d bytes, got %d", len(request), len(answer))
	})
}

func TestControlRunsForEveryListenerBeforeBind(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, tc := range []struct {
			network, address string
			runs             int32
		}{
			{"tcp", "127.0.0.1:0", 3}, // one listener a loop
			{"unix", socketPath(t), 1},
		} {
			var runs atomic.Int32
			var bound atomic.Int32
			srv := &weir.Server{Transport: kind, Loops: 3, Init: initEcho}
			srv.Control = func(_, _ string, c syscall.RawConn) error {
				runs.Add(1)
				return c.Control(func(fd uintptr) {
					if sa, err := syscall.Getsockname(int(fd)); err == nil {
						if in, ok := sa.(*syscall.SockaddrInet4); ok && in.Port != 0 {
							bound.Add(1)
						}
					}
				})
			}
			addr := start(t, srv, tc.network, tc.address)
			require.NoError(t, ping(connect(t, tc.network, addr.String()), "x"))
			assert.Equal(t, tc.runs, runs.Load(), tc.network)
			assert.Zero(t, bound.Load(), "bound before Control ran")
		}
	})
}

func TestAFailingControlFailsListenAndLeavesNoListener(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		broken := errors.New("not today")
		var runs atomic.Int32
		srv := &weir.Server{Transport: kind, Loops: 3, Init: initEcho, Logger: quiet()}
		var port atomic.Int64
		srv.Control = func(_, address string, _ syscall.RawConn) error {
			if runs.Add(1) < 3 {
				return nil
			}
			if a, err := net.ResolveTCPAddr("tcp", address); err == nil {
				port.Store(int64(a.Port))
			}
			return broken // the third loop's; those of the others are open
		}
		defer srv.Close()
		require.NoError(t, ready(&weir.Dialer{Server: srv}))
		_, err := srv.Listen("tcp", "127.0.0.1:0")
		require.ErrorIs(t, err, broken)
		require.NotZero(t, port.Load())
		eventually(t, func() bool { return free(fmt.Sprintf("127.0.0.1:%d", port.Load())) }, "the port is free again")
		assert.Empty(t, srv.Addrs())

		runs.Store(-100) // a later try works
		addr, err := srv.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, ping(connect(t, "tcp", addr.String()), "x"))
	})
}

func TestAPanickingControlFailsListen(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2, Init: initEcho, Logger: quiet()}
		srv.Control = func(string, string, syscall.RawConn) error { panic("no") }
		defer srv.Close()
		require.NoError(t, ready(&weir.Dialer{Server: srv}))
		_, err := srv.Listen("tcp", "127.0.0.1:0")
		require.ErrorContains(t, err, "panicked")
	})
}

func TestServesSeveralListenersAtOnce(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Init: initEcho}
		a, b := startTCP(t, srv), ""
		addr, err := srv.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		b = addr.String()
		path := socketPath(t)
		_, err = srv.Listen("unix", path)
		require.NoError(t, err)
		require.NoError(t, ping(connect(t, "tcp", a), "a"))
		require.NoError(t, ping(connect(t, "tcp", b), "b"))
		require.NoError(t, ping(connect(t, "unix", path), "c"))
		var names []string
		for _, addr := range srv.Addrs() {
			names = append(names, addr.String())
		}
		assert.Equal(t, []string{a, b, path}, names)
	})
}

func TestServeAdoptsListeners(t *testing.T) {
	tcp := func(t *testing.T) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return l
	}
	for _, tc := range []struct {
		name string
		open func(t *testing.T) net.Listener
	}{
		{"tcp", tcp},
		{"unix", func(t *testing.T) net.Listener {
			l, err := net.Listen("unix", socketPath(t))
			require.NoError(t, err)
			return l
		}},
		{"descriptor from a service manager", func(t *testing.T) net.Listener {
			l := tcp(t)
			defer l.Close()
			f, err := l.(*net.TCPListener).File() // what LISTEN_FDS passes: a number, and nothing else
			require.NoError(t, err)
			defer f.Close()
			l, err = net.FileListener(f)
			require.NoError(t, err)
			return l
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				l := tc.open(t)
				network, address := l.Addr().Network(), l.Addr().String()
				srv := &weir.Server{Transport: kind, Loops: 2, Init: initEcho, Logger: quiet()}
				require.NoError(t, ready(&weir.Dialer{Server: srv}))
				served := make(chan error, 1)
				go func() { served <- srv.Serve(l) }()
				require.NoError(t, all(20, func(i int) error {
					c := connect(t, network, address)
					defer c.Close()
					return ping(c, fmt.Sprint("hello ", i))
				}))
				require.NoError(t, srv.Shutdown(background(t)))
				require.ErrorIs(t, receive(t, served, "Serve's result"), weir.ErrServerClosed)
				require.ErrorIs(t, l.Close(), net.ErrClosed, "Serve closes its listener")
				_, err := net.Dial(network, address)
				require.Error(t, err)
			})
		})
	}
}

// wrapped is a listener that hides its descriptor, as that of crypto/tls does.
type wrapped struct{ net.Listener }

func TestServeRefusesAndClosesAListenerWithoutDescriptor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &weir.Server{Init: initEcho}
	require.ErrorIs(t, srv.Serve(wrapped{l}), transport.ErrNotSupported)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
	require.NoError(t, srv.Close())
}

func TestBadConfigurationIsToldBeforeAnythingStarts(t *testing.T) {
	for _, tc := range []struct {
		name string
		srv  *weir.Server
		says string
	}{
		{"no Init", &weir.Server{}, "Init"},
		{"unknown transport", &weir.Server{Init: initEcho, Transport: "kqueue"}, `"kqueue"`},
		{"negative loops", &weir.Server{Init: initEcho, Loops: -1}, "Loops -1"},
		{"too many loops", &weir.Server{Init: initEcho, Loops: weir.MaxLoops + 1}, "Loops 1025, at most 1024"},
		{"negative backlog", &weir.Server{Init: initEcho, Backlog: -7}, "Backlog -7"},
		{"negative tasks", &weir.Server{Init: initEcho, MaxTasks: -2}, "MaxTasks -2"},
		{"negative backoff", &weir.Server{Init: initEcho, AcceptBackoff: -1}, "AcceptBackoff -1ns"},
		{"Init of the channel", &weir.Server{Init: initEcho, Channel: channel.Config{Init: initEcho}}, "Channel.Init"},
		{
			"watermarks that cross",
			&weir.Server{Init: initEcho, Channel: channel.Config{WriteHighBytes: 1000, WriteLowBytes: 1000}}, "1000, 1000",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			err := tc.srv.ListenAndServe("tcp", "127.0.0.1:0")
			require.ErrorIs(t, err, weir.ErrConfig)
			assert.ErrorContains(t, err, tc.says)
			assert.Nil(t, tc.srv.Group())
			assert.LessOrEqual(t, runtime.NumGoroutine(), before)
		})
	}
}

func TestABadAddressFailsWithItsValues(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, tc := range []struct{ name, network, address, says string }{
		{"unknown network", "udp", "127.0.0.1:0", "unknown network udp"},
		{"no port", "tcp", "127.0.0.1", "missing port"},
		{"other family", "tcp6", "127.0.0.1:0", "127.0.0.1:0"},
		{"port taken", "tcp", taken.Addr().String(), "address already in use"},
		{"no path", "unix", "", "unix"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := &weir.Server{Init: initEcho, Loops: 2, Logger: quiet()}
			defer srv.Close()
			_, err := srv.Listen(tc.network, tc.address)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, "weir: listen "+tc.network)
			addr, err := srv.Listen("tcp", "127.0.0.1:0") // and the server is as good as before
			require.NoError(t, err)
			require.NoError(t, ping(connect(t, "tcp", addr.String()), "x"))
		})
	}
}

func TestAnInitThatFailsOrPanicsClosesOnlyItsConnection(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var n atomic.Int32
		srv := &weir.Server{Transport: kind, Loops: 1, Init: func(p *pipeline.Pipeline) error {
			switch n.Add(1) % 3 {
			case 0:
				return errors.New("not you")
			case 1:
				panic("oh no")
			}
			return initEcho(p)
		}}
		addr := startTCP(t, srv)
		served, refused := 0, 0
		for range 30 {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				err = ping(c, "x")
				c.Close()
			}
			if err == nil {
				served++
			} else {
				refused++
			}
		}
		assert.Equal(t, 10, served)
		assert.Equal(t, 20, refused)
	})
}

// panicky echoes, and panics when it reads a 'P'.
type panicky struct{ inactive *atomic.Int32 }

func (h panicky) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(interface{ Bytes() []byte }).Bytes()
	if bytes.IndexByte(b, 'P') >= 0 {
		panic("told to")
	}
	return ctx.Write(b)
}

func (h panicky) ChannelInactive(*pipeline.Context) error {
	h.inactive.Add(1)
	return nil
}

func TestAPanicClosesOnlyItsChannel(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns, rounds = 100, 20
		var inactive atomic.Int32
		var book logbook
		srv := &weir.Server{Transport: kind, Logger: book.Logger(), Init: only(func() any { return panicky{&inactive} })}
		addr := startTCP(t, srv)
		var mu sync.Mutex
		panicked := 0
		err := all(conns, func(i int) error {
			c := connect(t, "tcp", addr)
			for round := range rounds {
				if i%7 == 0 && round == i%rounds {
					mu.Lock()
					panicked++
					mu.Unlock()
					if err := ping(c, "P"); err == nil {
						return errors.New("the channel lives on after a panic")
					}
					return nil
				}
				if err := ping(c, fmt.Sprintf("client %d, round %d", i, round)); err != nil {
					return fmt.Errorf("client %d, round %d: %w", i, round, err)
				}
			}
			return nil
		})
		require.NoError(t, err)
		require.NotZero(t, panicked)
		eventually(t, func() bool { return int(inactive.Load()) == panicked },
			"Inactive once for each of %d panics", panicked)
		eventually(t, func() bool { return len(book.Lines("panicky (weir_test.panicky)")) == panicked },
			"the log names the handler")
	})
}

func TestPinnedLoopsServe(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		pinned := make(chan unix.CPUSet, 2)
		srv := &weir.Server{Transport: kind, Loops: 2, Pin: true, Init: only(func() any { return affinity(pinned) })}
		addr := startTCP(t, srv)
		for range 4 {
			connect(t, "tcp", addr)
			assert.Equal(t, 1, func() int { set := receive(t, pinned, "the loop's affinity"); return set.Count() }())
		}
	})
}

// affinity sends which processors its loop's thread may use.
type affinity chan unix.CPUSet

func (a affinity) ChannelActive(*pipeline.Context) error {
	var set unix.CPUSet
	err := unix.SchedGetaffinity(0, &set)
	a <- set
	return err
}
