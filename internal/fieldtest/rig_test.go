//go:build linux

package fieldtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/epoll"
	"github.com/weirnet/weir/transport/uring"
)

const patience = servertest.Patience

var (
	eventually = servertest.Eventually
	all        = servertest.All
	ping       = servertest.Ping
	control    = servertest.Control
	quiet      = servertest.Quiet
	only       = servertest.Only
	initEcho   = servertest.InitEcho
)

type (
	echo    = servertest.Echo
	logbook = servertest.Logbook
)

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return servertest.Receive(t, ch, what)
}

// onEveryTransport runs test on each transport, forced, and checks after each that nothing is left.
func onEveryTransport(t *testing.T, test func(t *testing.T, kind weir.Kind)) {
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
		servertest.Balance(t)
		test(t, kind)
	})
}

// rig is a server, its clients, and the account of its channels.
type rig struct {
	servertest.Rig
	t        testing.TB
	log      logbook
	finished atomic.Int64 // FINs of peers, for tests that count them

	mu      sync.Mutex
	refs    []pipeline.Ref // guarded by mu: those handed out by keep
	clients []net.Conn     // the test's goroutine only
}

// newRig starts srv on 127.0.0.1, with init filling its pipelines.
func newRig(t *testing.T, srv *weir.Server, init func(*pipeline.Pipeline) error) *rig {
	t.Helper()
	return newRigOn(t, "tcp", srv, init)
}

// newRigOn is newRig on "tcp" or "unix".
func newRigOn(t *testing.T, network string, srv *weir.Server, init func(*pipeline.Pipeline) error) *rig {
	t.Helper()
	r := &rig{t: t}
	r.Value = r
	if srv.Logger == nil {
		srv.Logger = r.log.Logger()
	}
	r.Start(t, network, srv, init)
	return r
}

// settled waits until all buffers are back.
func (r *rig) settled() {
	r.t.Helper()
	r.eventually(func() bool {
		bufs, bytes := r.Held()
		return bufs == 0 && bytes == 0
	}, "the buffers come back")
}

func (r *rig) stats() weir.Stats {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := r.Server.Stats(ctx)
	require.NoError(r.t, err)
	return st
}

// wakeUps returns how often loops have turned, and how often transports have entered the kernel, until now. A transport
// that spins inside one Wait is seen by the second number only. Asking costs a few of each itself.
func (r *rig) wakeUps() (turns, entered uint64) {
	r.t.Helper()
	for i := range r.Pools {
		r.OnLoop(i, func(l *loop.Loop) {
			turns += l.Stats().Turns
			switch tr := l.Transport().(type) {
			case *epoll.Transport:
				entered += tr.Counters().EpollWaits
			case *uring.Transport:
				entered += tr.Counters().Enters
			default:
				r.t.Errorf("nobody knows how to count the system calls of a %T", tr)
			}
		})
	}
	return turns, entered
}

// dial opens a client connection that is closed when the test ends and whose reads and writes end within the patience.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := r.tryDial()
	require.NoError(r.t, err)
	r.t.Cleanup(func() { c.Close() })
	r.clients = append(r.clients, c)
	return c
}

// closeClients closes all connections that dial has opened.
func (r *rig) closeClients() {
	for _, c := range r.clients {
		c.Close()
	}
}

// tryDial is dial for any goroutine, whose connection the caller closes.
func (r *rig) tryDial() (net.Conn, error) {
	c, err := net.DialTimeout(r.Network, r.Address, patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(2 * patience))
}

func rigOf(ctx *pipeline.Context) *rig { return servertest.RigOf(ctx).Value.(*rig) }

// keep hands a Ref to the test. It is a hook for ChannelActive.
func keep(ctx *pipeline.Context) error {
	r, ref := rigOf(ctx), ctx.Ref()
	r.mu.Lock()
	r.refs = append(r.refs, ref)
	r.mu.Unlock()
	return nil
}

// kept waits for n Refs and returns them.
func (r *rig) kept(n int) []pipeline.Ref {
	r.t.Helper()
	var refs []pipeline.Ref
	r.eventually(func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		refs = append(refs[:0], r.refs...)
		return len(refs) >= n
	}, "%d channels", n)
	return refs
}

// execute runs fn on ref's loop and waits for it.
func (r *rig) execute(ref pipeline.Ref, fn func(*pipeline.Context)) {
	r.t.Helper()
	done := make(chan struct{})
	require.NoError(r.t, ref.Execute(func(ctx *pipeline.Context) { defer close(done); fn(ctx) }))
	receive(r.t, done, "the end of a task")
}

// block keeps a loop busy until what it returns is called.
func (r *rig) block(i int) (release func()) {
	r.t.Helper()
	entered, gate := make(chan struct{}), make(chan struct{})
	require.NoError(r.t, r.Server.Group().Loop(i).Execute(func() { close(entered); <-gate }))
	receive(r.t, entered, "the loop's time")
	return sync.OnceFunc(func() { close(gate) })
}

// eventually polls until ok is true.
func (r *rig) eventually(ok func() bool, what string, args ...any) {
	r.t.Helper()
	eventually(r.t, ok, what, args...)
}

// scaled returns full, or small where time is short: outside of the gate, with -short and under the race detector.
func scaled(full, small int) int {
	if !testenv.Thorough() || raceDetector {
		return small
	}
	return full
}

// reset closes a TCP connection with RST.
func reset(c net.Conn) error {
	return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close())
}

// residentBytes is the memory of this process that is in RAM (proc_pid_statm(5)).
func residentBytes(t testing.TB) int {
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, resident int
	_, err = fmt.Sscan(string(text), &size, &resident)
	require.NoError(t, err)
	return resident * os.Getpagesize()
}
