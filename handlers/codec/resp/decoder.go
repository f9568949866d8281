package resp

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/pipeline"
)

// pullBytes is how much of a new block is copied behind the beginning of a message at least, to find where it ends.
const pullBytes = 512

// CommandDecoder is the handler that makes requests of received bytes: it hands on a *Command for each, the same one
// every time, which is valid until the next handler returns. Empty requests are passed over. While reading is paused it
// holds back what it has; what is behind a protocol error, which it returns once, is ignored. A stream that ends in the
// middle of a request is reported as codec.ErrTruncated, before ChannelReadClosed goes on. It belongs to its channel's
// loop and stands in one pipeline, once: another gets codec.ErrReused.
type CommandDecoder struct{ decoder[*Command] }

// NewCommandDecoder returns a handler with the limits of cfg.
func NewCommandDecoder(cfg Config) (*CommandDecoder, error) {
	p, err := NewCommandParser(cfg)
	if err != nil {
		return nil, err
	}
	return &CommandDecoder{decoder[*Command]{parser: p, maxHeld: p.cfg.MaxMessageBytes}}, nil
}

// ValueDecoder is CommandDecoder for clients: it hands on a *Value for each reply.
type ValueDecoder struct{ decoder[*Value] }

// NewValueDecoder returns a handler with the limits of cfg.
func NewValueDecoder(cfg Config) (*ValueDecoder, error) {
	p, err := NewValueParser(cfg)
	if err != nil {
		return nil, err
	}
	return &ValueDecoder{decoder[*Value]{parser: p, maxHeld: p.cfg.MaxMessageBytes}}, nil
}

var (
	_ pipeline.AddedHandler      = (*CommandDecoder)(nil)
	_ pipeline.ReadHandler       = (*CommandDecoder)(nil)
	_ pipeline.ResumeHandler     = (*CommandDecoder)(nil)
	_ pipeline.ReadClosedHandler = (*CommandDecoder)(nil)
	_ pipeline.RemovedHandler    = (*CommandDecoder)(nil)
	_ pipeline.ReadHandler       = (*ValueDecoder)(nil)
)

// parser is what a decoder needs besides.
type parser[M any] interface {
	codec.Decoder[M]
	empty(M) bool
	missing(have int) int
	trim()
}

// batch is the message that stands for several.
type batch[M any] interface {
	begin(first M) any
	end()
}

// decoder cuts a stream of Bufs into messages. Messages that lie within one Buf are not copied; one that does not is
// put together in a Buf of the decoder's own, of which no more is copied than it takes to find its end.
type decoder[M any] struct {
	parser  parser[M] // set by the constructor
	maxHeld int       // set by the constructor
	batch   batch[M]  // set by the constructor; nil: each message is handed on by itself

	rest   *buffer.Buf // owned: received and not yet decoded; at its front is what the parser has begun with
	ours   bool        // nobody else holds rest: it may grow
	inRest bool        // the message that is being handled may lie in rest
	// cur is borrowed while a ChannelRead runs: what comes behind rest. Others may hold it, so it stays as it is.
	cur     *buffer.Buf
	off     int         // bytes at the front of cur that are done with
	pulled  int         // bytes behind them that have been copied to the end of rest
	view    buffer.Buf  // scratch
	late    *buffer.Buf // owned: received while a handler behind this one ran; it comes behind cur
	busy    bool
	home    *pipeline.Context // its place, also when it has left
	removed bool
	failed  bool
	eof     bool // the peer has finished sending, and nobody behind has been told
}

// HandlerAdded refuses a second place: the decoder remembers the bytes of the first.
func (d *decoder[M]) HandlerAdded(ctx *pipeline.Context) error {
	if d.home != nil {
		return fmt.Errorf("resp: add %q: %w", ctx.Name(), codec.ErrReused)
	}
	d.home = ctx
	return nil
}

// ChannelRead borrows msg until return.
func (d *decoder[M]) ChannelRead(ctx *pipeline.Context, msg any) error {
	b, ok := msg.(*buffer.Buf)
	if !ok {
		ctx.FireRead(msg)
		return nil
	}
	switch {
	case d.failed || !ctx.Open():
		return nil
	case d.busy:
		return d.receiveLate(ctx, b)
	}
	return d.decode(ctx, b)
}

