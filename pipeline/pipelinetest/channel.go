package pipelinetest

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/pipeline"
)

// Causes of closing, beside those of package pipeline and syscall.ECONNRESET.
var (
	// ErrCloseTimeout ended a Close whose peer did not take the data in time.
	ErrCloseTimeout = errors.New("pipelinetest: close timed out")
	// ErrPausedClose closed a channel whose peer had finished or gone and took nothing for PausedCloseTimeout, while reading was
	// paused.
	ErrPausedClose = errors.New("pipelinetest: peer gone while reading was paused")
)

// Config configures a Channel. The zero value works; the limits have the defaults of package channel.
type Config struct {
	// WriteHighBytes and WriteLowBytes steer Context.Writable: false when more than high is pending, true again when
	// less than low is. Zero means 64 KiB and 32 KiB.
	WriteHighBytes int
	WriteLowBytes  int
	// MaxPendingBytes is what may be pending before one more write aborts the channel. Zero means 16 MiB.
	MaxPendingBytes int
	// CloseTimeout bounds Close. Zero means 5 s.
	CloseTimeout time.Duration
	// PausedCloseTimeout is how long data of a peer that has gone waits for a resume. Zero means 30 s.
	PausedCloseTimeout time.Duration
	// MaxPostedTasks bounds the Ref.Execute tasks that wait. Zero means 1024.
	MaxPostedTasks int
	// LocalAddr and RemoteAddr default to 192.0.2.1:80 and 192.0.2.2:50000 (RFC 5737 addresses).
	LocalAddr  netip.AddrPort
	RemoteAddr netip.AddrPort
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Init fills the pipeline before the handlers given to New are added. When it fails, the channel is aborted with the
	// error as its cause.
	Init func(*pipeline.Pipeline) error
	// Inactive leaves the activation to Activate.
	Inactive bool
	// Manual makes the loop turn only in RunTasks, Advance and Finish, for tests that look at what happens in between.
	Manual bool
	// Stalled starts with a peer that takes nothing until Drain or Unstall.
	Stalled bool
	// SilentPeer leaves the peer's FIN to PeerClose; otherwise the peer answers the channel's FIN at once.
	SilentPeer bool
}

func (cfg Config) withDefaults() Config {
	cfg.WriteHighBytes = cmp.Or(cfg.WriteHighBytes, 64<<10)
	cfg.WriteLowBytes = cmp.Or(cfg.WriteLowBytes, 32<<10)
	cfg.MaxPendingBytes = cmp.Or(cfg.MaxPendingBytes, 16<<20)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, 5*time.Second)
	cfg.PausedCloseTimeout = cmp.Or(cfg.PausedCloseTimeout, 30*time.Second)
	cfg.MaxPostedTasks = cmp.Or(cfg.MaxPostedTasks, 1024)
	cfg.LocalAddr = cmp.Or(cfg.LocalAddr, netip.MustParseAddrPort("192.0.2.1:80"))
	cfg.RemoteAddr = cmp.Or(cfg.RemoteAddr, netip.MustParseAddrPort("192.0.2.2:50000"))
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// state is where a Channel stands: open → active → closing → closed.
type state uint8

const (
	stateOpen state = iota
	stateActive
	stateClosing
	stateClosed
)

// Channel is a channel without a socket. It belongs to the test's goroutine.
type Channel struct {
	pipe pipeline.Driver
	l    *Loop
	cfg  Config
	id   uint64

	state        state
	dirty        bool // an end of turn is due
	resumeDue    bool
	finishDue    bool
	closeEntered bool
	cause        error
	timers       []*timer // of handlers
	closing      *timer
	pausedEnd    *timer
	retryGrant   *timer

	in    input
	out   output
	post  *poster
	dials []*Dial

	inbound                 []any
	events                  []any
	ops                     []string
	uncaught, uncaughtTaken error
}

// Named is a handler with a name, for New. Others get names made from their types.
func Named(name string, h any) any { return named{name, h} }

type named struct {
	name string
	h    any
}

// New answers an active channel, on a loop of its own, with these handlers, head to tail. The test fails when one cannot
// be added.
func New(t testing.TB, handlers ...any) *Channel {
	t.Helper()
	return NewLoop(t).NewConfig(Config{}, handlers...)
}

