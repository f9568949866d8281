//go:build linux

package weir_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/pipeline"
)

func ledger(t *testing.T, cfg admission.Config) *admission.Ledger {
	t.Helper()
	l, err := admission.New(cfg)
	require.NoError(t, err)
	return l
}

// firstByte connects and returns how waiting for a byte ends. A reset may be there before connect(2) returns.
func firstByte(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err = c.Read(make([]byte, 1))
	return err
}

// connectUnlessReset returns nil when the connection has been reset at once.
func connectUnlessReset(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// balanced waits until everything has been given back, once.
func balanced(t *testing.T, l *admission.Ledger) {
	t.Helper()
	eventually(t, func() bool {
		s := l.Stats()
		return s.Connections == 0 && s.Memory == 0 && s.Sources == 0
	}, "everything is given back")
	assert.Zero(t, l.Stats().Doubled)
}

// Who is refused hears why, or gets a reset, or waits; and is nobody's cost afterwards.
func TestRefusalsTakeEachForm(t *testing.T) {
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		for _, action := range []admission.Action{admission.Busy, admission.Reset, admission.Wait} {
			l := ledger(t, admission.Config{
				Loops: 3, Connections: 2, Memory: 1 << 20, Refusal: action, Words: admission.BusyRESP,
			})
			srv := &weir.Server{Transport: kind, Loops: 2, Accept: way, Admit: l.Admit, Init: initEcho}
			addr := startTCP(t, srv)
			clients := connectAll(t, "tcp", addr, 2, 1)
			if action == admission.Reset {
				require.ErrorIs(t, firstByte(addr), syscall.ECONNRESET)
			}
			third := connectUnlessReset(t, addr)
			switch action {
			case admission.Busy:
				got, err := io.ReadAll(third)
				require.NoError(t, err)
				require.Equal(t, "-BUSY connections, retry after 1000 ms\r\n", string(got))
			case admission.Wait:
				eventually(t, func() bool { return l.Stats().Refused[admission.Connections] > 0 }, "it is asked for")
				clients[0].Close()
				require.NoError(t, ping(third, "hello"))
			}
			st, err := srv.Stats(background(t))
			require.NoError(t, err)
			if action == admission.Wait {
				assert.Zero(t, st.Refused)
			} else {
				assert.Positive(t, st.Refused)
				assert.Equal(t, 2, st.Open)
				clients[0].Close()
				eventually(t, func() bool { return l.Used() == 1 }, "a place is free")
				connectAll(t, "tcp", addr, 1, 1)
			}
			require.NoError(t, srv.Close())
			balanced(t, l)
		}
	})
}

// A client that has asked already reads the refusal all the same.
func TestARefusalReachesAClientThatHasAsked(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		l := ledger(t, admission.Config{Rate: 1e-6, Words: admission.BusyHTTP})
		l.Admit(admission.Arrival{}) // the only one
		srv := &weir.Server{Transport: kind, Loops: 2, Admit: l.Admit, Init: initEcho}
		addr := startTCP(t, srv)
		require.NoError(t, srv.Pause(background(t)))
		c := connect(t, "tcp", addr)
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: weir\r\n\r\n")
		require.NoError(t, err)
		require.NoError(t, srv.Resume(background(t)))
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		assert.Contains(t, string(got), "503 Service Unavailable")
	})
}

func TestARateMakesConnectionsWait(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		l := ledger(t, admission.Config{Rate: 100, Refusal: admission.Wait})
		srv := &weir.Server{Transport: kind, Loops: 2, Admit: l.Admit, Init: initEcho}
		connectAll(t, "tcp", startTCP(t, srv), 10, 10)
		assert.EqualValues(t, 10, l.Stats().Admitted)
		assert.Positive(t, l.Stats().Refused[admission.Rate])
	})
}

// Nobody of this server gives back what its Admit waits for.
func TestWhoWaitsIsAskedForAgainWithoutAHint(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var asked atomic.Int64
		srv := &weir.Server{
			Transport: kind, Loops: 1, Init: initEcho,
			Admit: func(admission.Arrival) (v admission.Verdict) {
				if asked.Add(1) <= 2 {
					v.Action = admission.Wait
				}
				return v
			},
		}
		connectAll(t, "tcp", startTCP(t, srv), 1, 1)
	})
}

