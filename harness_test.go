//go:build linux

package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
)

// patience bounds every wait of these tests. Nothing is expected to take long; a shared machine may.
const patience = 30 * time.Second

// TestMain runs the tests and then checks that no goroutine and no descriptor is left. The binary is also the child
// process of some tests.
func TestMain(m *testing.M) {
	if role := os.Getenv("WEIR_TEST_CHILD"); role != "" {
		os.Exit(child(role))
	}
	warmUp()
	goroutines, descriptors := runtime.NumGoroutine(), testenv.OpenDescriptors()
	code := m.Run()
	if code == 0 && !balanced(goroutines, descriptors) {
		code = 1
	}
	os.Exit(code)
}

// warmUp makes Go's runtime open what it keeps for good.
func warmUp() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	defer l.Close()
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		c.Close()
	}
}

func balanced(goroutines, descriptors int) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		runtime.GC() // closes what only finalizers know
		if runtime.NumGoroutine() <= goroutines && testenv.OpenDescriptors() <= descriptors {
			return true
		}
	}
	fmt.Fprintf(os.Stderr, "left over: goroutines %d, at first %d; descriptors %d, at first %d\n",
		runtime.NumGoroutine(), goroutines, testenv.OpenDescriptors(), descriptors)
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	return false
}

// onEveryTransport runs a test on each transport, forced, as a subtest of its own.
func onEveryTransport(t *testing.T, test func(t *testing.T, kind weir.Kind)) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		t.Run("transport="+string(kind), func(t *testing.T) {
			needTransport(t, kind)
			test(t, kind)
		})
	}
}

func needTransport(t testing.TB, kind weir.Kind) {
	probe := weir.Server{
		Transport: kind, Loops: 1, Logger: quiet(),
		Init: func(*pipeline.Pipeline) error { return nil },
	}
	testenv.Require(t, string(kind), ready(&weir.Dialer{Server: &probe}))
	require.NoError(t, probe.Close())
}

// ready starts the loops that d uses. A plain user may have memory for few rings, and the kernel gives that of closed
// ones back a while later (io_uring_setup(2), RLIMIT_MEMLOCK): it is worth to wait.
func ready(d *weir.Dialer) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		// The loops are started first, and then there is no such network.
		_, err := d.Dial(context.Background(), "none", "", nil)
		if errors.Is(err, net.UnknownNetworkError("none")) {
			return nil
		}
		if !errors.Is(err, syscall.ENOMEM) || time.Now().After(deadline) {
			return err
		}
	}
}

// start makes srv listen, on two loops unless it says otherwise, and closes it when the test ends.
func start(t testing.TB, srv *weir.Server, network, address string) net.Addr {
	t.Helper()
	if srv.Loops == 0 {
		srv.Loops = 2
	}
	if srv.Logger == nil {
		srv.Logger = quiet()
	}
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	require.NoError(t, ready(&weir.Dialer{Server: srv}))
	addr, err := srv.Listen(network, address)
	require.NoError(t, err)
	return addr
}

// startTCP is start on a free port of 127.0.0.1.
func startTCP(t testing.TB, srv *weir.Server) string {
	t.Helper()
	return start(t, srv, "tcp", "127.0.0.1:0").String()
}

// quiet is a logger that says nothing: many tests cause errors on purpose.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// logbook is a logger whose lines a test can count.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

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

// only returns an Init that adds one handler per connection.
func only(handler func() any) func(*pipeline.Pipeline) error {
	return func(p *pipeline.Pipeline) error { return p.AddLast("", handler()) }
}

// echo sends back what it receives and does not read on while the peer does not take it.
type echo struct{}

func (echo) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

func (echo) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	return nil
}

var initEcho = only(func() any { return echo{} })

// connect opens a client connection whose reads and writes all end within the tests' patience.
func connect(t testing.TB, network, address string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout(network, address, patience)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
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

// eventually polls until ok is true.
func eventually(t testing.TB, ok func() bool, what string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "does not happen: "+fmt.Sprintf(what, args...))
		}
	}
}

// free reports whether nobody listens on a TCP address.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err == nil {
		l.Close()
	}
	return err == nil
}

// receive takes from ch within the tests' patience.
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

// noise is a reader of n bytes that look random and depend on seed.
func noise(seed uint64, n int64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return io.LimitReader(rand.NewChaCha8(key), n)
}

// compare reads both to the end and tells where they differ.
func compare(got, want io.Reader) error {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := 0; ; {
		n, errA := io.ReadFull(got, a)
		m, errB := io.ReadFull(want, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return fmt.Errorf("differs in the block of %d and %d bytes at %d (%v, %v)", n, m, at, errA, errB)
		}
		at += n
		if errA != nil {
			if errA == io.EOF || errA == io.ErrUnexpectedEOF {
				return nil
			}
			return fmt.Errorf("after %d bytes: %w", at, errA)
		}
	}
}

// socketPath returns a path for a Unix socket: short, because sun_path is.
func socketPath(t testing.TB) string {
	dir, err := os.MkdirTemp("", "weir")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// sleepABit leaves the processor to others.
func sleepABit() { time.Sleep(100 * time.Microsecond) }

// closing returns a context for Shutdown and closes the clients meanwhile: a channel waits for its peer.
func closing(t testing.TB, clients []net.Conn) context.Context {
	for _, c := range clients {
		c.Close()
	}
	return background(t)
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
