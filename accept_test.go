//go:build linux

package weir_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/pipeline"
)

// ways are all ways to accept.
var ways = []weir.Accept{weir.AcceptReusePort, weir.AcceptExclusive, weir.AcceptMutex, weir.AcceptHandoff}

// onEveryWay runs a test for each way to accept on each transport.
func onEveryWay(t *testing.T, test func(t *testing.T, kind weir.Kind, way weir.Accept)) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, way := range ways {
			t.Run("accept="+string(way), func(t *testing.T) { test(t, kind, way) })
		}
	})
}

// spread returns how many channels each loop has.
func spread(t *testing.T, srv *weir.Server) []int {
	t.Helper()
	st, err := srv.Stats(background(t))
	require.NoError(t, err)
	var open []int
	for _, l := range st.Loops {
		open = append(open, l.Open)
	}
	return open
}

// connectAll opens n connections that each get an answer: one after the other, or in bursts.
func connectAll(t *testing.T, network, addr string, n, burst int) []net.Conn {
	t.Helper()
	clients := make([]net.Conn, n)
	t.Cleanup(func() {
		for _, c := range clients {
			if c != nil {
				c.Close()
			}
		}
	})
	for at := 0; at < n; at += burst {
		require.NoError(t, all(min(burst, n-at), func(i int) (err error) {
			if clients[at+i], err = net.Dial(network, addr); err != nil {
				return err
			}
			return ping(clients[at+i], "hello")
		}))
	}
	return clients
}

// What is one socket for all loops spreads as evenly as a router can: one by one and in bursts, over TCP, a Unix socket
// and an adopted listener.
func TestConnectionsSpreadOverTheLoops(t *testing.T) {
	const n = 640 // whole turns of each loop with the mutex
	loops := 8
	if os.Getuid() != 0 { // whose rings count against RLIMIT_MEMLOCK
		loops = 4
	}
	sockets := map[string]func(t *testing.T, srv *weir.Server) net.Addr{
		"tcp": func(t *testing.T, srv *weir.Server) net.Addr {
			srv.Accept = weir.AcceptHandoff
			return start(t, srv, "tcp", "127.0.0.1:0")
		},
		"unix": func(t *testing.T, srv *weir.Server) net.Addr { return start(t, srv, "unix", socketPath(t)) },
		"adopted": func(t *testing.T, srv *weir.Server) net.Addr {
			require.NoError(t, ready(&weir.Dialer{Server: srv}))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan error, 1)
			go func() { served <- srv.Serve(l) }()
			t.Cleanup(func() {
				srv.Close()
				assert.ErrorIs(t, receive(t, served, "Serve's result"), weir.ErrServerClosed)
			})
			return l.Addr()
		},
		"mutex": func(t *testing.T, srv *weir.Server) net.Addr {
			srv.Accept = weir.AcceptMutex
			return start(t, srv, "tcp", "127.0.0.1:0")
		},
	}
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for name, open := range sockets {
			for _, burst := range []int{1, 50} {
				t.Run(fmt.Sprint(name, "/burst=", burst), func(t *testing.T) {
					srv := &weir.Server{Transport: kind, Loops: loops, Init: initEcho}
					addr := open(t, srv)
					connectAll(t, addr.Network(), addr.String(), n, burst)
					open := spread(t, srv)
					total, most := 0, 0
					for _, n := range open {
						total += n
						most = max(most, n)
					}
					require.Equal(t, n, total)
					assert.LessOrEqual(t, float64(most), 1.3*n/float64(loops), "%v", open)
				})
			}
		}
	})
}

func TestHandoffWithFewClientsIsEven(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2, Accept: weir.AcceptHandoff, Init: initEcho}
		clients := connectAll(t, "tcp", startTCP(t, srv), 20, 1)
		require.Equal(t, []int{10, 10}, spread(t, srv))
		for _, c := range clients[:10] { // counts go down again
			c.Close()
		}
		eventually(t, func() bool { open := spread(t, srv); return open[0]+open[1] == 10 }, "half of them are gone")
		addr := srv.Addrs()[0].String()
		connectAll(t, "tcp", addr, 10, 1)
		require.Equal(t, []int{10, 10}, spread(t, srv))
	})
}