// ChannelResume goes on with what was held back.
func (d *decoder[M]) ChannelResume(ctx *pipeline.Context) error {
	if d.rest == nil && !d.eof || d.busy {
		return nil
	}
	return d.decode(ctx, nil)
}

// ChannelReadClosed reports what the stream ends in the middle of, and passes the event on behind everything before.
func (d *decoder[M]) ChannelReadClosed(ctx *pipeline.Context) error {
	if d.failed {
		ctx.FireReadClosed()
		return nil
	}
	d.eof = true
	if d.busy {
		return nil
	}
	return d.decode(ctx, nil)
}

// HandlerRemoved passes what was not decoded on to the successor, as long as there is one.
func (d *decoder[M]) HandlerRemoved(ctx *pipeline.Context) error {
	if ctx != d.home {
		return nil // it was refused a second place, where what it holds does not belong
	}
	d.removed = true
	if ctx.Open() && !d.failed { // else there may be a panic behind us, and cur no longer ours to look at
		d.settle()
		passed := d.pass(ctx, d.rest, 0)
		passed = d.pass(ctx, d.cur, d.off) || passed
		passed = d.pass(ctx, d.late, 0) || passed
		if passed && ctx.Open() {
			ctx.FireReadComplete() // in an event that is no read the channel ends no batch
		}
	}
	d.cur, d.pulled, d.late = nil, 0, release(d.late)
	if !d.inRest {
		d.rest = release(d.rest)
	}
	if d.eof && ctx.Open() && !d.failed {
		d.eof = false
		ctx.FireReadClosed()
	}
	return nil
}

// pass hands on what is in b, which may be nil, from off on as bytes, and reports whether there was something. It
// borrows b until return.
func (d *decoder[M]) pass(ctx *pipeline.Context, b *buffer.Buf, off int) bool {
	if b == nil || b.Len() <= off {
		return false
	}
	ctx.FireRead(b.Scratch(&d.view, off, b.Len()-off))
	return true
}

// decode hands on the messages in rest and b, as far as reading is not paused. It borrows b, which may be nil, until
// return.
func (d *decoder[M]) decode(ctx *pipeline.Context, b *buffer.Buf) error {
	d.busy, d.cur, d.off = true, b, 0
	err := d.messages(ctx)
	for err == nil && d.late != nil {
		if d.rest == nil {
			d.rest, d.ours = d.late, true
		} else {
			d.append(ctx, d.late.Bytes())
			d.late.Release()
		}
		d.cur, d.late = nil, nil
		err = d.messages(ctx)
	}
	if d.eof && !d.removed && ctx.Open() && (err != nil || !d.failed && ctx.Reading()) {
		err = d.end(ctx, err)
	}
	d.busy, d.cur = false, nil
	d.parser.trim()
	if err != nil || d.failed || d.removed || !ctx.Open() {
		d.failed = d.failed || err != nil
		d.rest, d.late = release(d.rest), release(d.late)
	}
	return err
}

func (d *decoder[M]) messages(ctx *pipeline.Context) error {
	if d.rest != nil {
		if err := d.messagesInRest(ctx); err != nil || d.rest != nil {
			return err
		}
	}
	for d.cur != nil && d.off < d.cur.Len() && !d.failed {
		if !ctx.Reading() {
			return d.hold(ctx)
		}
		m, n, err := d.parser.Decode(d.cur.Bytes()[d.off:])
		if err == codec.ErrShort {
			return d.hold(ctx)
		}
		if err != nil {
			return err
		}
		d.off += n
		if !d.parser.empty(m) {
			d.fire(ctx, m)
		}
	}
	return nil
}

// messagesInRest hands on the messages that rest begins with; where it can, it leaves no rest.
func (d *decoder[M]) messagesInRest(ctx *pipeline.Context) error {
	d.inRest = true
	defer d.leaveRest() // also when a handler panics: rest must go back to its pool
	for !d.removed && !d.failed && d.rest.Len() > 0 {
		if !ctx.Reading() {
			return d.hold(ctx)
		}
		m, n, err := d.parser.Decode(d.rest.Bytes())
		if err == codec.ErrShort {
			if d.pull(ctx) {
				continue
			}
			return nil
		}
		if err != nil {
			return err
		}
		d.take(n)
		if !d.parser.empty(m) {
			d.fire(ctx, m)
		}
	}
	return nil
}

