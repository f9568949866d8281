// Package channel is one socket: its read interest, its write queue, its lifetime; and the listener and the dialer that
// make channels.
package channel

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// Causes of closing that callers branch on, beside those of package pipeline and the errors of the kernel.
var (
	// ErrPanic closed a channel one of whose handlers panicked.
	ErrPanic = errors.New("channel: handler panicked")
	// ErrCloseTimeout ended a Close whose peer acknowledged nothing for CloseTimeout, or that took CloseTotalTimeout.
	ErrCloseTimeout = errors.New("channel: close timed out")
	// ErrPausedClose closed a channel whose peer had finished or gone and took nothing for PausedCloseTimeout, while
	// reading was paused.
	ErrPausedClose = errors.New("channel: peer gone while reading was paused")
	// ErrPeerGone closed a half-closed channel whose connection broke.
	ErrPeerGone = errors.New("channel: connection broke while half-closed")
)

// Defaults of Config, and bounds without a setting.
const (
	DefaultMaxPendingBytes    = 16 << 20
	DefaultMaxPendingRegions  = 64
	DefaultWriteHighBytes     = 64 << 10
	DefaultWriteLowBytes      = 32 << 10
	DefaultCloseTimeout       = 5 * time.Second
	DefaultCloseTotalTimeout  = time.Hour
	DefaultCloseDiscardBytes  = 1 << 20
	DefaultPausedCloseTimeout = 30 * time.Second
	DefaultMaxPostedTasks     = 1024
)

// Config configures the channels of a listener or a dialer. The zero value works. It is copied.
type Config struct {
	// MaxPendingBytes guards where no handler does: a write while more than this is pending aborts the channel with
	// pipeline.ErrPendingLimit (inside a byte stream nothing can be left out). Ref.TryWrite is refused before. The
	// newest message may exceed it. Zero means 16 MiB.
	MaxPendingBytes int
	// MaxPendingRegions bounds the file regions that wait, each with an open descriptor: one more aborts the channel
	// with pipeline.ErrPendingLimit. Their bytes are in the kernel's hands and do not count against MaxPendingBytes, so
	// that a file may be as large as it is. Zero means 64.
	MaxPendingRegions int
	// WriteHighBytes and WriteLowBytes steer Context.Writable: false when more than high is pending, true again when
	// less than low is. Zero means 64 KiB, or MaxPendingBytes when that is less, and half of high.
	WriteHighBytes int
	WriteLowBytes  int
	// CloseTimeout is how long a Close waits for a peer that acknowledges nothing of what is still to be delivered, or
	// that sends no FIN: then the channel is aborted. A peer that reads slowly gets everything. Zero means 5 s.
	CloseTimeout time.Duration
	// CloseTotalTimeout bounds Close in all, however steadily the peer reads. Zero means 1 h, negative no bound.
	CloseTotalTimeout time.Duration
	// CloseDiscardBytes is how much input Close throws away while it waits for the peer's FIN. Zero means 1 MiB.
	CloseDiscardBytes int
	// PausedCloseTimeout is how long data of a peer that has finished or gone waits for reading to be resumed, counted
	// from when it last took something of what waits to be sent. Zero means 30 s.
	PausedCloseTimeout time.Duration
	// MaxPostedTasks bounds the Ref.Execute tasks that wait for the loop, per channel. Zero means 1024.
	MaxPostedTasks int
	// Logger gets panics and failures of Init: of the channels of a listener on one loop, 10 lines a second and 100 at
	// once; how many were left out stands in the next line. Nil means the loop's.
	Logger *slog.Logger
	// Init fills the pipeline of a new channel. When it fails, the connection is closed.
	Init func(*pipeline.Pipeline) error
	// Closed, when set, is called on the loop after the channel has been closed and its handlers removed.
	Closed func(*Channel)
	// Unhandled, when set, gets what came through to the end of a pipeline; nil logs the first message of each channel.
	Unhandled Unhandled
	// Dialed, when set, is called on the loop for each channel that a handler connects with Context.Dial, before that
	// one's Init; what it returns, when not nil, is that channel's Closed.
	Dialed func(*Channel) (closed func(*Channel))
}

// Validate returns an error that names the first setting that cannot work.
func (cfg *Config) Validate() error {
	d := cfg.withDefaults()
	for _, limit := range []struct {
		name  string
		value int
	}{
		{"MaxPendingBytes", d.MaxPendingBytes},
		{"MaxPendingRegions", d.MaxPendingRegions},
		{"CloseDiscardBytes", d.CloseDiscardBytes},
		{"MaxPostedTasks", d.MaxPostedTasks},
	} {
		if limit.value < 0 {
			return fmt.Errorf("channel: negative limit: %s %d", limit.name, limit.value)
		}
	}
	switch {
	case d.WriteLowBytes <= 0 || d.WriteLowBytes >= d.WriteHighBytes || d.WriteHighBytes > d.MaxPendingBytes:
		return fmt.Errorf("channel: want 0 < WriteLowBytes < WriteHighBytes <= MaxPendingBytes, have %d, %d, %d",
			d.WriteLowBytes, d.WriteHighBytes, d.MaxPendingBytes)
	case d.CloseTimeout < 0:
		return fmt.Errorf("channel: negative timeout: CloseTimeout %v", d.CloseTimeout)
	case d.PausedCloseTimeout < 0:
		return fmt.Errorf("channel: negative timeout: PausedCloseTimeout %v", d.PausedCloseTimeout)
	}
	return nil
}

