package watermark

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// DropGate drops whole frames while its Handler is at High, or more comes than the rate allows, where
// Config.KeepReading leaves reading on. Otherwise it passes them on, also those that had been read when reading was
// paused, and only counts. In either mode it drops what comes after the channel was closed. It stands behind the framer
// and before the decoder, so that nothing is dropped inside a frame, and belongs to the channel's loop; what it counts,
// its Handler's Stats, may be read by any goroutine.
type DropGate struct{ h *Handler }

var (
	_ pipeline.ReadHandler  = (*DropGate)(nil)
	_ pipeline.AddedHandler = (*DropGate)(nil)
)

// NewDropGate returns a gate that goes by the level of h, which stands before it in the same pipeline.
func NewDropGate(h *Handler) *DropGate { return &DropGate{h: h} }

// HandlerAdded checks the place.
func (g *DropGate) HandlerAdded(ctx *pipeline.Context) error { return g.h.behind(ctx) }

// ChannelRead passes a frame on or drops it. It borrows msg until return.
func (g *DropGate) ChannelRead(ctx *pipeline.Context, msg any) error {
	h := g.h
	n := frameBytes(msg)
	r := h.refusal(ctx, n)
	h.cfg.Stats.frames[r].Add(1)
	h.cfg.Stats.bytes[r].Add(uint64(n))
	if r != ReasonNone {
		return nil
	}
	ctx.FireRead(msg)
	h.look(true)
	return nil
}

// refusal returns why a frame of n bytes is to be dropped, or ReasonNone and charges it to the rate.
func (h *Handler) refusal(ctx *pipeline.Context, n int) Reason {
	switch {
	case h.removed():
		return ReasonNone
	case h.level >= OverLimit:
		return ReasonPending
	}
	if !h.cfg.KeepReading {
		return ReasonNone // reading is paused, and what has been read by then is not lost
	}
	if r := h.reason(); r != ReasonNone {
		return r
	}
	if h.bucket == nil {
		return ReasonNone
	}
	capacity := h.cfg.BurstBytes
	if capacity == 0 {
		capacity = h.cfg.RateBytesPerSecond
	}
	now := ctx.Now()
	if h.bucket.Available(now) < min(int64(n), capacity) {
		return ReasonRate
	}
	h.bucket.Charge(now, int64(n)) // a frame larger than the bucket leaves a debt
	return ReasonNone
}

// Probe looks at the level after each message, and closes at OverLimit before the next. It stands behind a decoder,
// where one read becomes many messages: a Handler before the decoder sees what they did only after the last of them.
type Probe struct{ h *Handler }

var (
	_ pipeline.ReadHandler  = (*Probe)(nil)
	_ pipeline.AddedHandler = (*Probe)(nil)
)

// NewProbe returns a Probe for h, which stands before it in the same pipeline.
func NewProbe(h *Handler) *Probe { return &Probe{h: h} }

// HandlerAdded checks the place.
func (p *Probe) HandlerAdded(ctx *pipeline.Context) error { return p.h.behind(ctx) }

// ChannelRead passes msg on. It borrows msg until return.
func (p *Probe) ChannelRead(ctx *pipeline.Context, msg any) error {
	if p.h.level != Normal && !p.h.admit() {
		return nil
	}
	ctx.FireRead(msg)
	p.h.passed()
	p.h.look(true)
	return nil
}

// behind checks that ctx stands in the pipeline of h.
func (h *Handler) behind(ctx *pipeline.Context) error {
	if h.ctx == nil || h.ctx.Pipeline() != ctx.Pipeline() {
		return fmt.Errorf("watermark: add %q: its Handler does not stand in this pipeline: %w", ctx.Name(), ErrPlace)
	}
	return nil
}

// frameBytes is the size of a frame: bytes, or what has a length.
func frameBytes(msg any) int {
	switch m := msg.(type) {
	case *buffer.Buf:
		return m.Len()
	case *[]byte:
		return len(*m)
	case []byte:
		return len(m)
	case interface{ Len() int }:
		return m.Len()
	}
	return 0
}
