//go:build linux

package fieldtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/epoll"
	"github.com/weirnet/weir/transport/uring"
)

// patience bounds every wait of these tests. Nothing is expected to take long; a shared machine may.
const patience = 30 * time.Second

// transports are what each test runs on.
var transports = []struct {
	kind  weir.Kind
	probe func() error
}{
	{weir.Epoll, func() error { return nil }},
	{weir.Uring, func() error {
		runtime.LockOSThread() // a ring belongs to its thread
		defer runtime.UnlockOSThread()
		return uring.Probe()
	}},
}

// onEveryTransport runs test on each transport, forced, and checks after each that nothing is left.
func onEveryTransport(t *testing.T, test func(t *testing.T, kind weir.Kind)) {
	for _, tr := range transports {
		t.Run("transport="+string(tr.kind), func(t *testing.T) {
			testenv.Require(t, string(tr.kind), tr.probe())
			watchBalance(t)
			needServer(t, tr.kind)
			test(t, tr.kind)
		})
	}
}

// needServer skips where a server can't have the transport although the system has it.
func needServer(t *testing.T, kind weir.Kind) {
	probe := weir.Server{Transport: kind, Loops: 1, Logger: quiet(), Init: func(*pipeline.Pipeline) error { return nil }}
	_, err := probe.Listen("tcp", "127.0.0.1:0")
	testenv.Require(t, string(kind), err)
	require.NoError(t, probe.Close())
}

// watchBalance checks at the very end of the test that there are not more goroutines and descriptors than now.
func watchBalance(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), testenv.OpenDescriptors()
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if runtime.NumGoroutine() <= goroutines && testenv.OpenDescriptors() <= descriptors {
				return
			}
		}
		t.Errorf("left over: goroutines %d, at first %d; descriptors %d, at first %d",
			runtime.NumGoroutine(), goroutines, testenv.OpenDescriptors(), descriptors)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	})
}

// rig is a server, its clients, and the account of its channels.
type rig struct {
	t       *testing.T
	srv     *weir.Server
	network string
	address string
	pools   []*buffer.Pool
	log     logbook

	active, inactive, closed atomic.Int64
	finished                 atomic.Int64 // FINs of peers, for tests that count them
	wrong                    atomic.Int64 // channels whose Active or Inactive came twice, or in the wrong order

	mu      sync.Mutex
	refs    []pipeline.Ref // guarded by mu: those handed out by keep
	clients []net.Conn     // the test's goroutine only
}

// newRig starts srv on 127.0.0.1, with init filling its pipelines behind the rig's own handler. The test ends with all
// channels closed by themselves once the clients are, and all buffers released.
func newRig(t *testing.T, srv *weir.Server, init func(*pipeline.Pipeline) error) *rig {
	t.Helper()
	return newRigOn(t, "tcp", srv, init)
}

// newRigOn is newRig on "tcp" or "unix".
func newRigOn(t *testing.T, network string, srv *weir.Server, init func(*pipeline.Pipeline) error) *rig {
	t.Helper()
	r := &rig{t: t, srv: srv, network: network}
	if srv.Loops == 0 {
		srv.Loops = 2
	}
	if srv.Logger == nil {
		srv.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	}
	srv.Init = func(p *pipeline.Pipeline) error {
		if err := p.AddLast("account", &account{rig: r}); err != nil {
			return err
		}
		return init(p)
	}
	srv.Channel.Closed = func(*channel.Channel) { r.closed.Add(1) }
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "weir") // short, because sun_path is
		require.NoError(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	addr, err := srv.Listen(network, address)
	require.NoError(t, err)
	r.address = addr.String()
	t.Cleanup(r.end)
	r.pools = make([]*buffer.Pool, srv.Group().Len())
	for i := range r.pools {
		r.onLoop(i, func(l *loop.Loop) { r.pools[i] = l.Pool() })
	}
	return r
}

