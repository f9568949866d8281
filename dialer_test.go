//go:build linux

package weir_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
)

// collector hands what it receives to a channel.
type collector struct{ got chan string }

func (c collector) ChannelRead(_ *pipeline.Context, msg any) error {
	c.got <- string(msg.(interface{ Bytes() []byte }).Bytes())
	return nil
}

// dialer returns a Dialer of one transport, running, that is closed when the test ends.
func dialer(t *testing.T, kind weir.Kind) *weir.Dialer {
	return startDialer(t, &weir.Dialer{Transport: kind})
}

func startDialer(t *testing.T, d *weir.Dialer) *weir.Dialer {
	t.Helper()
	if d.Server == nil {
		d.Logger = quiet()
	}
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	require.NoError(t, ready(d))
	return d
}

// listen is a listener of package net whose connections are handed to serve, each on a goroutine.
func listen(t *testing.T, network, address string, serve func(net.Conn)) string {
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

func echoing(c net.Conn) { _, _ = io.Copy(c, c) }

func TestDialerConnectsWritesAndCloses(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, tc := range []struct{ network, address string }{
			{"tcp", "127.0.0.1:0"}, {"unix", socketPath(t)},
		} {
			addr := listen(t, tc.network, tc.address, echoing)
			got := make(chan string, 10)
			ref, err := dialer(t, kind).Dial(background(t), tc.network, addr, only(func() any { return collector{got} }))
			require.NoError(t, err)
			require.NoError(t, ref.TryWrite([]byte("hello")))
			assert.Equal(t, "hello", receive(t, got, "the echo"))
			require.NoError(t, ref.Close())
			receive(t, ref.Closed(), "the end")
			require.ErrorIs(t, ref.TryWrite([]byte("late")), pipeline.ErrClosed)
		}
	})
}

// upper is an outbound handler: what a Ref writes passes it.
type upper struct{}

func (upper) Write(ctx *pipeline.Context, msg any) error {
	return ctx.WriteBytes([]byte(strings.ToUpper(string(msg.(interface{ Bytes() []byte }).Bytes()))))
}

func TestADialedRefWritesThroughAllHandlers(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		addr := listen(t, "tcp", "127.0.0.1:0", echoing)
		got := make(chan string, 10)
		ref, err := dialer(t, kind).Dial(background(t), "tcp", addr, func(p *pipeline.Pipeline) error {
			return errors.Join(p.AddLast("got", collector{got}), p.AddLast("upper", upper{}))
		})
		require.NoError(t, err)
		require.NoError(t, ref.TryWrite([]byte("quiet")))
		assert.Equal(t, "QUIET", receive(t, got, "the echo"))
	})
}

func TestDialWithoutInitGivesABareChannel(t *testing.T) {
	received := make(chan string, 1)
	addr := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) {
		all, _ := io.ReadAll(c)
		received <- string(all)
	})
	ref, err := dialer(t, weir.Auto).Dial(background(t), "tcp", addr, nil)
	require.NoError(t, err)
	require.NoError(t, ref.TryWrite([]byte("one way")))
	require.NoError(t, ref.Close())
	assert.Equal(t, "one way", receive(t, received, "what was sent"))
}

func TestDialTellsARefusal(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := l.Addr().String()
		l.Close()
		_, err = dialer(t, kind).Dial(background(t), "tcp", addr, nil)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorContains(t, err, addr)
		_, err = dialer(t, kind).Dial(background(t), "unix", socketPath(t), nil)
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

// full returns the address of a listener whose queue is full: connecting to it hangs.
func full(t *testing.T) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	sa, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
	for range 4 { // a queue of 0 takes one; the others have to wait, and whoever comes now, too
		c, err := net.DialTimeout("tcp", addr, 100e6)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	testenv.Require(t, "listen queue", errors.New("a full queue does not keep connections waiting"))
	return ""
}

func TestDialEndsWithItsContext(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		addr := full(t)
		for _, tc := range []struct {
			name string
			d    *weir.Dialer
			ctx  func() (context.Context, context.CancelFunc)
			want error
		}{
			{name: "deadline", d: &weir.Dialer{}, ctx: func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(context.Background(), 50e6)
			}, want: context.DeadlineExceeded},
			{name: "Timeout", d: &weir.Dialer{Timeout: 50e6}, want: context.DeadlineExceeded},
			{name: "cancel", d: &weir.Dialer{}, ctx: func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(context.Background())
				go cancel()
				return ctx, cancel
			}, want: context.Canceled},
			{name: "Close", d: &weir.Dialer{}, want: weir.ErrDialerClosed},
		} {
			t.Run(tc.name, func(t *testing.T) {
				d := tc.d
				d.Transport = kind
				if tc.want == weir.ErrDialerClosed {
					d.Control = func(string, string, syscall.RawConn) error { // when the attempt begins
						go d.Close()
						return nil
					}
				}
				startDialer(t, d)
				ctx := context.Background()
				if tc.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tc.ctx()
					defer cancel()
				}
				_, err := d.Dial(ctx, "tcp", addr, nil)
				require.ErrorIs(t, err, tc.want)
				require.ErrorContains(t, err, addr)
				eventually(t, func() bool { // the attempt leaves no socket behind
					st, err := d.Stats(background(t))
					return err == nil && (len(st.Loops) == 0 || st.Loops[0].Kernel.Open == 0)
				}, "no socket")
			})
		}
	})
}

