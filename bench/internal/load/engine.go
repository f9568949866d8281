//go:build linux

// Package load is a load generator for echo servers: one thread, one epoll, raw system calls, no allocation while it
// runs. It checks every byte that comes back.
package load

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/bench/internal/procfs"
	"github.com/weirnet/weir/bench/internal/rawsys"
)

const (
	eventsAtOnce = 512
	// drainTimeout is how long answers may take after the end of a window. Connections that owe some then are an error.
	drainTimeout = 5 * time.Second
	// sleepAtMost bounds an epoll_wait without Spin; ends of windows are noticed so late at worst.
	sleepAtMost = 5 * time.Millisecond
	// Latencies between 100 ns and 100 s, to 1 %.
	minLatency, maxLatency, latencyDigits = 100, 100_000_000_000, 2
)

// errPeer is the error of a connection that the server closed.
var errPeer = errors.New("load: closed by the server")

// conn is one connection. Positions are those of the pattern.
type conn struct {
	fd       int32
	writing  bool // waits for room to send
	index    int
	sendAt   int // position of the next byte to send
	recvAt   int // position of the next byte to come
	sendLeft int // bytes due that the kernel has not taken
	recvLeft int // bytes sent or due that have not come back
	partial  int // bytes of the message that is coming in
	answered int // messages, in this window, Open; warm-up included
	sentAt   time.Duration
}

// workload is what a kind of load does with its connections.
type workload interface {
	// begin starts a slice at now.
	begin(now time.Duration)
	// tick is called after each batch of events.
	tick(now time.Duration)
	// received is told that n bytes came back on c, which were checked.
	received(c *conn, n int, now time.Duration)
	// failed is told that c is closed.
	failed(c *conn)
	// owed says how many messages have been due and not been answered.
	owed() int64
}

// Engine drives one Config against one server. It belongs to the goroutine that made it, which it locks to its thread.
type Engine struct {
	cfg     Config
	to      netip.AddrPort
	pattern *pattern
	work    workload
	conns   []conn // the active ones, then the idle ones
	started time.Time
	epoll   int
	events  []unix.EpollEvent
	buf     []byte

	// of the slice that is running
	measuring bool // inside the window
	// The window's ends; its second one is known when it is over.
	windowFrom, windowTo time.Duration
	stopping             bool // nothing new is sent
	messages             int64
	hist                 *hdrhistogram.Histogram
	bad                  int64
	errs                 int64
	firstErr             error
	idleSince            time.Duration // -1: busy
	idle                 time.Duration
}

// New connects. Close what it returns.
func New(cfg Config) (*Engine, error) {
	to, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, to: to, pattern: newPattern(cfg.SizeBytes, cfg.Framed), started: time.Now(), epoll: -1,
		events: make([]unix.EpollEvent, eventsAtOnce), buf: make([]byte, chunkBytes),
		hist: hdrhistogram.New(minLatency, maxLatency, latencyDigits), idleSince: -1,
	}
	if e.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("load: epoll_create1: %w", err)
	}
	e.conns = make([]conn, cfg.Conns+cfg.Idle)
	for i := range e.conns {
		e.conns[i] = conn{fd: -1, index: i, sendAt: e.pattern.start(i), recvAt: e.pattern.start(i)}
	}
	switch cfg.Kind {
	case Closed:
		e.work = &closed{Engine: e}
	case Open:
		e.work = &open{Engine: e}
	case Churn:
		e.work = &churn{Engine: e}
	}
	for i := range e.conns {
		if cfg.Kind == Churn && i < cfg.Conns {
			continue
		}
		if err := e.open(&e.conns[i]); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	runtime.LockOSThread()
	return e, nil
}

// Close closes all connections.
func (e *Engine) Close() error {
	for i := range e.conns {
		if c := &e.conns[i]; c.fd >= 0 {
			_ = unix.Close(int(c.fd)) // also when it was reset
			c.fd = -1
		}
	}
	return unix.Close(e.epoll)
}

func (e *Engine) open(c *conn) error {
	fd, err := connect(e.to, c.index)
	if err != nil {
		return err
	}
	c.fd = int32(fd)
	return e.watch(c, unix.EPOLL_CTL_ADD, unix.EPOLLIN)
}

func (e *Engine) watch(c *conn, operation int, events uint32) error {
	err := unix.EpollCtl(e.epoll, operation, int(c.fd), &unix.EpollEvent{Events: events, Fd: int32(c.index)})
	if err != nil {
		return fmt.Errorf("load: epoll_ctl: %w", err)
	}
	return nil
}

// Slice runs the load for warmUp and then for a window that is measured, and waits for the answers that are still due.
func (e *Engine) Slice(warmUp, window time.Duration) (Result, error) {
	if window <= 0 || warmUp < 0 || warmUp+window > maxWindow {
		return Result{}, fmt.Errorf("%w: a window of %v after %v, at most %v", ErrConfig, window, warmUp, maxWindow)
	}
	e.hist.Reset()
	e.messages, e.bad, e.errs, e.firstErr, e.stopping = 0, 0, 0, nil, false
	begin := e.now()
	e.windowFrom, e.windowTo = maxWindow*1000, 0 // none yet
	e.work.begin(begin)
	e.runUntil(begin + warmUp)

	before, err := e.clocks()
	if err != nil {
		return Result{}, err
	}
	from := e.now()
	e.idle, e.idleSince, e.measuring, e.windowFrom = 0, -1, true, from
	e.runUntil(from + window)
	to := e.now()
	e.busy(to)
	e.measuring, e.windowTo = false, to
	after, err := e.clocks()
	if err != nil {
		return Result{}, err
	}

	e.stopping = true
	idle := e.idle
	for limit := to + drainTimeout; e.work.owed() > 0 && e.now() < limit; {
		e.poll()
	}
	r := e.result(to - from)
	r.ServerCPU, r.LoadCPU = after.server-before.server, after.own-before.own
	if e.cfg.Spin {
		r.BusyShare = 1 - idle.Seconds()/(to-from).Seconds()
	}
	return r, nil
}

