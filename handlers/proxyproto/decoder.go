package proxyproto

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// What closes a channel besides a bad header.
var (
	// ErrUntrusted is the cause of closing the channel of a peer that is not trusted.
	ErrUntrusted = errors.New("proxyproto: peer is not trusted")
	// ErrTimeout says that the header did not come in time.
	ErrTimeout = errors.New("proxyproto: no header in time")
	// ErrTruncated says that the peer finished sending inside of the header.
	ErrTruncated = errors.New("proxyproto: stream ends inside the header")
	// ErrReused is the error of adding a Decoder that was added before: it remembers the bytes of its channel.
	ErrReused = errors.New("proxyproto: a decoder is for one channel and once")
	// ErrOverrun says that a handler before the Decoder went on delivering while reading was paused.
	ErrOverrun = errors.New("proxyproto: too much received while reading is paused")
)

const (
	// DefaultTimeout is how long a header may take where a configuration says nothing else.
	DefaultTimeout = 5 * time.Second
	// overrunBytes is what may be received while reading is paused, beyond the header.
	overrunBytes = 1 << 20
)

// DecoderConfig says whom to believe. It has to trust somebody.
type DecoderConfig struct {
	// Trusted are the networks of the proxies. The Decoder keeps the slice: leave it alone. IPv4 inside of IPv6 is to
	// be written as IPv4; peers that come as such are the IPv4 ones.
	Trusted []netip.Prefix
	// TrustUnix trusts every peer on a Unix socket: who may connect is the file system's business.
	TrustUnix bool
	// PassUntrusted serves other peers as direct clients, whose bytes pass as they are. Otherwise they are turned away.
	PassUntrusted bool
	// Optional lets trusted peers come without a header: what does not begin like one passes as it is. A peer that
	// sends nothing may be silent as long as it likes. One whose first bytes are too few to tell ("P", a line break)
	// is a direct client when Timeout has passed since the first of them. A client that such a proxy lets through
	// untouched can send a header of its own, so it is for the time of a migration.
	Optional bool
	// MaxBytes bounds the body of a version 2 header, addresses and TLVs. Zero means DefaultMaxBytes.
	MaxBytes int
	// Timeout is how long the whole header may take, from the connection on, or from the first byte on where it is
	// Optional. Time during which reading is paused does not count fully. Zero means DefaultTimeout.
	Timeout time.Duration
}

// Decoder takes the header off an accepted connection. A peer that is not trusted is aborted before anything is read,
// and handlers behind never hear of the channel. A bad header is reported to the error handlers and aborts the channel.
// A peer that closes without a byte (a health check, often) is no error. It belongs to its channel's loop and stands in
// one pipeline.
type Decoder struct {
	cfg   DecoderConfig
	home  *pipeline.Context // its place, also when it has left
	timer pipeline.Timer

	held   *buffer.Buf // owned: received and not passed on
	need   int         // bytes in held before it makes sense to ask again
	taken  int         // bytes at the front of held that are the header
	state  decoderState
	busy   bool // an event of the header is being fired
	eof    bool // the peer has finished sending, and nobody behind has been told
	silent bool // handlers behind were not told that the channel is active

	view buffer.Buf // scratch
}

type decoderState uint8

const (
	waiting  decoderState = iota // for the header
	passing                      // what comes; what is held goes first, as soon as reading is not paused
	failed                       // nothing passes any more
	departed                     // out of the pipeline
)

var (
	_ pipeline.AddedHandler      = (*Decoder)(nil)
	_ pipeline.ActiveHandler     = (*Decoder)(nil)
	_ pipeline.ReadHandler       = (*Decoder)(nil)
	_ pipeline.ResumeHandler     = (*Decoder)(nil)
	_ pipeline.ReadClosedHandler = (*Decoder)(nil)
	_ pipeline.InactiveHandler   = (*Decoder)(nil)
	_ pipeline.RemovedHandler    = (*Decoder)(nil)
)

