package pipelinetest

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// Config configures a Channel. The zero value works. The fields that channel.Config has mean the same there.
type Config struct {
	MaxPendingBytes    int
	WriteHighBytes     int
	WriteLowBytes      int
	CloseTimeout       time.Duration
	CloseDiscardBytes  int
	PausedCloseTimeout time.Duration
	MaxPostedTasks     int
	// Logger defaults to one whose errors show when the test fails.
	Logger *slog.Logger
	// Init fills the pipeline before the handlers given to New are added. When it fails, the channel is aborted.
	Init func(*pipeline.Pipeline) error

	// LocalAddr and RemoteAddr default to 192.0.2.1:80 and 192.0.2.2:50000 (RFC 5737 addresses).
	LocalAddr  netip.AddrPort
	RemoteAddr netip.AddrPort
	// Inactive leaves connecting to Activate: before, there is no pipeline, but the peer may do something.
	Inactive bool
	// Manual makes the loop turn only in RunTasks, Advance and Finish, for tests that look at what happens in between.
	Manual bool
	// Stalled starts with a kernel that takes nothing until Drain or Unstall.
	Stalled bool
	// SilentPeer leaves the peer's FIN to PeerClose; otherwise the peer answers the channel's FIN at once.
	SilentPeer bool
}

func (cfg *Config) channel() *channel.Config {
	return &channel.Config{
		MaxPendingBytes: cfg.MaxPendingBytes, WriteHighBytes: cfg.WriteHighBytes, WriteLowBytes: cfg.WriteLowBytes,
		CloseTimeout: cfg.CloseTimeout, CloseDiscardBytes: cfg.CloseDiscardBytes,
		PausedCloseTimeout: cfg.PausedCloseTimeout, MaxPostedTasks: cfg.MaxPostedTasks, Logger: cfg.Logger,
	}
}

// Channel is a channel.Channel with a peer that the test plays. It belongs to the test's goroutine.
type Channel struct {
	l       *Loop
	cfg     Config
	dialing *sim.Dialing
	real    *channel.Channel
	ctx     *pipeline.Context // of a handler that has left: it only asks the channel
	closed  bool

	peer    *sim.Peer
	peerEnd error    // what the peer did: io.EOF, ECONNRESET
	early   []func() // what it did before the connection was made
	feeder  *feeder  // nil until there is a message that is not bytes
	sent    int64    // bytes the peer has sent
	extra   int      // of SetPending

	inbound []any
	events  []any
	ops     []string

	uncaught, taken error
}

// Named is a handler with a name, for New. Others get names made from their types.
func Named(name string, h any) any { return named{name, h} }

type named struct {
	name string
	h    any
}

// New returns an active channel, on a loop of its own, with these handlers, head to tail. The test fails when one
// cannot be added.
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
	c := l.newChannel(cfg)
	settings := c.cfg.channel()
	settings.Unhandled, settings.Dialed, settings.Closed = tail{l}, l.dialed, c.over
	settings.Init = func(p *pipeline.Pipeline) error { return c.fill(p, handlers) }
	l.next = c
	channel.Dial(l.loop, &transport.DialConfig{}, settings, func(ch *channel.Channel, err error) {
		if err != nil {
			l.failure = err.Error()
			return
		}
		c.attach(ch)
	})
	if l.next != nil {
		l.next = nil
		l.RunTasks() // tells why
	}
	if !cfg.Inactive {
		c.Activate()
	}
	return c
}

func (l *Loop) newChannel(cfg Config) *Channel {
	l.t.Helper()
	if l.depth > 0 {
		l.t.Fatalf("pipelinetest: a channel cannot be made inside a handler")
	}
	cfg.LocalAddr = cmp.Or(cfg.LocalAddr, netip.MustParseAddrPort("192.0.2.1:80"))
	cfg.RemoteAddr = cmp.Or(cfg.RemoteAddr, netip.MustParseAddrPort("192.0.2.2:50000"))
	c := &Channel{l: l, cfg: cfg}
	l.channels = append(l.channels, c)
	l.manual = l.manual || cfg.Manual
	return c
}

// attach is told of the channel before its Init.
func (c *Channel) attach(ch *channel.Channel) {
	c.real = ch
	c.l.of[ch] = c
	p := ch.Pipeline()
	if err := p.AddFirst("pipelinetest", visitor{}); err != nil {
		c.l.failure = err.Error()
		return
	}
	c.ctx = p.Context("pipelinetest")
	_, _ = p.Remove("pipelinetest")
}

// holderName is the name of the handler whose bytes SetPending counts.
const holderName = "pipelinetest: pending"

// visitor is a handler for nothing.
type visitor struct{}

func (visitor) ChannelEvent(ctx *pipeline.Context, event any) error { ctx.FireEvent(event); return nil }

