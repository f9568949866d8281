package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// fakeTransport hands out scripted completions and records what it is told. Its time is virtual: a Wait with a timeout
// and nothing to hand out advances it by the timeout, one without limit blocks until a Wake. Close operations complete
// by themselves unless keepClosed is set.
type fakeTransport struct {
	pool       *buffer.Pool
	wake       chan struct{}
	keepClosed bool
	frozen     bool           // time stands still
	early      time.Duration  // a Wait with a timeout ends after this much of it
	waitErr    error          // the next Wait fails
	waitHook   func()         // called by each Wait
	submitHook func()         // called by each Submit
	nowHook    func()         // called by each Now
	closeErr   error          // returned by Close
	record     func(s string) // told of Close

	mu        sync.Mutex
	ready     []transport.Completion // guarded by mu
	now       time.Duration          // guarded by mu
	wakes     int                    // guarded by mu
	submitted []transport.Op         // loop goroutine
	timeouts  []time.Duration        // of each Wait; loop goroutine
	closed    bool                   // loop goroutine
	quiet     bool                   // records nothing
}

func newFake() *fakeTransport {
	return &fakeTransport{pool: buffer.NewPool(buffer.PoolConfig{}), wake: make(chan struct{}, 1)}
}

// deliver makes the completions come out of Wait. Any goroutine.
func (f *fakeTransport) deliver(cs ...transport.Completion) {
	f.mu.Lock()
	f.ready = append(f.ready, cs...)
	f.mu.Unlock()
	f.signal()
}

func (f *fakeTransport) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fakeTransport) Listen(transport.ListenConfig) (transport.Handle, error) {
	return 0, transport.ErrNotSupported
}

func (f *fakeTransport) Submit(op transport.Op) {
	if f.submitHook != nil {
		f.submitHook()
	}
	if f.closed {
		panic("Submit after Close")
	}
	f.submitted = append(f.submitted, op)
	if op.Kind == transport.Close && !f.keepClosed {
		f.deliver(transport.Completion{Token: op.Token})
	}
}

func (f *fakeTransport) Acked(transport.Handle) (uint64, int, error) { return 0, 0, nil }

func (f *fakeTransport) SendNow(transport.Handle, []*buffer.Buf) (int, error) {
	return 0, transport.ErrNotNow
}

func (f *fakeTransport) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	if f.closed {
		panic("Wait after Close")
	}
	if f.waitHook != nil {
		f.waitHook()
	}
	if f.waitErr != nil {
		return nil, f.waitErr
	}
	if !f.quiet {
		f.timeouts = append(f.timeouts, timeout)
	}
	dst, n := f.take(dst)
	if n > 0 || timeout == 0 {
		f.drainWake()
		return dst, nil
	}
	if timeout > 0 {
		select {
		case <-f.wake:
		default:
			if f.early > 0 {
				timeout = min(timeout, f.early)
			}
			f.advance(timeout)
		}
		return dst, nil
	}
	<-f.wake
	dst, _ = f.take(dst)
	return dst, nil
}

func (f *fakeTransport) take(dst []transport.Completion) ([]transport.Completion, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	room := cap(dst) - len(dst)
	if room == 0 {
		room = 256
	}
	n := min(room, len(f.ready))
	dst = append(dst, f.ready[:n]...)
	f.ready = append(f.ready[:0], f.ready[n:]...)
	return dst, n
}

func (f *fakeTransport) drainWake() {
	select {
	case <-f.wake:
	default:
	}
}

func (f *fakeTransport) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.frozen {
		f.now += d
	}
}

func (f *fakeTransport) Wake() error {
	f.mu.Lock()
	f.wakes++
	f.mu.Unlock()
	f.signal()
	return nil
}

func (f *fakeTransport) wakeCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wakes
}