func (e *Engine) result(window time.Duration) Result {
	at := func(q float64) time.Duration { return time.Duration(e.hist.ValueAtQuantile(q)) }
	r := Result{
		Seconds: window.Seconds(), Messages: e.messages, Unanswered: e.work.owed(),
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: time.Duration(e.hist.Max()),
		BadBytes: e.bad, Errors: e.errs,
	}
	if e.firstErr != nil {
		r.Error = e.firstErr.Error()
	}
	return r
}

// clocks are CPU times.
type clocks struct{ server, own time.Duration }

func (e *Engine) clocks() (c clocks, err error) {
	if e.cfg.ServerPID != 0 {
		if c.server, err = procfs.CPUTime(e.cfg.ServerPID); err != nil {
			return c, err
		}
	}
	c.own, err = procfs.CPUTime(os.Getpid())
	return c, err
}

// now is the monotonic time since the engine was made.
func (e *Engine) now() time.Duration { return time.Since(e.started) }

func (e *Engine) runUntil(end time.Duration) {
	for e.poll() < end {
	}
}

// poll handles what has happened and returns the time.
func (e *Engine) poll() (now time.Duration) {
	n := e.wait()
	now = e.now()
	if n > 0 {
		e.busy(now)
	} else if e.idleSince < 0 {
		e.idleSince = now
	}
	for i := range n {
		ev := &e.events[i]
		c := &e.conns[ev.Fd]
		if ev.Events&unix.EPOLLOUT != 0 {
			e.send(c)
		}
		if ev.Events&^unix.EPOLLOUT != 0 && c.fd >= 0 {
			e.receive(c)
		}
	}
	e.work.tick(now)
	return now
}

// busy ends a time without anything to do.
func (e *Engine) busy(now time.Duration) {
	if e.idleSince >= 0 {
		e.idle += now - e.idleSince
		e.idleSince = -1
	}
}

// wait returns the number of events.
func (e *Engine) wait() int {
	if e.cfg.Spin {
		n, errno := rawsys.EpollPoll(e.epoll, e.events)
		if errno != 0 {
			return 0
		}
		return n
	}
	n, err := unix.EpollWait(e.epoll, e.events, e.sleep())
	if err != nil {
		return 0
	}
	return n
}

// sleep returns for how many milliseconds epoll may wait: an open loop cannot sleep while it has to send every few µs.
func (e *Engine) sleep() int {
	if e.cfg.Kind == Open && !e.stopping {
		return 0
	}
	return int(sleepAtMost / time.Millisecond)
}

func (e *Engine) receive(c *conn) {
	n, errno := rawsys.Recv(int(c.fd), e.buf)
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		return
	case errno != 0:
		e.fail(c, fmt.Errorf("load: recv: %w", errno))
		return
	case n == 0:
		e.fail(c, errPeer)
		return
	}
	now := e.now()
	got := e.buf[:n]
	want := e.pattern.table[c.recvAt : c.recvAt+n]
	if n > c.recvLeft { // more than was sent
		e.bad += int64(n - c.recvLeft)
		e.fail(c, fmt.Errorf("load: %d bytes came, %d were due", n, c.recvLeft))
		return
	}
	if string(got) != string(want) {
		e.bad += int64(e.pattern.differing(c.recvAt, got))
	}
	c.recvAt = e.pattern.next(c.recvAt, n)
	c.recvLeft -= n
	e.work.received(c, n, now)
}

// completed returns how many messages n more bytes complete.
func (e *Engine) completed(c *conn, n int) int {
	c.partial += n
	if c.partial < e.pattern.messageBytes {
		return 0
	}
	k := c.partial / e.pattern.messageBytes
	c.partial -= k * e.pattern.messageBytes
	return k
}

// record counts k messages that took so long.
func (e *Engine) record(latency time.Duration, k int) {
	_ = e.hist.RecordValues(int64(min(max(latency, minLatency), maxLatency)), int64(k)) // in range
}

// push sends k more messages, as far as there is room.
func (e *Engine) push(c *conn, k int) {
	n := k * e.pattern.messageBytes
	c.sendLeft += n
	c.recvLeft += n
	if !c.writing {
		e.send(c)
	}
}

func (e *Engine) send(c *conn) {
	for c.sendLeft > 0 {
		chunk := min(c.sendLeft, chunkBytes)
		n, errno := rawsys.Send(int(c.fd), e.pattern.table[c.sendAt:c.sendAt+chunk])
		if errno == syscall.EINTR {
			continue
		}
		if errno == syscall.EAGAIN {
			break
		}
		if errno != 0 {
			e.fail(c, fmt.Errorf("load: send: %w", errno))
			return
		}
		c.sendAt = e.pattern.next(c.sendAt, n)
		c.sendLeft -= n
	}
	if writing := c.sendLeft > 0; writing != c.writing {
		c.writing = writing
		events := uint32(unix.EPOLLIN)
		if writing {
			events |= unix.EPOLLOUT
		}
		if err := e.watch(c, unix.EPOLL_CTL_MOD, events); err != nil {
			e.fail(c, err)
		}
	}
}

// fail closes c.
func (e *Engine) fail(c *conn, err error) {
	e.errs++
	if e.firstErr == nil {
		e.firstErr = err
	}
	_ = unix.Close(int(c.fd))
	c.fd = -1
	e.work.failed(c)
}