// NewConfig is New with a Config.
func NewConfig(t testing.TB, cfg Config, handlers ...any) *Channel {
	t.Helper()
	return NewLoop(t).NewConfig(cfg, handlers...)
}

// New is the function New on this loop.
func (l *Loop) New(handlers ...any) *Channel {
	l.t.Helper()
	return l.NewConfig(Config{}, handlers...)
}

// NewConfig is the function NewConfig on this loop.
func (l *Loop) NewConfig(cfg Config, handlers ...any) *Channel {
	l.t.Helper()
	l.lastID++
	c := &Channel{l: l, cfg: cfg.withDefaults(), id: l.lastID}
	c.out.below, c.out.told, c.out.stalled = true, true, cfg.Stalled
	c.closing = l.newTimer(func() { socket{c}.Abort(ErrCloseTimeout) })
	c.pausedEnd = l.newTimer(c.pausedTooLong)
	c.retryGrant = l.newTimer(func() { socket{c}.GrantChanged() })
	c.post = newPoster(c)
	l.channels = append(l.channels, c)
	l.manual = l.manual || cfg.Manual
	c.pipe.Init(socket{c})
	l.enter(func() { c.fill(handlers) })
	if !cfg.Inactive {
		c.Activate()
	}
	return c
}

func (c *Channel) fill(handlers []any) {
	c.l.t.Helper()
	if c.cfg.Init != nil {
		if err := c.cfg.Init(c.pipe.Pipeline()); err != nil {
			socket{c}.Abort(err)
			return
		}
	}
	for _, h := range handlers {
		n, ok := h.(named)
		if !ok {
			n = named{h: h}
		}
		if err := c.pipe.Pipeline().AddLast(n.name, n.h); err != nil {
			c.l.t.Fatalf("pipelinetest: %v", err)
		}
	}
}

// Activate fires ChannelActive; input that waits is delivered afterwards.
func (c *Channel) Activate() {
	c.l.act(func() {
		if c.state != stateOpen {
			return
		}
		c.state = stateActive
		c.pipe.FireActive()
		c.dirty = true
	})
}

// Pipeline is the channel's pipeline.
func (c *Channel) Pipeline() *pipeline.Pipeline { return c.pipe.Pipeline() }

// Context is the Context of the handler of that name. The test fails when there is none.
func (c *Channel) Context(name string) *pipeline.Context {
	c.l.t.Helper()
	ctx := c.pipe.Pipeline().Context(name)
	if ctx == nil {
		c.l.t.Fatalf("pipelinetest: no handler %q in %q", name, c.pipe.Pipeline().Names())
	}
	return ctx
}

// Loop is the loop that the channel belongs to.
func (c *Channel) Loop() *Loop { return c.l }

// Do runs fn as an event of the loop, and what follows from it: for what a test does with a Context.
func (c *Channel) Do(fn func()) { c.l.act(fn) }

// RunTasks is Loop.RunTasks.
func (c *Channel) RunTasks() int { return c.l.RunTasks() }

// RunUntil is Loop.RunUntil.
func (c *Channel) RunUntil(done func() bool) {
	c.l.t.Helper()
	c.l.RunUntil(done)
}

// Advance is Loop.Advance.
func (c *Channel) Advance(d time.Duration) { c.l.Advance(d) }

// Now is the clock.
func (c *Channel) Now() time.Duration { return c.l.now }

// Finish is Loop.Finish.
func (c *Channel) Finish() {
	c.l.t.Helper()
	c.l.Finish()
}

// Open is false from Close or Abort on.
func (c *Channel) Open() bool { return c.state <= stateActive }

// leave goes on to a state in which the channel is not open any more.
func (c *Channel) leave(to state) {
	c.state = to
	c.pipe.Closing()
}

// Closed is true when the channel is closed: Inactive has been fired and the handlers are removed.
func (c *Channel) Closed() bool { return c.state == stateClosed }

// Cause is why the channel closes or closed; nil for an orderly close.
func (c *Channel) Cause() error { return c.cause }

// Close closes in an orderly way, through the CloseHandlers, as Pipeline.Close does.
func (c *Channel) Close() {
	c.l.act(func() {
		if err := c.pipe.Pipeline().Close(); err != nil {
			c.pipe.Pipeline().FireError(err)
		}
	})
}

