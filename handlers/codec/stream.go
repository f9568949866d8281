package codec

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

const (
	// pullBytes is how much of what was received is copied behind the beginning of a message at least, to find its end.
	pullBytes = 512
	// overrunBytes is what may be received while reading is paused, beyond the largest message.
	overrunBytes = 1 << 20
)

// stream cuts what is received into messages. Messages that lie within one Buf are not copied; one that does not is put
// together in a Buf of the stream's own, of which no more is copied than it takes to find its end.
type stream[M any] struct {
	dec  Decoder[M]
	emit func(ctx *pipeline.Context, b *buffer.Buf, off, n int, m M) error // b borrowed: m took n bytes from off on

	lines *lines                                          // dec, where emitLines may do what it and emit do
	frame func(ctx *pipeline.Context, frame []byte) error // what emit does with a line; nil: it is a Framer's

	cur    *buffer.Buf // borrowed while decode runs: what comes behind rest; others may hold it, so it stays as it is
	off    int         // bytes at the front of cur that are done with
	rest   *buffer.Buf // owned: received and not yet decoded
	taken  int         // bytes at the front of rest that are done with
	pulled int         // bytes at the end of rest that are still counted in cur, from off on
	need   int         // bytes in rest before it makes sense to ask the decoder again
	late   *buffer.Buf // owned: received while a handler behind this one ran; it comes behind cur
	max    int         // what rest may have without a message

	home    *pipeline.Context // its place, also when it has left
	busy    bool              // decode runs
	whole   bool              // decode came to its end without a panic
	removed bool              // HandlerRemoved came while decode ran
	failed  bool              // nothing more can be decoded
	eof     bool              // the peer has finished sending, and nobody behind has been told
	cut     bool              // ErrTruncated has been reported

	view buffer.Buf // scratch
}

func (s *stream[M]) init(dec Decoder[M], emit func(*pipeline.Context, *buffer.Buf, int, int, M) error) {
	s.dec, s.emit, s.max = dec, emit, DefaultMaxBytes
	if l, ok := dec.(Limiter); ok {
		s.max = l.MaxMessageBytes()
	}
}

// HandlerAdded refuses a second place: the decoder remembers the bytes of the first.
func (s *stream[M]) HandlerAdded(ctx *pipeline.Context) error {
	if s.home != nil {
		return fmt.Errorf("codec: add %q: %w", ctx.Name(), ErrReused)
	}
	s.home = ctx
	return nil
}

// ChannelRead borrows msg until return.
func (s *stream[M]) ChannelRead(ctx *pipeline.Context, msg any) error {
	b, ok := msg.(*buffer.Buf)
	switch {
	case !ok:
		ctx.FireRead(msg)
	case s.failed || !ctx.Open():
	case s.busy:
		s.receiveLate(ctx, b)
	default:
		s.decode(ctx, b)
	}
	return nil
}

// ChannelResume goes on with what was held back.
func (s *stream[M]) ChannelResume(ctx *pipeline.Context) error {
	if !s.busy && (s.rest != nil || s.eof) {
		s.decode(ctx, nil)
	}
	return nil
}

// ChannelReadClosed tells what becomes of the end of the stream, and then the handlers behind.
func (s *stream[M]) ChannelReadClosed(ctx *pipeline.Context) error {
	if s.failed {
		ctx.FireReadClosed()
		return nil
	}
	s.eof = true
	if !s.busy {
		s.decode(ctx, nil)
	}
	return nil
}

// HandlerRemoved passes what was not decoded on to the successor: behind the message that is being handled.
func (s *stream[M]) HandlerRemoved(ctx *pipeline.Context) error {
	if ctx != s.home {
		return nil // it was refused a second place, where what it holds does not belong
	}
	s.removed = true
	if !s.busy {
		s.leave(ctx, true)
	}
	return nil
}

// decode hands on the messages in rest and b, as far as reading is not paused. It borrows b, which may be nil, until
// return.
func (s *stream[M]) decode(ctx *pipeline.Context, b *buffer.Buf) {
	s.busy, s.whole, s.cur, s.off = true, false, b, 0
	defer s.finishDecode(ctx)
	s.messages(ctx)
	for s.late != nil && !s.stopped(ctx) {
		if s.rest == nil {
			s.rest, s.late = s.late, nil
		} else {
			s.append(ctx, s.late.Bytes())
			s.late = release(s.late)
		}
		s.cur, s.off = nil, 0
		s.messages(ctx)
	}
	if s.eof && !s.stopped(ctx) && ctx.Reading() {
		s.end(ctx)
	}
	if t, ok := s.dec.(Trimmer); ok {
		t.Trim()
	}
	s.whole = true
}

// finishDecode runs when a handler panicked, too: rest must go back to its pool.
func (s *stream[M]) finishDecode(ctx *pipeline.Context) {
	s.busy = false
	if s.removed || !s.whole || s.stopped(ctx) {
		s.leave(ctx, s.whole)
	}
	s.cur = nil
	s.view = buffer.Buf{}
}