// Of the 16 connections that two loops may have, the first takes 7, 7/8 of its part, and lets the other one accept.
func TestALoopThatIsNearlyFullPassesTheMutexOn(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{
			Transport: kind, Loops: 2, Accept: weir.AcceptMutex, MaxConnections: 16, Init: initEcho,
		}
		addr := startTCP(t, srv)
		connectAll(t, "tcp", addr, 6, 1)
		require.Equal(t, []int{6, 0}, spread(t, srv))
		connectAll(t, "tcp", addr, 8, 1)
		require.Equal(t, []int{7, 7}, spread(t, srv))
		connectAll(t, "tcp", addr, 2, 1) // nobody has room for more than its part: who holds the mutex goes on
		open := spread(t, srv)
		require.Equal(t, 16, open[0]+open[1])
	})
}

// A loop whose handler does not return costs its own connections and no others, once the watchdog has found it.
func TestAStuckLoopCostsOnlyItsOwn(t *testing.T) {
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		if way == weir.AcceptReusePort {
			t.Skip("the kernel chooses by a hash of the addresses: it knows nothing of loops")
		}
		h := holdUp{entered: make(chan uint64, 1), release: make(chan struct{})}
		srv := &weir.Server{
			Transport: kind, Loops: 3, Accept: way, WatchdogAfter: 4 * time.Millisecond, Logger: quiet(),
			Init: only(func() any { return echoUnless{h} }),
		}
		addr := startTCP(t, srv)
		t.Cleanup(func() { close(h.release) }) // before the server is closed
		first := connectAll(t, "tcp", addr, 1, 1)[0]
		_, err := io.WriteString(first, "!")
		require.NoError(t, err)
		receive(t, h.entered, "the handler")
		eventually(t, func() bool {
			for i := range 3 {
				if srv.Group().Loop(i).Stuck() {
					return true
				}
			}
			return false
		}, "the watchdog finds it")
		// With AcceptExclusive the loop has been asked for one connection, which gives the next comer's wake-up to it.
		var served atomic.Int64
		const n = 6
		for range n {
			c := connect(t, "tcp", addr)
			go func() {
				if ping(c, "hello") == nil {
					served.Add(1)
				}
			}()
		}
		want := int64(n)
		if way == weir.AcceptExclusive {
			want--
		}
		eventually(t, func() bool { return served.Load() >= want }, "the others serve")
	})
}

// from dials with a source address.
func from(t *testing.T, ip, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, ping(c, "hello"))
	return c
}

func TestPlaceNamesTheLoop(t *testing.T) {
	places := map[string]struct {
		place func(netip.AddrPort, int) int
		check func(t *testing.T, open []int)
	}{
		"by address": {weir.PlaceByAddress, func(t *testing.T, open []int) {
			for _, n := range open {
				assert.Zero(t, n%10, "%v", open) // ten of each address
			}
		}},
		"the last": {func(_ netip.AddrPort, loops int) int { return loops - 1 }, func(t *testing.T, open []int) {
			assert.Equal(t, []int{0, 0, 0, 40}, open)
		}},
		"out of range": {func(_ netip.AddrPort, loops int) int { return loops }, func(t *testing.T, open []int) {
			for _, n := range open {
				assert.InDelta(t, 10, n, 5)
			}
		}},
		"below zero": {func(netip.AddrPort, int) int { return -1 }, func(t *testing.T, open []int) {
			for _, n := range open {
				assert.InDelta(t, 10, n, 5)
			}
		}},
		"panics": {func(netip.AddrPort, int) int { panic("no idea") }, func(t *testing.T, open []int) {
			for _, n := range open {
				assert.InDelta(t, 10, n, 5)
			}
		}},
	}
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for name, tc := range places {
			t.Run(name, func(t *testing.T) {
				srv := &weir.Server{
					Transport: kind, Loops: 4, Accept: weir.AcceptHandoff, Place: tc.place, Init: initEcho, Logger: quiet(),
				}
				addr := startTCP(t, srv)
				for i := range 40 {
					from(t, fmt.Sprint("127.0.0.", 1+i%4), addr)
				}
				tc.check(t, spread(t, srv))
			})
		}
	})
}

