//go:build linux

package epoll

import (
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

func TestAcceptTakesABoundedNumberPerWait(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := open(t, Config{AcceptsPerWait: 4})
			l, addr := f.listen(transport.ListenConfig{})
			for range n {
				peer, err := net.Dial("tcp", addr.String())
				require.NoError(t, err)
				defer peer.Close()
			}
			accept := f.submit(transport.Op{Kind: transport.Accept, Handle: l})
			require.Len(t, f.wait(-1), min(n, 4))
			f.until("all", func() bool { return len(accept.conns) == n })
			require.Equal(t, n+1, f.tr.Stats().Open)
		})
	}
}

func TestAdoptedListeners(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			original, err := net.Listen(network, address)
			require.NoError(t, err)
			defer original.Close()
			f := open(t, Config{})
			other := open(t, Config{})
			cfg := transport.ListenConfig{Listener: original.(syscall.Conn)}
			l, addr := f.listen(cfg)
			_, _ = other.listen(cfg)
			require.Equal(t, original.Addr().String(), addr.String())
			accept := f.submit(transport.Op{Kind: transport.Accept, Handle: l})
			f.wait(0)
			peer, err := net.Dial(network, addr.String())
			require.NoError(t, err)
			defer peer.Close()
			f.until("the connection", func() bool { return len(accept.conns) == 1 })
			if network == "tcp" {
				require.Equal(t, 1, f.option(accept.conns[0].Handle, unix.IPPROTO_TCP, unix.TCP_NODELAY))
			}
			// Closing ours takes it out of epoll, although the socket lives on, and leaves the original to its owner.
			f.done(f.close(l), accept)
			late, err := net.Dial(network, addr.String())
			require.NoError(t, err)
			defer late.Close()
			require.Zero(t, f.wakeUps())
			require.Zero(t, f.tr.Stats().Stale)
			conn, err := original.Accept()
			require.NoError(t, err)
			conn.Close()
			if network == "unix" {
				require.FileExists(t, address)
			}
		})
	}
}

// TestALoopThatStopsAcceptingTellsTheOthers makes the loop that the kernel told of a connection fail to accept it. The
// kernel does not tell the next (EPOLLEXCLUSIVE), so it would wait in the queue until another connection comes.
func TestALoopThatStopsAcceptingTellsTheOthers(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "socket")
			}
			original, err := net.Listen(network, address)
			require.NoError(t, err)
			defer original.Close()
			var to sys.Sockaddr
			client, err := sys.OpenDialSocket(&sys.DialOptions{Network: network, Address: original.Addr().String()},
				&to)
			require.NoError(t, err)
			defer sys.Close(client)

			var all sync.WaitGroup
			var transports []*Transport
			for range 3 {
				f := open(t, Config{})
				l, _ := f.listen(transport.ListenConfig{Listener: original.(syscall.Conn)})
				accept := f.submit(transport.Op{Kind: transport.Accept, Handle: l})
				f.wait(0)
				transports = append(transports, f.tr)
				all.Go(func() {
					for !accept.done {
						out, err := f.tr.Wait(nil, -1)
						if !assert.NoError(t, err) {
							return
						}
						for _, c := range out {
							accept.done, accept.err = !c.More, c.Err
						}
					}
					assert.ErrorIs(t, accept.err, syscall.EMFILE)
					_, err := f.tr.Wait(nil, 0) // tells epoll
					assert.NoError(t, err)
				})
			}
			for _, tr := range transports { // asleep, the kernel tells one only
				for !tr.wake.Asleep() {
					runtime.Gosched()
				}
			}
			noDescriptors(t, func() {
				require.Contains(t, []syscall.Errno{0, syscall.EINPROGRESS}, sys.Connect(client, &to))
				all.Wait()
			})
			conn, err := original.Accept()
			require.NoError(t, err, "it is a listener as before")
			conn.Close()
		})
	}
}

func TestAConnectionDoesNotWakeAllLoopsThatShareAListener(t *testing.T) {
	const loops = 4
	woken := loops
	for tries := 0; woken == loops && tries < 10; tries++ { // on a busy machine some have not quite fallen asleep
		woken = wokenByAConnection(t, loops)
	}
	require.Less(t, woken, loops)
}

// wokenByAConnection returns how many of so many loops that share a listener look at it when a connection comes.
func wokenByAConnection(t *testing.T, loops int) (woken int) {
	t.Helper()
	original, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer original.Close()
	var all sync.WaitGroup
	var transports []*Transport
	accepted := make(chan struct{}, 1)
	for range loops {
		f := open(t, Config{})
		l, _ := f.listen(transport.ListenConfig{Listener: original.(syscall.Conn)})
		f.submit(transport.Op{Kind: transport.Accept, Handle: l})
		f.wait(0)
		transports = append(transports, f.tr)
		all.Go(func() {
			out, err := f.tr.Wait(nil, -1)
			assert.NoError(t, err)
			for range out {
				accepted <- struct{}{}
			}
		})
	}
	for _, tr := range transports {
		for !tr.wake.Asleep() {
			runtime.Gosched()
		}
	}
	peer, err := net.Dial("tcp", original.Addr().String())
	require.NoError(t, err)
	defer peer.Close()
	<-accepted
	for _, tr := range transports {
		require.NoError(t, tr.Wake())
	}
	all.Wait()
	for _, tr := range transports {
		if tr.Counters().Accepts > 0 {
			woken++
		}
	}
	return woken
}

// noDescriptors runs fn while no descriptor can be opened.
func noDescriptors(t *testing.T, fn func()) {
	t.Helper()
	lowest, err := syscall.Dup(0)
	require.NoError(t, err)
	require.NoError(t, syscall.Close(lowest))
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	tight := limit
	tight.Cur = uint64(lowest)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &tight))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()
	fn()
}

// option reads an integer option of a socket.
func (f *fixture) option(h transport.Handle, level, name int) (value int) {
	f.Helper()
	require.NoError(f, f.tr.Control(h, func(fd uintptr) (err error) {
		value, err = unix.GetsockoptInt(int(fd), level, name)
		return err
	}))
	return value
}