// settings are a Config that has passed Validate, with its defaults, shared by many channels.
//
// The settings of a listener or a dial are one loop's, so what its channels share lies here, too.
type settings struct {
	Config
	empty queue    // of channels with nothing queued; never written to
	none  held     // of channels that hold nothing back; never written to
	spare []*queue // idle ones, the hottest last
	lines lineLimit
}

func (cfg *Config) settle() (*settings, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &settings{Config: cfg.withDefaults()}, nil
}

func (cfg *Config) withDefaults() Config {
	d := *cfg
	setDefault(&d.MaxPendingBytes, DefaultMaxPendingBytes)
	setDefault(&d.MaxPendingRegions, DefaultMaxPendingRegions)
	setDefault(&d.WriteHighBytes, min(DefaultWriteHighBytes, d.MaxPendingBytes))
	setDefault(&d.WriteLowBytes, d.WriteHighBytes/2)
	setDefault(&d.CloseTimeout, DefaultCloseTimeout)
	setDefault(&d.CloseTotalTimeout, DefaultCloseTotalTimeout)
	setDefault(&d.CloseDiscardBytes, DefaultCloseDiscardBytes)
	setDefault(&d.PausedCloseTimeout, DefaultPausedCloseTimeout)
	setDefault(&d.MaxPostedTasks, DefaultMaxPostedTasks)
	return d
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Channel is one connected socket with its pipeline. It belongs to its loop; other goroutines hold a pipeline.Ref.
type Channel struct {
	pipe pipeline.Driver
	loop *loop.Loop
	cfg  *settings
	reg  loop.Registration
	hnd  transport.Handle
	node loop.Node

	in  reading
	out writing

	// What is due.
	inDirty   bool // EndTurn
	resumeDue bool // RunNode is to resume

	// Where its end stands, beside life.
	closeEntered bool // Close is at work: the flush handlers give what they keep
	loopGone     bool // the loop has asked for the channel's end
	finishStep   uint8
	unix         bool // the peer is a Unix socket

	listed int32 // index in its List, plus one

	cause error
	rare  *rare   // made when first needed
	post  *poster // made by the first Ref

	remote netip.AddrPort
	local  net.Addr // once the transport has been told to close the socket, and does not know it any more
}

// rare is what few channels need.
type rare struct {
	timers                 []*timer   // of handlers, those that are set; stopped on close
	dials                  []*dialing // of handlers, under way; given up on close
	closing, paused, grant *loop.Timer
	failed                 error // why nothing can be sent any more

	// Of a close.
	closeBegun time.Duration
	progress   time.Duration // when the peer was last seen to have acknowledged something
	acked      uint64        // as of the last look
	looked     bool
}

// opError is an error of one of the channel's operations.
type opError struct {
	op  string
	err error
}

func (e *opError) Error() string { return "channel: " + e.op + ": " + e.err.Error() }
func (e *opError) Unwrap() error { return e.err }

// newChannel makes a channel of a connected socket; start starts it.
func newChannel(l *loop.Loop, cp *transport.Completion, cfg *settings) (*Channel, error) {
	c := &Channel{loop: l, cfg: cfg, hnd: cp.Handle, remote: cp.Addr, unix: cp.Unix}
	reg, err := l.Register(completer{c})
	if err != nil {
		return nil, fmt.Errorf("channel: register: %w", err)
	}
	c.reg = reg
	c.node.Init(completer{c})
	c.out.told, c.out.queue, c.in.held = true, &cfg.empty, &cfg.none
	c.pipe.Init(head{c})
	return c, nil
}

// start runs Init and ChannelActive at the end of this turn: from the channel's own callback, so that a panic there is
// the channel's and not the listener's.
func (c *Channel) start() { c.dirty() }

// Pipeline is the channel's pipeline.
func (c *Channel) Pipeline() *pipeline.Pipeline { return c.pipe.Pipeline() }

// Ref returns what other goroutines may hold of the channel: what is written there passes every handler.
func (c *Channel) Ref() pipeline.Ref { return head{c}.Ref(c.pipe.Tail()) }

// Shutdown asks the handlers to finish (ShutdownHandler); where none is asked, it closes the channel in an orderly way.
func (c *Channel) Shutdown() {
	if c.life() == pipeline.LifeStarting {
		c.Close(nil)
		return
	}
	if !c.active() {
		return
	}
	if !c.pipe.FireShutdown() {
		c.closeOrderly()
	}
}

func (c *Channel) runActivate() {
	if c.life() != pipeline.LifeStarting {
		return
	}
	if c.cfg.Init != nil {
		if err := c.cfg.Init(c.pipe.Pipeline()); err != nil {
			c.logError("weir: init failed, connection closed", "err", err, "remote", c.RemoteAddrPort())
			c.Abort(fmt.Errorf("channel: init: %w", err))
			return
		}
	}
	if c.life() != pipeline.LifeStarting { // Init may close
		return
	}
	c.pipe.FireActive()
}

// dirty makes EndTurn run at the end of this turn.
func (c *Channel) dirty() {
	if !c.inDirty {
		c.inDirty = true
		c.loop.Dirty(completer{c})
	}
}

func (c *Channel) token(k transport.Kind) transport.Token { return c.reg.Token(uint8(k)) }

// Open is false from Close or Abort on.
func (c *Channel) Open() bool { return c.life() <= pipeline.LifeActive }

func (c *Channel) life() pipeline.Life { return c.pipe.Life() }

func (c *Channel) active() bool { return c.pipe.Life() == pipeline.LifeActive }

// Cause is why the channel closes or closed; nil while it is open and after an orderly close.
func (c *Channel) Cause() error { return c.cause }

// ID is unique in the process, as long as it has made fewer than 2^16 loops and none of their slots was used 2^24
// times.
func (c *Channel) ID() uint64 {
	t := c.reg.Token(0)
	return c.loop.Number()<<48 | uint64(t.Slot())<<24 | uint64(t.Generation())
}

// LocalAddr is the socket's own address, also after close.
func (c *Channel) LocalAddr() net.Addr {
	if c.life() >= pipeline.LifeEnding {
		return c.local
	}
	return c.loop.Transport().LocalAddr(c.hnd)
}

// RemoteAddr is the peer's address, also after close: *net.TCPAddr, or an empty *net.UnixAddr. When the system does not
// say who the peer is, it is neither, and its network is "unknown".
func (c *Channel) RemoteAddr() net.Addr {
	switch {
	case c.remote.IsValid():
		return net.TCPAddrFromAddrPort(c.remote)
	case c.unix:
		return &net.UnixAddr{Net: "unix"}
	}
	return unknownAddr{}
}

// unknownAddr is the address of a peer of which the system does not say who it is.
type unknownAddr struct{}

func (unknownAddr) Network() string { return "unknown" }
func (unknownAddr) String() string  { return "unknown" }

// RemoteAddrPort is the peer's address, also after close; the zero AddrPort for Unix sockets, and when it is not known.
func (c *Channel) RemoteAddrPort() netip.AddrPort { return c.remote }

// Control runs fn with the socket's descriptor, which is valid until fn returns.
func (c *Channel) Control(fn func(fd uintptr) error) error {
	if c.life() >= pipeline.LifeEnding {
		return pipeline.ErrClosed
	}
	return c.loop.Transport().Control(c.hnd, fn)
}

// logger is the configured logger, else the loop's.
func (c *Channel) logger() *slog.Logger {
	if c.cfg.Logger != nil {
		return c.cfg.Logger
	}
	return c.loop.Logger()
}

// NewTimer returns a stopped timer whose fn runs on the loop as this channel's. Close stops it.
func (c head) NewTimer(fn func()) pipeline.Timer {
	t := &timer{c: c.Channel}
	t.Init(c.loop, completer{c.Channel}, func() {
		t.unlist()
		fn()
	})
	return t
}

// timer is a handler's timer. It is in the channel's list while it is set: a handler may make as many as it likes.
type timer struct {
	loop.Timer
	c    *Channel
	slot int // in c.timers, plus one; 0: not set
}

// Reset makes it fire once, after d; not at all once the channel is closed.
func (t *timer) Reset(d time.Duration) {
	if t.c.life() == pipeline.LifeClosed {
		return
	}
	if t.slot == 0 {
		m := t.c.rarely()
		m.timers = append(m.timers, t)
		t.slot = len(m.timers)
	}
	t.Timer.Reset(d)
}

// Stop reports whether it was going to fire.
func (t *timer) Stop() bool {
	t.unlist()
	return t.Timer.Stop()
}

func (t *timer) unlist() {
	if t.slot == 0 {
		return
	}
	m := t.c.rare
	all := m.timers
	last := len(all) - 1
	all[t.slot-1] = all[last]
	all[t.slot-1].slot = t.slot
	all[last] = nil
	m.timers = all[:last]
	t.slot = 0
}

// rarely returns what few channels need and makes it when it is needed for the first time.
func (c *Channel) rarely() *rare {
	if c.rare == nil {
		c.rare = &rare{}
	}
	return c.rare
}

// deadline returns one of the channel's own timers.
func (c *Channel) deadline(pick func(*rare) **loop.Timer, fn func()) *loop.Timer {
	slot := pick(c.rarely())
	if *slot == nil {
		*slot = c.loop.NewTimer(completer{c}, fn)
	}
	return *slot
}