func (c *Channel) fill(p *pipeline.Pipeline, handlers []any) error {
	if c.feeder != nil {
		c.installFeeder()
	}
	if c.cfg.Init != nil {
		if err := c.cfg.Init(p); err != nil {
			return err
		}
	}
	for _, h := range handlers {
		n, ok := h.(named)
		if !ok {
			n = named{h: h}
		}
		if err := p.AddLast(n.name, n.h); err != nil {
			c.l.failure = err.Error()
			return err
		}
	}
	return nil
}

// over is the channel's Config.Closed.
func (c *Channel) over(*channel.Channel) { c.closed = true }

// Activate connects a channel that is Inactive: its pipeline is filled, ChannelActive fires, and what the peer did
// already comes after that.
func (c *Channel) Activate() {
	c.l.t.Helper()
	if c.dialing == nil || c.dialing.Over() {
		return
	}
	c.connect()
	c.l.turn(0)
	c.l.act(func() {})
}

// connect makes the connection.
func (c *Channel) connect() {
	c.peer = c.dialing.Connect(c.cfg.LocalAddr, c.cfg.RemoteAddr)
	c.l.handles[c.peer.Handle()] = c
	if c.cfg.Stalled {
		c.peer.Stall()
	}
	for _, fn := range c.early {
		fn()
	}
	c.early = nil
}

// Pipeline is the channel's pipeline.
func (c *Channel) Pipeline() *pipeline.Pipeline { return c.real.Pipeline() }

// Context is the Context of the handler of that name. The test fails when there is none.
func (c *Channel) Context(name string) *pipeline.Context {
	c.l.t.Helper()
	ctx := c.Pipeline().Context(name)
	if ctx == nil {
		c.l.t.Fatalf("pipelinetest: no handler %q in %q", name, c.Pipeline().Names())
	}
	return ctx
}

// Loop is the loop that the channel belongs to.
func (c *Channel) Loop() *Loop { return c.l }

// Do runs fn, which may do what a handler does with a Context, and turns the loop.
func (c *Channel) Do(fn func()) {
	c.l.t.Helper()
	c.l.act(fn)
}

// RunTasks is Loop.RunTasks.
func (c *Channel) RunTasks() int {
	c.l.t.Helper()
	return c.l.RunTasks()
}

// RunUntil is Loop.RunUntil.
func (c *Channel) RunUntil(done func() bool) {
	c.l.t.Helper()
	c.l.RunUntil(done)
}

// Advance is Loop.Advance.
func (c *Channel) Advance(d time.Duration) {
	c.l.t.Helper()
	c.l.Advance(d)
}

// Now is the clock.
func (c *Channel) Now() time.Duration { return c.l.Now() }

// Finish is Loop.Finish.
func (c *Channel) Finish() {
	c.l.t.Helper()
	c.l.Finish()
}

// Open is false from Close or Abort on.
func (c *Channel) Open() bool { return c.ctx.Open() }

// Closed is true when the channel is closed: Inactive has been fired and the handlers are removed.
func (c *Channel) Closed() bool { return c.closed }

// Cause is why the channel closes or closed; nil for an orderly close.
func (c *Channel) Cause() error { return c.ctx.Cause() }

// Close closes in an orderly way, through the CloseHandlers, as Pipeline.Close does.
func (c *Channel) Close() {
	c.l.t.Helper()
	c.l.act(func() {
		if err := c.Pipeline().Close(); err != nil {
			c.Pipeline().FireError(err)
		}
	})
}

// Abort closes at once, as Context.Abort does.
func (c *Channel) Abort(cause error) {
	c.l.t.Helper()
	c.l.act(func() { c.ctx.Abort(cause) })
}

// Shutdown is what a server that wants to stop does: ask the ShutdownHandlers, else close in an orderly way.
func (c *Channel) Shutdown() {
	c.l.t.Helper()
	c.l.act(c.real.Shutdown)
}

// TakeError returns the error that reached the end of the pipeline, or the panic of a handler, and closed the channel;
// nil when there was none. Finish then no longer complains about it.
func (c *Channel) TakeError() error {
	c.taken = c.failed()
	return c.taken
}

// failed is what closed the channel that a test may not have expected.
func (c *Channel) failed() error {
	if c.uncaught == nil && c.ctx != nil && errors.Is(c.Cause(), channel.ErrPanic) {
		return c.Cause()
	}
	return c.uncaught
}

// complain reports what a test has to hear of.
func (c *Channel) complain() {
	c.l.t.Helper()
	if c.ctx != nil && !c.closed {
		c.l.t.Errorf("pipelinetest: channel to %v did not close", c.cfg.RemoteAddr)
	}
	if err := c.failed(); err != nil && c.taken == nil {
		c.l.t.Errorf("pipelinetest: an error reached the end of the pipeline: %v\n%s", err, c.l.log.Bytes())
	}
}

// Operations lists what the kernel was asked since the last call, such as "receive", "cancel", "watch", "send 5"
// (bytes), "send file 5", "close-write", "close", "reset".
func (c *Channel) Operations() []string {
	ops := c.ops
	c.ops = nil
	return ops
}