func TestDialResolvesNamesAndTriesAllAddresses(t *testing.T) {
	ips, err := net.DefaultResolver.LookupIPAddr(context.Background(), "localhost")
	if err == nil && len(ips) == 0 {
		err = errors.New("localhost has no address")
	}
	testenv.Require(t, "localhost", err)
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, ip := range ips { // the server is on one of the addresses only
			addr := listen(t, "tcp", net.JoinHostPort(ip.String(), "0"), echoing)
			_, port, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			got := make(chan string, 1)
			ref, err := dialer(t, kind).Dial(background(t), "tcp", net.JoinHostPort("localhost", port),
				only(func() any { return collector{got} }))
			require.NoError(t, err, "server on %s", ip)
			require.NoError(t, ref.TryWrite([]byte("found")))
			assert.Equal(t, "found", receive(t, got, "the echo"))
		}
	})
}

func TestDialRefusesWhatItCannotResolve(t *testing.T) {
	d := dialer(t, weir.Auto)
	for _, tc := range []struct{ name, network, address, says string }{
		{"no such name", "tcp", "no.such.name.invalid:1", "no.such.name.invalid"},
		{"unknown network", "sctp", "127.0.0.1:1", "unknown network sctp"},
		{"no port", "tcp", "127.0.0.1", "missing port"},
		{"unknown service", "tcp", "127.0.0.1:no-such-service", "no-such-service"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := d.Dial(ctx, tc.network, tc.address, nil)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestAnInitThatFailsOrPanicsFailsTheDial(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		addr := listen(t, "tcp", "127.0.0.1:0", echoing)
		d := dialer(t, kind)
		broken := errors.New("not like this")
		_, err := d.Dial(background(t), "tcp", addr, func(*pipeline.Pipeline) error { return broken })
		require.ErrorIs(t, err, broken)
		_, err = d.Dial(background(t), "tcp", addr, func(*pipeline.Pipeline) error { panic("oh") })
		require.ErrorIs(t, err, channel.ErrPanic)
		eventually(t, func() bool {
			st, err := d.Stats(background(t))
			return err == nil && st.Open == 0 && st.Dialed == 2 && st.Loops[0].Kernel.Open == 0
		}, "both connections closed")
	})
}

// gateway dials target for each connection, on the same loop, and copies both ways.
type gateway struct {
	target string
	peer   *pipeline.Context
}

func (g *gateway) ChannelActive(ctx *pipeline.Context) error {
	ctx.Pause() // until there is somewhere to write to
	back := &gateway{peer: ctx}
	return ctx.Dial("tcp", g.target, func(p *pipeline.Pipeline) error {
		if err := p.AddLast("back", backward{back}); err != nil {
			return err
		}
		g.peer = p.Context("back")
		ctx.Resume()
		return nil
	}, func(err error) { ctx.Abort(err) })
}

func (g *gateway) ChannelRead(_ *pipeline.Context, msg any) error { return g.peer.Write(msg) }

func (g *gateway) ChannelInactive(*pipeline.Context) error {
	if g.peer != nil {
		return g.peer.Close()
	}
	return nil
}

// backward is the other side of a gateway: it is connected already.
type backward struct{ *gateway }

func (backward) ChannelActive(*pipeline.Context) error { return nil }

func TestAHandlerDialsOnItsOwnLoop(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		target := startTCP(t, &weir.Server{Transport: kind, Init: initEcho})
		// One loop: a dial that waited for it would wait for ever.
		proxy := &weir.Server{Transport: kind, Loops: 1, Init: only(func() any { return &gateway{target: target} })}
		addr := startTCP(t, proxy)
		require.NoError(t, all(50, func(i int) error {
			c := connect(t, "tcp", addr)
			defer c.Close()
			for round := range 5 {
				if err := ping(c, fmt.Sprintf("client %d, round %d", i, round)); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

// selfish waits for a loop on the loop.
type selfish struct {
	d       *weir.Dialer
	answers chan error
}

func (s selfish) ChannelRead(*pipeline.Context, any) error {
	_, err := s.d.Dial(context.Background(), "tcp", "127.0.0.1:1", nil)
	s.answers <- err
	return nil
}

func TestADialThatWouldWaitOnALoopAnswersInsteadOfDeadlocking(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		answers := make(chan error, 1)
		srv := &weir.Server{Transport: kind, Loops: 1}
		d := &weir.Dialer{Server: srv}
		srv.Init = only(func() any { return selfish{d, answers} })
		c := connect(t, "tcp", startTCP(t, srv))
		_, err := io.WriteString(c, "x")
		require.NoError(t, err)
		require.ErrorIs(t, receive(t, answers, "Dial's result"), pipeline.ErrWouldDeadlock)
	})
}

func TestADialEndsWithTheServerWhoseLoopsItUses(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, end := range []func(srv *weir.Server) error{
			(*weir.Server).Close,
			func(srv *weir.Server) error { return srv.Shutdown(background(t)) },
		} {
			srv := &weir.Server{Transport: kind, Loops: 2, Init: initEcho}
			startTCP(t, srv)
			ended := make(chan error, 1)
			d := &weir.Dialer{Server: srv, Control: func(string, string, syscall.RawConn) error {
				go func() { ended <- end(srv) }() // once the attempt has begun
				return nil
			}}
			_, err := d.Dial(background(t), "tcp", full(t), nil)
			require.ErrorIs(t, err, weir.ErrServerClosed)
			require.NoError(t, receive(t, ended, "the server's end"))
		}
	})
}

// lingering asks to be told when its server stops, and closes then.
type lingering struct {
	asked chan string
	name  string
}

func (l lingering) ChannelShutdown(ctx *pipeline.Context) error {
	l.asked <- l.name
	return ctx.Close()
}

func TestADialerSharesAServersLoopsAndItsEnd(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		target := listen(t, "tcp", "127.0.0.1:0", echoing)
		asked := make(chan string, 2)
		srv := &weir.Server{Transport: kind, Loops: 2, Logger: quiet(), Init: only(func() any {
			return lingering{asked, "accepted"}
		})}
		t.Cleanup(func() { srv.Close() })
		d := startDialer(t, &weir.Dialer{Server: srv}) // starts the server's loops when they do not run yet
		ref, err := d.Dial(background(t), "tcp", target, only(func() any { return lingering{asked, "dialed"} }))
		require.NoError(t, err)
		client := connect(t, "tcp", startTCP(t, srv))
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.Dialed == 1 && st.Accepted == 1
		}, "both are counted")
		go func() {
			_, _ = io.Copy(io.Discard, client)
			client.Close()
		}()
		require.NoError(t, srv.Shutdown(background(t)))
		assert.Equal(t, "accepted", <-asked, "first what may need the others")
		assert.Equal(t, "dialed", <-asked)
		receive(t, ref.Closed(), "the dialed channel's end")
		_, err = d.Dial(background(t), "tcp", target, nil)
		require.ErrorIs(t, err, weir.ErrServerClosed)
		require.NoError(t, d.Close())
		_, err = d.Dial(background(t), "tcp", target, nil)
		require.ErrorIs(t, err, weir.ErrDialerClosed)
	})
}