// NewDecoder returns a handler for one accepted channel.
func NewDecoder(cfg DecoderConfig) (*Decoder, error) {
	if len(cfg.Trusted) == 0 && !cfg.TrustUnix {
		return nil, fmt.Errorf("%w: nobody is trusted", ErrConfig)
	}
	for _, p := range cfg.Trusted {
		if !p.IsValid() || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%w: prefix %v", ErrConfig, p)
		}
	}
	if cfg.MaxBytes < 0 || cfg.MaxBytes > maxBody || cfg.Timeout < 0 {
		return nil, fmt.Errorf("%w: at most %d bytes in %v", ErrConfig, cfg.MaxBytes, cfg.Timeout)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	return &Decoder{cfg: cfg}, nil
}

// HandlerAdded begins when the channel is active already. It refuses a second place.
func (d *Decoder) HandlerAdded(ctx *pipeline.Context) error {
	if d.home != nil {
		return fmt.Errorf("proxyproto: add %q: %w", ctx.Name(), ErrReused)
	}
	d.home = ctx
	if ctx.Active() {
		d.begin(ctx)
	}
	return nil
}

// ChannelActive judges the peer and starts the clock.
func (d *Decoder) ChannelActive(ctx *pipeline.Context) error {
	d.begin(ctx)
	switch d.state {
	case failed:
		d.silent = true
		return nil
	case passing:
		d.removeSelf(ctx)
	}
	ctx.FireActive()
	return nil
}

func (d *Decoder) begin(ctx *pipeline.Context) {
	switch {
	case d.trusts(ctx):
		d.timer = ctx.NewTimer(d.late)
		if !d.cfg.Optional {
			d.timer.Reset(d.cfg.Timeout)
		}
	case d.cfg.PassUntrusted:
		d.state = passing
	default:
		d.state = failed
		ctx.Abort(fmt.Errorf("%w: %v", ErrUntrusted, ctx.RemoteAddr()))
	}
}