// stopped tells that no further message may be emitted, ever.
func (s *stream[M]) stopped(ctx *pipeline.Context) bool { return s.removed || s.failed || !ctx.Open() }

// leave lets go of everything; a successor, if there is one, gets it.
func (s *stream[M]) leave(ctx *pipeline.Context, intact bool) {
	rest, late, cur, off, taken := s.rest, s.late, s.cur, s.off+s.pulled, s.taken
	s.rest, s.late, s.cur, s.taken, s.pulled, s.need = nil, nil, nil, 0, 0, 0
	defer release(rest)
	defer release(late)
	if !intact {
		s.failed = true
	}
	if !s.removed || s.failed || !ctx.Open() {
		return
	}
	if cur != nil && cur.Len() == off {
		cur = nil
	}
	switch {
	case cur == nil && late == nil:
		s.pass(ctx, rest, taken)
	case rest == nil && late == nil:
		s.pass(ctx, cur, off)
	default: // in one piece: what a handler behind the successor delivers from within comes behind all of it
		all := ctx.Pool().Get(0)
		defer all.Release()
		copyFrom(all, rest, taken)
		copyFrom(all, cur, off)
		copyFrom(all, late, 0)
		s.pass(ctx, all, 0)
	}
	if s.eof {
		s.eof = false
		ctx.FireReadClosed()
	}
}

// pass hands on what is in b, which may be nil, from off on as bytes. It borrows b until return. It ends the batch: a
// decoder may be replaced in any event, and behind those that are no read the channel ends none.
func (s *stream[M]) pass(ctx *pipeline.Context, b *buffer.Buf, off int) {
	if b == nil || b.Len() <= off {
		return
	}
	ctx.FireRead(b.Scratch(&s.view, off, b.Len()-off))
	if ctx.Open() {
		ctx.FireReadComplete()
	}
}

func (s *stream[M]) messages(ctx *pipeline.Context) {
	if s.rest != nil && !s.messagesInRest(ctx) || s.cur == nil {
		return
	}
	in := s.cur.Bytes()
	short := false // the last message was a short line
	for s.off < len(in) && !s.removed {
		if !ctx.Reading() {
			s.hold(ctx)
			return
		}
		left := len(in) - s.off
		if short && left >= 2*shortLine {
			s.emitLines(ctx, in)
			short = false
			continue
		}
		m, n, err := s.dec.Decode(in[s.off:])
		if err == nil && uint(n-1) < uint(left) {
			off := s.off
			s.off += n
			if err = s.emit(ctx, s.cur, off, n, m); err != nil {
				report(ctx, err)
			}
			short = n < shortLine && s.lines != nil
			continue
		}
		if err == ErrShort {
			if s.short(ctx, left, n) {
				s.hold(ctx)
			}
			return
		}
		n, err = judge(left, n, err)
		s.off += n
		if !s.tell(ctx, n, err) {
			return
		}
	}
}

// messagesInRest hands on the messages that rest begins with. True: there is no rest any more.
func (s *stream[M]) messagesInRest(ctx *pipeline.Context) bool {
	for !s.removed {
		left := s.rest.Len() - s.taken
		switch {
		case left == 0:
			s.dropRest()
			return true
		case !ctx.Reading():
			s.hold(ctx)
			return false
		case left < s.need:
			if s.pull(ctx, left) {
				continue
			}
			return false
		}
		m, n, err := s.dec.Decode(s.rest.Bytes()[s.taken:])
		if err == nil && uint(n-1) < uint(left) {
			off := s.taken
			s.take(n)
			if err = s.emit(ctx, s.rest, off, n, m); err != nil {
				report(ctx, err)
			}
			continue
		}
		if err == ErrShort {
			if !s.short(ctx, left, n) {
				return false
			}
			continue
		}
		n, err = judge(left, n, err)
		if n > 0 {
			s.take(n)
		}
		if !s.tell(ctx, n, err) {
			return false
		}
	}
	return false
}

// short remembers what the decoder waits for. False: more than it may.
func (s *stream[M]) short(ctx *pipeline.Context, left, need int) bool {
	s.need = max(min(need, s.max), left+1) // who wants more than there may be is asked once there is that much
	if left < s.max {
		return true
	}
	s.fail(ctx, tooLong(0, s.max))
	return false
}

// judge makes of what a Decode without a message returned how many bytes it took, 0 for the end of the stream, and what
// is to be reported.
func judge(left, n int, err error) (int, error) {
	switch {
	case n > left || n < 0 || n == 0 && (err == nil || err == ErrSkip):
		return 0, fmt.Errorf("%w: %d of %d", ErrDecoder, n, left)
	case err == ErrSkip:
		return n, nil
	}
	return n, err
}