func TestADialersShutdownDeliversWhatIsQueued(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const size = 4 << 20
		matches := make(chan error, 1)
		addr := listen(t, "tcp", "127.0.0.1:0", func(c net.Conn) { matches <- compare(c, noise(5, size)) })
		d := dialer(t, kind)
		ref, err := d.Dial(background(t), "tcp", addr, nil)
		require.NoError(t, err)
		data, err := io.ReadAll(noise(5, size))
		require.NoError(t, err)
		require.NoError(t, ref.TryWrite(data))
		require.NoError(t, d.Shutdown(background(t)))
		require.NoError(t, receive(t, matches, "all that was written"))
	})
}

func TestADialerWithBadConfigurationStartsNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    *weir.Dialer
		says string
	}{
		{"unknown transport", &weir.Dialer{Transport: "kqueue"}, "kqueue"},
		{"negative loops", &weir.Dialer{Loops: -3}, "Loops -3"},
		{"Init", &weir.Dialer{Channel: channel.Config{Init: initEcho}}, "Init"},
		{"two sets of loops", &weir.Dialer{Server: &weir.Server{}, Loops: 2}, "Loops 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.d.Dial(context.Background(), "tcp", "127.0.0.1:1", nil)
			require.ErrorIs(t, err, weir.ErrConfig)
			require.ErrorContains(t, err, tc.says)
			require.NoError(t, tc.d.Close())
		})
	}
}

func TestDialsAndEndsFromManyGoroutines(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		addr := startTCP(t, &weir.Server{Transport: kind, Init: initEcho})
		d := startDialer(t, &weir.Dialer{Transport: kind, Loops: 2})
		var dialed, refused atomic.Int32
		err := all(64, func(i int) error {
			for range 50 {
				ref, err := d.Dial(context.Background(), "tcp", addr, nil)
				switch {
				case err == nil:
					dialed.Add(1)
					_ = ref.Close()
				case errors.Is(err, weir.ErrDialerClosed):
					refused.Add(1)
				default:
					return err
				}
			}
			if i == 7 {
				return d.Close()
			}
			return nil
		})
		require.NoError(t, err)
		assert.NotZero(t, dialed.Load())
		t.Logf("%d dialed, %d refused", dialed.Load(), refused.Load())
	})
}