// On loopback a connection's first packet is handled by the processor of whoever connects.
func TestSteerByCPULeadsToTheLoopOfTheProcessor(t *testing.T) {
	n := runtime.NumCPU()
	if n < 2 {
		t.Skip("one processor")
	}
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: n, Pin: true, SteerByCPU: true, Init: initEcho}
		addr := startTCP(t, srv)
		for cpu := range n {
			connected := make(chan error, 1)
			go func() {
				runtime.LockOSThread() // and the thread ends with the goroutine, because it stays locked
				if err := sys.PinThread(cpu); err != nil {
					connected <- err
					return
				}
				for range 10 {
					c, err := net.Dial("tcp", addr) // connect(2) is called on this thread, and does not wait
					if err != nil {
						connected <- err
						return
					}
					t.Cleanup(func() { c.Close() })
				}
				connected <- nil
			}()
			require.NoError(t, receive(t, connected, "connections"))
		}
		eventually(t, func() bool {
			for _, open := range spread(t, srv) {
				if open != 10 {
					return false
				}
			}
			return true
		}, "ten connections on each loop")

		more := &weir.Server{Transport: kind, Loops: n + 1, SteerByCPU: true, Init: initEcho}
		defer more.Close()
		_, err := more.Listen("tcp", "127.0.0.1:0")
		require.ErrorContains(t, err, fmt.Sprintf("%d listeners, %d processors", n+1, n))
	})
}

func TestBadWaysToAcceptAreNamed(t *testing.T) {
	for _, tc := range []struct {
		srv  *weir.Server
		want string
	}{
		{&weir.Server{Accept: "herd"}, `Accept "herd" is not "reuseport", "exclusive", "mutex" or "handoff"`},
		{&weir.Server{Place: weir.PlaceByAddress}, `Place is set, Accept is "" and not "handoff"`},
		{&weir.Server{Place: weir.PlaceByAddress, Accept: weir.AcceptMutex}, `Place is set, Accept is "mutex"`},
		{&weir.Server{SteerByCPU: true, Accept: weir.AcceptHandoff}, `SteerByCPU is set, Accept is "handoff"`},
	} {
		tc.srv.Init = initEcho
		_, err := tc.srv.Listen("tcp", "127.0.0.1:0")
		require.ErrorIs(t, err, weir.ErrConfig)
		assert.ErrorContains(t, err, tc.want)
	}
}

// MaxConnections holds whichever loop accepts, and who waits is served when there is room.
func TestMaxConnectionsHoldsForEachWayToAccept(t *testing.T) {
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		const most = 10
		srv := &weir.Server{Transport: kind, Loops: 3, Accept: way, MaxConnections: most, Init: initEcho}
		addr := startTCP(t, srv)
		clients := connectAll(t, "tcp", addr, most, 1)
		served := make(chan error, 2)
		for range 2 {
			c := connect(t, "tcp", addr)
			go func() { served <- ping(c, "hello") }()
		}
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.Limited > 0
		}, "it has stopped accepting")
		st, err := srv.Stats(background(t))
		require.NoError(t, err)
		require.Equal(t, most, st.Open)
		for _, c := range clients[:2] {
			c.Close()
			require.NoError(t, receive(t, served, "an answer"))
		}
	})
}

