package codec

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// end lets the decoder say what becomes of the last bytes, reports what it leaves, and passes the event on.
func (s *stream[M]) end(ctx *pipeline.Context) {
	if f, ok := s.dec.(Finisher[M]); ok && !s.cut && !s.lastMessages(ctx, f) {
		return
	}
	if s.rest != nil {
		left := s.rest.Len() - s.taken
		s.dropRest()
		s.cut = true
		report(ctx, fmt.Errorf("%w: after %d bytes of it", ErrTruncated, left))
		if s.stopped(ctx) || !ctx.Reading() {
			return
		}
	}
	s.failed = true
	s.eof = false
	if ctx.Open() {
		ctx.FireReadClosed()
	}
}

// lastMessages hands on what f makes of rest. False: reading is paused, or nothing may be emitted any more.
func (s *stream[M]) lastMessages(ctx *pipeline.Context, f Finisher[M]) bool {
	for {
		if s.stopped(ctx) || !ctx.Reading() {
			return false
		}
		var in []byte
		if s.rest != nil {
			in = s.rest.Bytes()[s.taken:]
		}
		m, n, err := f.Finish(in)
		switch {
		case err == ErrShort:
			return true
		case err == nil && uint(n-1) < uint(len(in)):
			off := s.taken
			s.take(n)
			if err = s.emit(ctx, s.rest, off, n, m); err != nil {
				report(ctx, err)
			}
		case n == 0 && len(in) == 0 && err != ErrSkip: // about bytes that were taken before
			if err == nil {
				err = s.emit(ctx, buffer.Wrap(nil), 0, 0, m)
			}
			if err != nil {
				report(ctx, err)
			}
			return !s.stopped(ctx) && ctx.Reading()
		default:
			if n, err = judge(len(in), n, err); n > 0 {
				s.take(n)
			}
			if !s.tell(ctx, n, err) {
				return false
			}
		}
		if s.rest != nil && s.rest.Len() == s.taken {
			s.dropRest()
		}
	}
}