// Whichever way a channel ends, what it has taken is given back once.
func TestATicketIsGivenBackWhicheverWayAChannelEnds(t *testing.T) {
	errInit := errors.New("no")
	ends := map[string]struct {
		init func(*pipeline.Pipeline) error
		end  func(t *testing.T, srv *weir.Server, c net.Conn)
	}{
		"FIN": {end: func(_ *testing.T, _ *weir.Server, c net.Conn) { c.Close() }},
		"RST": {end: func(t *testing.T, _ *weir.Server, c net.Conn) {
			require.NoError(t, c.(*net.TCPConn).SetLinger(0))
			c.Close()
		}},
		"the server's end": {end: func(_ *testing.T, srv *weir.Server, _ net.Conn) { srv.Close() }},
		"shutdown": {end: func(t *testing.T, srv *weir.Server, c net.Conn) {
			require.NoError(t, srv.Shutdown(closing(t, []net.Conn{c})))
		}},
		"close by a handler": {
			init: only(func() any { return onRead(func(ctx *pipeline.Context) { ctx.Close() }) }),
			end: func(t *testing.T, _ *weir.Server, c net.Conn) {
				io.WriteString(c, "x")
				_, err := io.ReadAll(c)
				require.NoError(t, err)
				c.Close()
			},
		},
		"abort by a handler": {
			init: only(func() any { return onRead(func(ctx *pipeline.Context) { ctx.Abort(errInit) }) }),
			end:  func(_ *testing.T, _ *weir.Server, c net.Conn) { io.WriteString(c, "x") },
		},
		"a panic": {
			init: only(func() any { return onRead(func(*pipeline.Context) { panic("oh") }) }),
			end:  func(_ *testing.T, _ *weir.Server, c net.Conn) { io.WriteString(c, "x") },
		},
		"a failed Init": {
			init: func(*pipeline.Pipeline) error { return errInit },
			end:  func(*testing.T, *weir.Server, net.Conn) {},
		},
		"a panic in Init": {
			init: func(*pipeline.Pipeline) error { panic("oh") },
			end:  func(*testing.T, *weir.Server, net.Conn) {},
		},
	}
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, way := range []weir.Accept{weir.AcceptReusePort, weir.AcceptHandoff} {
			for name, tc := range ends {
				t.Run(string(way)+"/"+name, func(t *testing.T) {
					l := ledger(t, admission.Config{Loops: 3, Connections: 10, PerSource: 10, Memory: 1 << 20})
					init := tc.init
					if init == nil {
						init = initEcho
					}
					srv := &weir.Server{
						Transport: kind, Loops: 2, Accept: way, Admit: l.Admit, Init: init, Logger: quiet(),
					}
					addr := startTCP(t, srv)
					c := connectUnlessReset(t, addr)
					if tc.init == nil {
						require.NoError(t, ping(c, "hello"))
						require.EqualValues(t, 1, l.Used())
					}
					if c != nil {
						tc.end(t, srv, c)
					}
					eventually(t, func() bool { return l.Stats().Admitted == 1 }, "it was admitted")
					balanced(t, l)
				})
			}
		}
	})
}

// onRead is a handler that does something with the first bytes.
type onRead func(ctx *pipeline.Context)

func (f onRead) ChannelRead(ctx *pipeline.Context, _ any) error {
	f(ctx)
	return nil
}

func TestAPanicInAdmitRefusesOneConnection(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var asked atomic.Int64
		seen := make(chan admission.Arrival, 1)
		srv := &weir.Server{
			Transport: kind, Loops: 1, Init: initEcho, Logger: quiet(),
			Admit: func(a admission.Arrival) admission.Verdict {
				if asked.Add(1) == 1 {
					panic("no idea")
				}
				seen <- a
				return admission.Verdict{}
			},
		}
		addr := startTCP(t, srv)
		require.ErrorIs(t, firstByte(addr), syscall.ECONNRESET)
		c := connectAll(t, "tcp", addr, 1, 1)[0]
		a := receive(t, seen, "the arrival")
		assert.Equal(t, c.LocalAddr().String(), a.Peer.String())
		assert.Equal(t, addr, a.Listener.String())
		assert.False(t, a.Unix)
		assert.Zero(t, a.Open)
	})
}

func TestPauseLeavesConnectionsToTheKernel(t *testing.T) {
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		srv := &weir.Server{Transport: kind, Loops: 3, Accept: way, Init: initEcho}
		addr := startTCP(t, srv)
		old := connectAll(t, "tcp", addr, 20, 1)
		require.NoError(t, srv.Pause(background(t)))
		require.NoError(t, srv.Pause(background(t)), "twice is as good")
		another, err := srv.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		served := make(chan error, 8)
		for i := range 8 {
			to := addr
			if i%2 == 0 {
				to = another.String()
			}
			c := connect(t, "tcp", to)
			go func() { served <- ping(c, "hello") }()
		}
		for range 3 {
			for _, c := range old {
				require.NoError(t, ping(c, "channels go on"))
			}
			st, err := srv.Stats(background(t))
			require.NoError(t, err)
			require.EqualValues(t, 20, st.Accepted)
		}
		require.NoError(t, srv.Resume(background(t)))
		for range 8 {
			require.NoError(t, receive(t, served, "an answer"))
		}
	})
}

// Shutdown accepts what the kernel has connected, although nobody was to, and closes it in an orderly way.
func TestShutdownAcceptsWhatWaitsBehindAPause(t *testing.T) {
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		srv := &weir.Server{Transport: kind, Loops: 3, Accept: way, Init: initEcho}
		addr := startTCP(t, srv)
		require.NoError(t, srv.Pause(background(t)))
		const n = 100 // more than a turn of the mutex
		clients := make([]net.Conn, n)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
			require.NoError(t, clients[i].(*net.TCPConn).CloseWrite())
		}
		require.NoError(t, srv.Shutdown(background(t)))
		for i, c := range clients {
			_, err := io.ReadAll(c)
			require.NoError(t, err, "client %d", i)
		}
		st, err := srv.Stats(background(t))
		require.NoError(t, err)
		require.EqualValues(t, n, st.Accepted)
	})
}

func TestPauseDoesNotWaitForAStuckLoop(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, WatchdogAfter: -1}
		_, clients, _ := startStuck(t, srv)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, srv.Pause(ctx), context.DeadlineExceeded)
		for _, c := range clients {
			c.Close()
		}
		_ = srv.Close()
		require.ErrorIs(t, srv.Resume(background(t)), weir.ErrServerClosed)
	})
}

// What the kernel's queue does not hold shows in the counters.
func TestOverflowsOfTheQueueAreCounted(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 1, Backlog: 1, Init: initEcho}
		addr := startTCP(t, srv)
		require.NoError(t, srv.Pause(background(t)))
		before, err := srv.Stats(background(t))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for range 8 {
			go func() {
				if c, err := new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
					<-ctx.Done()
					c.Close()
				}
			}()
		}
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.ListenOverflows > before.ListenOverflows && st.ListenDrops > before.ListenDrops
		}, "the kernel drops handshakes")
	})
}
