package watermark_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func newHandler(t testing.TB, cfg watermark.Config) *watermark.Handler {
	t.Helper()
	h, err := watermark.New(cfg)
	require.NoError(t, err)
	return h
}

func newShared(t testing.TB, cfg watermark.SharedConfig) *watermark.Shared {
	t.Helper()
	s, err := watermark.NewShared(cfg)
	require.NoError(t, err)
	return s
}

// channel returns a channel with h and what stands behind it, and h's Context.
func channel(t testing.TB, h *watermark.Handler, behind ...any) (*pipelinetest.Channel, *pipeline.Context) {
	t.Helper()
	ch := pipelinetest.New(t, append([]any{pipelinetest.Named("watermark", h)}, behind...)...)
	return ch, ch.Context("watermark")
}

// changes returns the levels that events told since the last call.
func changes(ch *pipelinetest.Channel, h *handlerEvents) []watermark.Level { return h.take(ch) }

// handlerEvents records Changes, which are valid only until return.
type handlerEvents struct{ seen []watermark.Change }

func (e *handlerEvents) ChannelEvent(ctx *pipeline.Context, event any) error {
	if c, ok := event.(*watermark.Change); ok {
		e.seen = append(e.seen, *c)
		return nil
	}
	ctx.FireEvent(event)
	return nil
}

func (e *handlerEvents) take(*pipelinetest.Channel) (to []watermark.Level) {
	for _, c := range e.seen {
		to = append(to, c.To)
	}
	e.seen = nil
	return to
}

// onRead runs a function for each message.
type onRead func(ctx *pipeline.Context, msg any) error

func (f onRead) ChannelRead(ctx *pipeline.Context, msg any) error { return f(ctx, msg) }

func bytesOf(msg any) int {
	if m, ok := msg.(interface{ Len() int }); ok {
		return m.Len()
	}
	return 0
}