// Abort closes at once, as Context.Abort does.
func (c *Channel) Abort(cause error) { c.l.act(func() { socket{c}.Abort(cause) }) }

// Shutdown is what a server that wants to stop does: ask the ShutdownHandlers, else close in an orderly way.
func (c *Channel) Shutdown() {
	c.l.act(func() {
		switch {
		case c.state == stateActive && c.pipe.FireShutdown():
		case c.Open():
			c.closeOrderly()
		}
	})
}

// closeOrderly closes because nobody objects, through the CloseHandlers.
func (c *Channel) closeOrderly() {
	if err := c.pipe.Pipeline().Close(); err != nil {
		socket{c}.Close(err)
	}
}

// TakeError answers the error that reached the end of the pipeline and closed the channel, nil when none did; Finish then
// no longer complains about it.
func (c *Channel) TakeError() error {
	c.uncaughtTaken = c.uncaught
	return c.uncaught
}

// Operations lists what reached the channel since the last call: "write 5" (bytes; what is appended to the tail block in
// one go is not listed), "flush", "close-write", "close", "abort", "stop-reading", "start-reading".
func (c *Channel) Operations() []string {
	ops := c.ops
	c.ops = nil
	return ops
}

// endTurn does what is done once per turn, however often it was asked for.
func (c *Channel) endTurn() {
	if c.state == stateActive {
		c.endTurnFlush()
		c.tellWritability()
		c.tellPending()
		c.read()
	}
	c.runFlushed()
	c.progressClose()
	c.publish()
}

// runPosted does what is due from the loop: the resume, what Refs posted, the end.
func (c *Channel) runPosted() (did bool) {
	if c.resumeDue {
		c.resumeDue = false
		did = true
		c.l.enter(c.resume)
	}
	if c.post.waiting() {
		did = true
		c.l.enter(c.post.drain)
	}
	if c.finishDue {
		c.finishDue = false
		did = true
		c.l.enter(c.finish)
	}
	return did
}

// progressClose takes the next step of a close.
func (c *Channel) progressClose() {
	if c.state == stateClosed || c.finishDue {
		return
	}
	switch {
	case c.state == stateClosing && c.drained():
		c.sendFin()
		if c.in.closed || c.in.end != nil {
			c.finishDue = true
		}
	case c.state == stateClosing:
		c.send()
		c.dirty = c.dirty || c.drained()
	case c.state == stateActive && c.out.finWanted && c.drained():
		c.sendFin()
		c.closeWhenBothClosed()
	}
}

func (c *Channel) sendFin() {
	if c.out.finSent {
		return
	}
	c.out.finSent = true
	if !c.cfg.SilentPeer && c.in.end == nil && !c.in.closed {
		c.in.end = io.EOF
		c.dirty = true
	}
}

func (c *Channel) closeWhenBothClosed() {
	if c.state == stateActive && c.in.closed && c.out.finSent {
		socket{c}.Close(nil)
	}
}

// finish ends the channel's life in the order of package channel.
func (c *Channel) finish() {
	c.leave(stateClosed)
	for _, t := range append(c.timers, c.closing, c.pausedEnd, c.retryGrant) {
		t.Stop()
	}
	c.in.drop()
	c.dropOutput()
	c.failFlushed()
	c.post.finish()
	c.pipe.FireInactive()
	c.pipe.RemoveAll()
	close(c.post.done)
	c.failFlushed() // asked for by the last handlers
}

// finishTest closes the channel and reports what a test has to hear of.
func (c *Channel) finishTest() {
	c.l.t.Helper()
	if c.state != stateClosed {
		socket{c}.Abort(nil)
	}
	c.l.RunTasks()
	if c.l.t.Failed() {
		return
	}
	if c.state != stateClosed {
		c.l.t.Errorf("pipelinetest: channel %d did not close", c.id)
	}
	if c.uncaught != nil && c.uncaughtTaken == nil {
		c.l.t.Errorf("pipelinetest: an error reached the end of the pipeline: %v", c.uncaught)
	}
	if n := len(c.out.waits); n != 0 {
		c.l.t.Errorf("pipelinetest: %d Flushed callbacks never ran", n)
	}
}