func (f *fakeTransport) Now() time.Duration {
	if f.nowHook != nil {
		f.nowHook()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fakeTransport) Pool() *buffer.Pool                                  { return f.pool }
func (f *fakeTransport) LocalAddr(transport.Handle) net.Addr                 { return nil }
func (f *fakeTransport) HandOver(transport.Handle) (transport.Socket, error) { return nil, nil }

func (f *fakeTransport) TakeOver(transport.Socket) (transport.Handle, error) { return 0, nil }

func (f *fakeTransport) Control(transport.Handle, func(fd uintptr) error) error { return nil }
func (f *fakeTransport) Load() transport.Load                                   { return transport.Load{} }

func (f *fakeTransport) Stats() transport.Stats { return transport.Stats{} }

func (f *fakeTransport) Close() error {
	f.closed = true
	if f.record != nil {
		f.record("transport closed")
	}
	return f.closeErr
}

// clockedTransport is a fakeTransport whose time passes during a turn.
type clockedTransport struct {
	*fakeTransport
	passed time.Duration // since Now
}

func (c *clockedTransport) Clock() time.Duration { return c.Now() + c.passed }

// Tags of a probe's operations.
const (
	tagData  = 1
	tagClose = 2
)

// probe is a Completer that records its callbacks, as "name.callback", and does what its hooks say. On Abort it closes
// and unregisters when the close has completed.
type probe struct {
	name string
	l    *loop.Loop
	reg  loop.Registration
	log  *journal
	node loop.Node

	complete, runNode, endTurn, abort func()
	completed                         func(c *transport.Completion)
	panicked                          func()
	stubborn                          bool // does nothing on Abort

	panics []any
	stacks []string
	causes []error
}

func (p *probe) Complete(c *transport.Completion) {
	if c.Token.Tag() == tagClose {
		p.log.add(p.name + ".closed")
		p.l.Unregister(p.reg)
		return
	}
	p.log.add(p.name + ".complete")
	if p.completed != nil {
		p.completed(c)
	}
	call(p.complete)
}

func (p *probe) RunNode(*loop.Node) {
	p.log.add(p.name + ".node")
	call(p.runNode)
}

func (p *probe) EndTurn() {
	p.log.add(p.name + ".end")
	call(p.endTurn)
}

func (p *probe) Panicked(v any, stack []byte) {
	p.log.add(p.name + ".panicked")
	p.panics = append(p.panics, v)
	p.stacks = append(p.stacks, string(stack))
	call(p.panicked)
}

func (p *probe) Abort(cause error) {
	p.log.add(p.name + ".abort")
	p.causes = append(p.causes, cause)
	call(p.abort)
	if !p.stubborn {
		p.l.Submit(transport.Op{Kind: transport.Close, Handle: 1, Token: p.reg.Token(tagClose)})
	}
}

func (p *probe) data() transport.Completion {
	return transport.Completion{Token: p.reg.Token(tagData), N: 1, More: true}
}

func call(fn func()) {
	if fn != nil {
		fn()
	}
}

// journal is a list of what happened.
type journal struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (j *journal) add(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, s)
}

// take returns the lines since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) does(s string) func() { return func() { j.add(s) } }

// logCatcher is a slog.Handler that keeps the records as text.
type logCatcher struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (h *logCatcher) Enabled(context.Context, slog.Level) bool { return true }
func (h *logCatcher) WithGroup(string) slog.Handler            { return h }
func (h *logCatcher) WithAttrs(attrs []slog.Attr) slog.Handler { return &boundCatcher{h, attrs} }

func (h *logCatcher) Handle(_ context.Context, r slog.Record) error { return h.keep(r, nil) }

func (h *logCatcher) keep(r slog.Record, attrs []slog.Attr) error {
	line := r.Level.String() + " " + r.Message
	for _, a := range attrs {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	return nil
}

func (h *logCatcher) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.lines...)
}

// told is all without the line about the raw place, which depends on GOMAXPROCS.
func (h *logCatcher) told() []string {
	return slices.DeleteFunc(h.all(), func(line string) bool { return strings.Contains(line, "Go's scheduler") })
}

type boundCatcher struct {
	*logCatcher
	attrs []slog.Attr
}

func (h *boundCatcher) Handle(_ context.Context, r slog.Record) error { return h.keep(r, h.attrs) }

// bench is a loop on a fakeTransport, driven by RunOnce.
type testLoop struct {
	*loop.Loop
	tr  *fakeTransport
	log *journal
	out *logCatcher
}

// openLoop returns an open loop that the test's end closes.
func openLoop(t testing.TB, change ...func(*loop.Config)) *testLoop {
	t.Helper()
	l := newTestLoop(t, change...)
	require.NoError(t, l.Open())
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newTestLoop(t testing.TB, change ...func(*loop.Config)) *testLoop {
	t.Helper()
	l := &testLoop{tr: newFake(), log: &journal{}, out: &logCatcher{}}
	l.tr.record = l.log.add
	cfg := loop.Config{
		Open:   func(bool) (transport.Transport, error) { return l.tr, nil },
		Logger: slog.New(l.out),
		Name:   "test",
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	l.Loop, err = loop.New(cfg)
	require.NoError(t, err)
	return l
}

func (l *testLoop) probe(t testing.TB, name string) *probe {
	t.Helper()
	p := &probe{name: name, l: l.Loop, log: l.log}
	p.node.Init(p)
	reg, err := l.Register(p)
	require.NoError(t, err)
	p.reg = reg
	return p
}

// once does one turn that does not wait.
func (l *testLoop) once(t testing.TB) int {
	t.Helper()
	n, err := l.RunOnce(0)
	require.NoError(t, err)
	return n
}

// eventually polls until ok, or fails the test after a generous while.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, time.Millisecond, what)
}

// closesInTime fails the test when ch is not closed after a generous while.
func closesInTime(t testing.TB, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "still waiting: "+what)
	}
}
