// Package servertest is what tests over real sockets share: servers on each transport, clients, waiting, and the
// account of what may be left at the end. Its functions belong to the test's goroutine unless they say otherwise.
package servertest

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

// Patience bounds every wait. Nothing is expected to take long; a shared machine may.
const Patience = 30 * time.Second

// Each runs a test on each transport, forced, as a subtest of its own. What the machine lacks is testenv's matter.
func Each(t *testing.T, test func(t *testing.T, kind weir.Kind)) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		t.Run("transport="+string(kind), func(t *testing.T) {
			Need(t, kind)
			test(t, kind)
		})
	}
}

// Need is testenv.Require for a transport.
func Need(t testing.TB, kind weir.Kind) {
	probe := &weir.Server{
		Transport: kind, Loops: 1, Logger: Quiet(),
		Init: func(*pipeline.Pipeline) error { return nil },
	}
	testenv.Require(t, string(kind), Ready(&weir.Dialer{Server: probe}))
	require.NoError(t, probe.Close())
}

// Ready starts the loops that d uses. A plain user may have memory for few rings, and the kernel gives that of closed
// ones back a while later (io_uring_setup(2), RLIMIT_MEMLOCK): it is worth to wait.
func Ready(d *weir.Dialer) error {
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
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

// Start makes srv listen, on two loops unless it says otherwise, and closes it when the test ends.
func Start(t testing.TB, srv *weir.Server, network, address string) net.Addr {
	t.Helper()
	if srv.Loops == 0 {
		srv.Loops = 2
	}
	if srv.Logger == nil {
		srv.Logger = Quiet()
	}
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	require.NoError(t, Ready(&weir.Dialer{Server: srv}))
	addr, err := srv.Listen(network, address)
	require.NoError(t, err)
	return addr
}

// StartTCP is Start on a free port of 127.0.0.1.
func StartTCP(t testing.TB, srv *weir.Server) string {
	t.Helper()
	return Start(t, srv, "tcp", "127.0.0.1:0").String()
}

// Serve is StartTCP of one loop with the handlers that handlers returns for each connection.
func Serve(t testing.TB, kind weir.Kind, handlers func() ([]any, error)) (address string) {
	t.Helper()
	return StartTCP(t, &weir.Server{Transport: kind, Loops: 1, Init: Chain(handlers)})
}

// Chain returns an Init that adds handlers, made for each connection.
func Chain(handlers func() ([]any, error)) func(*pipeline.Pipeline) error {
	return func(p *pipeline.Pipeline) error {
		all, err := handlers()
		for i := 0; i < len(all) && err == nil; i++ {
			err = p.AddLast("", all[i])
		}
		return err
	}
}

// Only is Chain for one handler.
func Only(handler func() any) func(*pipeline.Pipeline) error {
	return func(p *pipeline.Pipeline) error { return p.AddLast("", handler()) }
}

// Echo sends back what it receives and does not read on while the peer does not take it.
type Echo struct{}

var (
	_ pipeline.ReadHandler        = Echo{}
	_ pipeline.WritabilityHandler = Echo{}
)

// ChannelRead borrows msg until return.
func (Echo) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

// ChannelWritabilityChanged pauses and resumes.
func (Echo) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	return nil
}

// InitEcho is the Init of an echo server.
func InitEcho(p *pipeline.Pipeline) error { return p.AddLast("", Echo{}) }

// Dial opens a client connection that is closed when the test ends and whose reads and writes end within the patience.
func Dial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout(network, address, Patience)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(Patience)))
	return c
}

// DialTCP is Dial for those who close one direction.
func DialTCP(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	return Dial(t, "tcp", address).(*net.TCPConn)
}

// Ping sends text and wants it back. Any goroutine.
func Ping(c net.Conn, text string) error {
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

// Poll reports whether ok becomes true within the patience. Any goroutine.
func Poll(ok func() bool) bool {
	for deadline := time.Now().Add(Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// Eventually waits until ok is true.
func Eventually(t testing.TB, ok func() bool, what string, args ...any) {
	t.Helper()
	if !Poll(ok) {
		require.FailNow(t, "does not happen: "+fmt.Sprintf(what, args...))
	}
}

// Receive takes from ch within the patience.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		require.FailNow(t, "does not come: "+what)
		panic("not reached")
	}
}

// All runs n functions at once and returns their errors, joined. Any goroutine.
func All(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Control runs fn with a connection's descriptor. Any goroutine.
func Control(c syscall.Conn, fn func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = fn(int(fd)) })
	return errors.Join(err, failed)
}

// SocketPath returns a path for a Unix socket: short, because sun_path is.
func SocketPath(t testing.TB) string {
	dir, err := os.MkdirTemp("", "weir")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// Quiet returns a logger that says nothing: many tests cause errors on purpose.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Logbook keeps what is logged. Any goroutine.
type Logbook struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write is io.Writer's.
func (b *Logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Logger returns a logger that writes here.
func (b *Logbook) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// Lines returns the lines that contain what.
func (b *Logbook) Lines(what string) []string {
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