func (d *Decoder) trusts(ctx *pipeline.Context) bool {
	addr := ctx.RemoteAddrPort().Addr()
	if !addr.IsValid() {
		_, unix := ctx.RemoteAddr().(*net.UnixAddr) // else it is not known who the peer is
		return unix && d.cfg.TrustUnix
	}
	addr = addr.Unmap().WithZone("")
	for _, p := range d.cfg.Trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// ChannelRead borrows msg until return.
func (d *Decoder) ChannelRead(ctx *pipeline.Context, msg any) error {
	b, ok := msg.(*buffer.Buf)
	switch {
	case !ok:
		ctx.FireRead(msg)
	case d.state == failed || !ctx.Open():
	case d.state == passing && !d.busy && d.held == nil && ctx.Reading():
		ctx.FireRead(b)
	case d.state == waiting && d.held == nil:
		d.parse(ctx, b)
	default:
		d.hold(ctx, b)
		if d.state == waiting && d.held.Len() >= d.need {
			d.parse(ctx, nil)
		}
	}
	return nil
}

// ChannelResume passes on what was held back.
func (d *Decoder) ChannelResume(ctx *pipeline.Context) error {
	d.pass(ctx)
	return nil
}

// ChannelReadClosed tells the handlers behind, in its turn.
func (d *Decoder) ChannelReadClosed(ctx *pipeline.Context) error {
	d.eof = true
	if d.state == waiting {
		if d.held != nil && !d.undecided() {
			d.fail(ctx, fmt.Errorf("%w: after %d bytes of it", ErrTruncated, d.held.Len()))
			return nil
		}
		d.settle(passing)
	}
	d.pass(ctx)
	return nil
}

// ChannelInactive passes on what was active for the handlers behind.
func (d *Decoder) ChannelInactive(ctx *pipeline.Context) error {
	if !d.silent {
		ctx.FireInactive()
	}
	return nil
}

// HandlerRemoved gives what is held to the successor.
func (d *Decoder) HandlerRemoved(ctx *pipeline.Context) error {
	if ctx != d.home {
		return nil // it was refused a second place, where what it holds does not belong
	}
	d.settle(d.state)
	if d.state == failed || !ctx.Open() {
		d.drop()
		return nil
	}
	d.state = departed
	if !d.busy {
		d.handOver(ctx)
	}
	return nil
}

// parse looks for the header in what is held, else in b, which it borrows until return.
func (d *Decoder) parse(ctx *pipeline.Context, b *buffer.Buf) {
	in := b
	if d.held != nil {
		in = d.held
	}
	h, n, err := Parse(in.Bytes(), d.cfg.MaxBytes)
	switch {
	case err == ErrShort:
		d.need = n
	case err == ErrNoHeader && d.cfg.Optional:
		n = 0
		d.settle(passing)
	case err != nil:
		d.fail(ctx, err)
		return
	default:
		d.settle(passing)
	}
	if d.state == waiting {
		if d.held == nil {
			d.hold(ctx, b)
			if d.cfg.Optional {
				d.timer.Reset(d.cfg.Timeout)
			}
		}
		return
	}
	d.taken = n
	if d.held == nil && b.Len() > n {
		d.hold(ctx, b)
	}
	if h != nil {
		d.busy = true
		defer func() { // also when a handler panics
			d.busy = false
			if d.state == departed {
				d.drop()
			}
		}()
		ctx.FireEvent(h)
		d.busy = false
	}
	if d.state == departed { // a handler took it out
		d.handOver(ctx)
		return
	}
	d.pass(ctx)
}

// pass hands on what is held, once that is allowed, and leaves.
func (d *Decoder) pass(ctx *pipeline.Context) {
	if d.state == passing && !d.busy && ctx.Reading() && ctx.Open() {
		d.removeSelf(ctx)
	}
}

// removeSelf takes the Decoder out; HandlerRemoved hands on what is held.
func (d *Decoder) removeSelf(ctx *pipeline.Context) {
	if _, err := ctx.Pipeline().Remove(ctx.Name()); err != nil {
		ctx.FireError(err)
	}
}

// handOver gives the successor what is held.
func (d *Decoder) handOver(ctx *pipeline.Context) {
	held := d.held
	d.held = nil
	if held != nil {
		defer held.Release()
		if n := held.Len() - d.taken; n > 0 && ctx.Open() {
			ctx.FireRead(held.Scratch(&d.view, d.taken, n))
			d.view = buffer.Buf{}
			if ctx.Open() {
				ctx.FireReadComplete() // in an event that is no read the channel ends no batch
			}
		}
	}
	if d.eof && ctx.Open() {
		d.eof = false
		ctx.FireReadClosed()
	}
}

// hold keeps what b has. It borrows b until return.
func (d *Decoder) hold(ctx *pipeline.Context, b *buffer.Buf) {
	if d.held == nil {
		d.held = ctx.Pool().Get(b.Len())
	}
	if d.held.Len()+b.Len() > head2+d.cfg.MaxBytes+overrunBytes {
		d.fail(ctx, fmt.Errorf("%w: more than %d bytes", ErrOverrun, head2+d.cfg.MaxBytes+overrunBytes))
		return
	}
	d.held.Reserve(b.Len())
	d.held.Append(b.Bytes())
}

// late runs when the time for the header is over.
func (d *Decoder) late(ctx *pipeline.Context) error {
	switch {
	case d.state != waiting:
	case !ctx.Reading(): // nobody could have read it
		d.timer.Reset(d.cfg.Timeout)
	case d.undecided():
		d.settle(passing)
		d.pass(ctx)
	default:
		d.fail(ctx, fmt.Errorf("%w: after %v", ErrTimeout, d.cfg.Timeout))
	}
	return nil
}

// undecided reports whether the peer may do without a header and what is held is too short to tell.
func (d *Decoder) undecided() bool {
	if !d.cfg.Optional {
		return false
	}
	_, err := Detect(d.held.Bytes())
	return err == ErrShort
}

// fail reports err and aborts the channel.
func (d *Decoder) fail(ctx *pipeline.Context, err error) {
	d.settle(failed)
	d.drop()
	ctx.FireError(err)
	ctx.Abort(err)
}

// settle ends the waiting.
func (d *Decoder) settle(s decoderState) {
	d.state = s
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (d *Decoder) drop() {
	if d.held != nil {
		d.held.Release()
		d.held = nil
	}
}