// tell reports what judge returned. False: there is nothing more to decode.
func (s *stream[M]) tell(ctx *pipeline.Context, n int, err error) bool {
	if n == 0 {
		s.fail(ctx, err)
		return false
	}
	if err != nil {
		report(ctx, err)
	}
	return true
}

// fail reports the error that ends the stream and closes the channel, unless a handler took the decoder out: then the
// bytes are somebody else's.
func (s *stream[M]) fail(ctx *pipeline.Context, err error) {
	report(ctx, err)
	if s.removed {
		return
	}
	s.failed = true
	if !ctx.Open() {
		return
	}
	if err := ctx.Pipeline().Close(); err != nil {
		ctx.Abort(err)
	}
}

// report gives err to the handler's own ErrorCaught, where it is part of one that has it, and to those behind.
func report(ctx *pipeline.Context, err error) {
	if h, ok := ctx.Handler().(pipeline.ErrorHandler); ok {
		if err = h.ErrorCaught(ctx, err); err == nil {
			return
		}
	}
	ctx.FireError(err)
}

// pull copies some bytes from cur behind rest, whose message is not complete. False: cur has no more.
func (s *stream[M]) pull(ctx *pipeline.Context, left int) bool {
	s.settle()
	if s.cur == nil || s.off == s.cur.Len() {
		return false
	}
	want := s.need - left
	if want <= 1 { // the decoder does not know
		want = max(pullBytes, left/4)
	}
	s.pulled = min(s.cur.Len()-s.off, want)
	s.append(ctx, s.cur.Bytes()[s.off:s.off+s.pulled])
	return true
}

// take consumes the n bytes of a message from rest. What pull copied beyond its end stays in cur instead.
func (s *stream[M]) take(n int) {
	if behind := s.rest.Len() - s.taken - n; s.pulled > 0 && behind <= s.pulled {
		s.off += s.pulled - behind
		s.pulled = 0
		s.rest.Truncate(s.taken + n)
	}
	s.taken += n
	s.need = 0
}

// settle makes what was pulled belong to rest for good.
func (s *stream[M]) settle() {
	s.off += s.pulled
	s.pulled = 0
}

// hold keeps what was not decoded: the beginning of a message, or anything while reading is paused.
func (s *stream[M]) hold(ctx *pipeline.Context) {
	s.settle()
	if s.cur == nil || s.off == s.cur.Len() || !ctx.Open() {
		return
	}
	b := s.cur.Bytes()[s.off:]
	switch {
	case s.rest != nil: // paused, and still there comes more
		if s.rest.Len()-s.taken+len(b) > s.max+overrunBytes {
			s.fail(ctx, fmt.Errorf("%w: more than %d bytes", ErrOverrun, s.max+overrunBytes))
			return
		}
		s.append(ctx, b)
	case ctx.Reading():
		s.rest = ctx.Pool().Get(s.capacity(len(b)))
		s.rest.Append(b)
	default: // mostly whole messages, which need no copy
		s.rest, s.need = s.cur.Slice(s.off, len(b)).Detach(), 0
	}
	s.cur, s.off = nil, 0
}

// append copies p to the end of rest.
func (s *stream[M]) append(ctx *pipeline.Context, p []byte) {
	if s.rest.Room() < len(p) || !s.rest.Exclusive() {
		have := s.rest.Bytes()[s.taken:]
		own := ctx.Pool().Get(s.capacity(len(have) + len(p)))
		own.Append(have)
		s.rest.Release()
		s.rest, s.taken = own, 0
	}
	s.rest.Append(p)
}

// capacity is how large rest is made for n bytes. Memory grows with what was received, never with what was announced:
// it doubles, so that what is copied is linear, and where the decoder knows how much it needs, four times as much is
// made at once.
func (s *stream[M]) capacity(n int) int {
	want := 2 * n
	if s.need > n {
		want = min(s.need, 4*n)
	}
	if n < s.max {
		want = min(want, s.max+pullBytes)
	}
	return max(want, n)
}

func (s *stream[M]) dropRest() {
	s.rest = release(s.rest)
	s.taken, s.need = 0, 0
}

// receiveLate keeps what arrives while a handler behind this one runs.
func (s *stream[M]) receiveLate(ctx *pipeline.Context, b *buffer.Buf) {
	if s.late == nil {
		s.late = ctx.Pool().Get(b.Len())
	}
	if s.late.Len()+b.Len() > s.max+overrunBytes {
		s.fail(ctx, fmt.Errorf("%w: more than %d bytes", ErrOverrun, s.max+overrunBytes))
		return
	}
	s.late.Append(b.Bytes())
}

// copyFrom appends what is in b, which may be nil, from off on. It borrows both until return.
func copyFrom(to, b *buffer.Buf, off int) {
	if b != nil {
		to.Append(b.Bytes()[off:])
	}
}

// release takes ownership of b, which may be nil, and returns nil.
func release(b *buffer.Buf) *buffer.Buf {
	if b != nil {
		b.Release()
	}
	return nil
}
