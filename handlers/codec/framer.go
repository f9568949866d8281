package codec

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// Framer is the handler that cuts received bytes into frames. It hands each on as a *buffer.Buf, which the next handler
// borrows: a view of what was received, and a copy only of a frame that came in several pieces. It belongs to its
// channel's loop and stands in one pipeline.
type Framer struct{ stream[Span] }

var (
	_ pipeline.AddedHandler      = (*Framer)(nil)
	_ pipeline.ReadHandler       = (*Framer)(nil)
	_ pipeline.ReadClosedHandler = (*Framer)(nil)
	_ pipeline.ResumeHandler     = (*Framer)(nil)
	_ pipeline.RemovedHandler    = (*Framer)(nil)
)

// NewFramer returns a handler around s, which is its alone.
func NewFramer(s Splitter) *Framer {
	f := &Framer{}
	f.lines, _ = s.(*lines)
	f.init(s, func(ctx *pipeline.Context, b *buffer.Buf, off, n int, at Span) error {
		if err := at.check(n); err != nil {
			return err
		}
		ctx.FireRead(b.Scratch(&f.view, off+at.Start, at.End-at.Start))
		return nil
	})
	return f
}

// framer is NewFramer for a constructor's result.
func framer(s Splitter, err error) (*Framer, error) {
	if err != nil {
		return nil, err
	}
	return NewFramer(s), nil
}

// check reports whether at lies in the n bytes that were taken.
func (at Span) check(n int) error {
	if uint(at.Start) <= uint(at.End) && uint(at.End) <= uint(n) {
		return nil
	}
	return fmt.Errorf("%w: frame [%d,%d) in %d", ErrDecoder, at.Start, at.End, n)
}

// Handler is the handler that decodes received bytes and gives each message to a function. It belongs to its channel's
// loop and stands in one pipeline.
type Handler[M any] struct{ stream[M] }

var (
	_ pipeline.AddedHandler      = (*Handler[int])(nil)
	_ pipeline.ReadHandler       = (*Handler[int])(nil)
	_ pipeline.ReadClosedHandler = (*Handler[int])(nil)
	_ pipeline.ResumeHandler     = (*Handler[int])(nil)
	_ pipeline.RemovedHandler    = (*Handler[int])(nil)
)

// Handle returns a handler that calls fn for each message of dec, which is its alone. fn borrows m until return. An
// error of fn is reported like one about the bytes; when a handler swallows it, decoding goes on.
func Handle[M any](dec Decoder[M], fn func(ctx *pipeline.Context, m M) error) *Handler[M] {
	h := &Handler[M]{}
	h.init(dec, func(ctx *pipeline.Context, _ *buffer.Buf, _, _ int, m M) error { return fn(ctx, m) })
	return h
}

// HandleFrames returns a handler that calls fn for each frame of s, which is its alone: a Framer and what stands behind
// it in one, where frames are not to travel as messages. fn borrows frame until return.
func HandleFrames(s Splitter, fn func(ctx *pipeline.Context, frame []byte) error) *Handler[Span] {
	h := &Handler[Span]{}
	h.lines, _ = s.(*lines)
	h.frame = fn
	h.init(s, func(ctx *pipeline.Context, b *buffer.Buf, off, n int, at Span) error {
		if err := at.check(n); err != nil {
			return err
		}
		return fn(ctx, b.Bytes()[off+at.Start:off+at.End:off+at.End])
	})
	return h
}