// Connections come in while the server ends: each is served, reset or refused, and the server gets to its end.
func TestShutdownWhileConnectionsAreHandedOver(t *testing.T) {
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		for range 3 {
			srv := &weir.Server{Transport: kind, Loops: 3, Accept: way, Init: initEcho, Logger: quiet()}
			addr, err := srv.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				_ = all(8, func(int) error {
					for {
						select {
						case <-stop:
							return nil
						default:
						}
						c, err := net.DialTimeout("tcp", addr.String(), patience)
						if err != nil {
							continue
						}
						_ = ping(c, "hello")
						c.Close()
					}
				})
			}()
			eventually(t, func() bool {
				st, err := srv.Stats(background(t))
				return err == nil && st.Accepted > 50
			}, "connections come")
			require.NoError(t, srv.Shutdown(background(t)))
			close(stop)
			receive(t, ended, "the clients' end")
		}
	})
}

// Out of descriptors, a server of each kind rests, and goes on when there are some.
func TestRunningOutOfDescriptorsIsSurvivedInEachWay(t *testing.T) {
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		var failed atomic.Int64
		srv := &weir.Server{
			Transport: kind, Loops: 2, Accept: way, Init: initEcho, Logger: quiet(), AcceptBackoff: time.Millisecond,
			AcceptError: func(err error) {
				if errors.Is(err, syscall.EMFILE) {
					failed.Add(1)
				}
			},
		}
		addr := startTCP(t, srv)
		connectAll(t, "tcp", addr, 4, 1)
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		to := &syscall.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())}
		// An accept goes by the limit of when it was armed: there are more of these than of those.
		sockets := make([]int, 80)
		for i := range sockets {
			sockets[i], err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			defer syscall.Close(sockets[i])
			patient := syscall.NsecToTimeval(patience.Nanoseconds())
			require.NoError(t, syscall.SetsockoptTimeval(sockets[i], syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &patient))
		}
		release := useUpDescriptors(t)
		for _, fd := range sockets {
			require.NoError(t, syscall.Connect(fd, to))
		}
		eventually(t, func() bool { return failed.Load() > 0 }, "accepting fails")
		release()
		for _, fd := range sockets {
			_, err := syscall.Write(fd, []byte("x"))
			require.NoError(t, err)
			n, err := 0, error(syscall.EINTR)
			for err == syscall.EINTR {
				n, err = syscall.Read(fd, make([]byte, 1))
			}
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
	})
}

// useUpDescriptors leaves the process none.
func useUpDescriptors(t *testing.T) (release func()) {
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 512, Max: old.Max}))
	var taken []int
	for {
		fd, err := syscall.Dup(0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	release = sync.OnceFunc(func() {
		for _, fd := range taken {
			syscall.Close(fd)
		}
		assert.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
	})
	t.Cleanup(release)
	return release
}

// What a handler of a connection that was handed over sees is what it sees otherwise.
func TestAHandedOverConnectionKnowsItsAddresses(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		seen := make(chan [2]net.Addr, 1)
		srv := &weir.Server{
			Transport: kind, Loops: 2, Accept: weir.AcceptHandoff,
			Init: only(func() any { return addresses{seen} }),
		}
		addr := startTCP(t, srv)
		c := connect(t, "tcp", addr)
		got := receive(t, seen, "the channel")
		assert.Equal(t, c.RemoteAddr().String(), got[0].String())
		assert.Equal(t, c.LocalAddr().String(), got[1].String())
		st, err := srv.Stats(context.Background())
		require.NoError(t, err)
		require.NotNil(t, st.Acceptor)
		assert.Equal(t, uint64(1), st.Accepted)
		assert.Zero(t, st.Acceptor.Accepted)
	})
}

type addresses struct{ seen chan [2]net.Addr }

func (a addresses) ChannelActive(ctx *pipeline.Context) error {
	a.seen <- [2]net.Addr{ctx.LocalAddr(), ctx.RemoteAddr()}
	ctx.FireActive()
	return nil
}