// end passes on the end of the stream. What is left in rest is the beginning of a message.
func (d *decoder[M]) end(ctx *pipeline.Context, err error) error {
	d.eof, d.failed = false, true
	if err == nil && d.rest != nil {
		err = fmt.Errorf("%w: after %d bytes of it", codec.ErrTruncated, d.rest.Len())
	}
	if err != nil {
		ctx.FireError(err)
	}
	if ctx.Open() {
		ctx.FireReadClosed()
	}
	return nil
}

// fire hands on a message, or a batch that begins with it.
func (d *decoder[M]) fire(ctx *pipeline.Context, m M) {
	if d.batch == nil {
		ctx.FireRead(m)
		return
	}
	ctx.FireRead(d.batch.begin(m))
	d.batch.end()
}

func (d *decoder[M]) leaveRest() {
	d.inRest = false
	if d.removed || d.failed || d.rest.Len() == 0 {
		d.rest = release(d.rest)
	}
}

// pull copies some bytes from cur behind rest, whose message is not complete. False: cur has no more.
func (d *decoder[M]) pull(ctx *pipeline.Context) bool {
	d.settle()
	if d.cur == nil || d.off == d.cur.Len() {
		return false
	}
	have := d.rest.Len()
	d.pulled = min(d.cur.Len()-d.off, max(d.parser.missing(have), pullBytes, have/4))
	d.append(ctx, d.cur.Bytes()[d.off:d.off+d.pulled])
	return true
}

// take consumes the n bytes of a message from rest. What pull copied beyond its end stays in cur instead.
func (d *decoder[M]) take(n int) {
	if behind := d.rest.Len() - n; d.pulled > 0 && behind <= d.pulled {
		d.off += d.pulled - behind
		d.pulled = 0
		d.rest.Truncate(n)
	}
	d.rest.Advance(n)
}

// settle makes what was pulled belong to rest for good.
func (d *decoder[M]) settle() {
	d.off += d.pulled
	d.pulled = 0
}

// hold keeps what was not decoded: the beginning of a message, or anything while reading is paused.
func (d *decoder[M]) hold(ctx *pipeline.Context) error {
	d.settle()
	if d.cur == nil || d.off == d.cur.Len() || !ctx.Open() {
		return nil
	}
	b := d.cur.Bytes()[d.off:]
	switch {
	case d.rest != nil:
		// Paused, and still there comes more. A message under way is bounded by the parser.
		if d.rest.Len()+len(b) > d.maxHeld {
			return protocolError(reasonMessage)
		}
		d.append(ctx, b)
	case ctx.Reading():
		d.rest, d.ours = ctx.Pool().Get(len(b)), true
		d.rest.Append(b)
	default: // mostly whole messages, which need no copy
		d.rest, d.ours = d.cur.Slice(d.off, len(b)).Detach(), false
	}
	d.cur = nil
	return nil
}

// append copies p to the end of rest; memory doubles, with what was received.
func (d *decoder[M]) append(ctx *pipeline.Context, p []byte) {
	if !d.ours {
		own := ctx.Pool().Get(d.rest.Len() + len(p))
		own.Append(d.rest.Bytes())
		d.rest.Release()
		d.rest, d.ours = own, true
	}
	d.rest.Append(p)
}

// receiveLate keeps what arrives while a handler behind this one runs.
func (d *decoder[M]) receiveLate(ctx *pipeline.Context, b *buffer.Buf) error {
	if d.late == nil {
		d.late = ctx.Pool().Get(b.Len())
	}
	if d.late.Len()+b.Len() > d.maxHeld {
		d.failed = true
		return protocolError(reasonMessage)
	}
	d.late.Append(b.Bytes())
	return nil
}

// release takes ownership of b, which may be nil, and returns nil.
func release(b *buffer.Buf) *buffer.Buf {
	if b != nil {
		b.Release()
	}
	return nil
}