// end runs after the clients were closed.
func (r *rig) end() {
	gone := false
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if gone = r.closed.Load() >= r.active.Load() && r.inactive.Load() >= r.active.Load(); gone {
			break
		}
	}
	if !gone {
		r.t.Errorf("channels stay open: %d active, %d inactive, %d closed", r.active.Load(), r.inactive.Load(),
			r.closed.Load())
	}
	assert.NoError(r.t, r.srv.Close())
	assert.Equal(r.t, r.active.Load(), r.inactive.Load(), "Inactive comes once for each Active")
	assert.Zero(r.t, r.wrong.Load(), "channels whose Active or Inactive came at a wrong time")
	for i, p := range r.pools {
		assert.Zero(r.t, p.Outstanding(), "buffers of loop %d: %s", i, strings.Join(p.Leaks(), "\n"))
		assert.Zero(r.t, p.OutstandingBytes(), "bytes of the buffers of loop %d", i)
	}
}

// account stands first in each pipeline and counts.
type account struct {
	rig              *rig
	active, inactive int
}

func (a *account) ChannelActive(ctx *pipeline.Context) error {
	if a.active++; a.active > 1 {
		a.rig.wrong.Add(1)
	}
	a.rig.active.Add(1)
	ctx.FireActive()
	return nil
}

func (a *account) ChannelInactive(ctx *pipeline.Context) error {
	if a.inactive++; a.inactive > 1 || a.active == 0 {
		a.rig.wrong.Add(1)
	}
	ctx.FireInactive()
	a.rig.inactive.Add(1)
	return nil
}

// onLoop runs fn on a loop and waits for it.
func (r *rig) onLoop(i int, fn func(*loop.Loop)) {
	r.t.Helper()
	done := make(chan struct{})
	l := r.srv.Group().Loop(i)
	r.eventually(func() bool { return l.Execute(func() { defer close(done); fn(l) }) == nil }, "room for a task")
	receive(r.t, done, "the end of a task")
}

// held returns the buffers and the bytes that the pools of all loops have handed out.
func (r *rig) held() (bufs, bytes int) {
	for i, p := range r.pools {
		r.onLoop(i, func(*loop.Loop) {
			bufs += p.Outstanding()
			bytes += p.OutstandingBytes()
		})
	}
	return bufs, bytes
}

// settled waits until all buffers are back.
func (r *rig) settled() {
	r.t.Helper()
	r.eventually(func() bool {
		bufs, bytes := r.held()
		return bufs == 0 && bytes == 0
	}, "the buffers come back")
}

func (r *rig) stats() weir.Stats {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := r.srv.Stats(ctx)
	require.NoError(r.t, err)
	return st
}

// wakeUps returns how often loops have turned, and how often transports have entered the kernel, until now. A transport
// that spins inside one Wait is seen by the second number only. Asking costs a few of each itself.
func (r *rig) wakeUps() (turns, entered uint64) {
	r.t.Helper()
	for i := range r.pools {
		r.onLoop(i, func(l *loop.Loop) {
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
	c, err := net.DialTimeout(r.network, r.address, patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(2 * patience))
}

// rigOf returns the rig of an accepted channel. Handlers ask for it this way, because they run before newRig has
// answered.
func rigOf(ctx *pipeline.Context) *rig { return ctx.Pipeline().Get("account").(*account).rig }

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
	require.NoError(r.t, r.srv.Group().Loop(i).Execute(func() { close(entered); <-gate }))
	receive(r.t, entered, "the loop's time")
	return sync.OnceFunc(func() { close(gate) })
}

// eventually polls until ok is true.
func (r *rig) eventually(ok func() bool, what string, args ...any) {
	r.t.Helper()
	eventually(r.t, ok, what, args...)
}

func eventually(t testing.TB, ok func() bool, what string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "does not happen: "+fmt.Sprintf(what, args...))
		}
	}
}

// receive takes from ch within the patience.
func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(t, "does not come: "+what)
		panic("not reached")
	}
}

// all runs n functions at once and returns their errors, joined.
func all(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// scaled returns full, or small where time is short: with -short and under the race detector.
func scaled(full, small int) int {
	if testing.Short() || raceDetector {
		return small
	}
	return full
}

// ping sends text and wants it back.
func ping(c net.Conn, text string) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("sent %q, got %q", text, got)
	}
	return nil
}

// reset closes a TCP connection with RST.
func reset(c net.Conn) error {
	return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close())
}

// control runs fn with a connection's descriptor.
func control(c syscall.Conn, fn func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = fn(int(fd)) })
	return errors.Join(err, failed)
}

// quiet is a logger that says nothing.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// logbook keeps what is logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// lines returns the lines that contain what.
func (b *logbook) lines(what string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []string
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, what) {
			found = append(found, line)
		}
	}
	return found
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
