package proxyproto

import (
	"github.com/weirnet/weir/pipeline"
)

// Encoder is the handler of an outgoing connection: it writes a header when the channel becomes active, before anything
// that handlers behind it write, and takes itself out. Put it first, nearest to the socket, and before handlers of TLS,
// which the header does not go through. It belongs to its channel's loop and stands in one pipeline.
type Encoder struct{ wire []byte }

var (
	_ pipeline.AddedHandler  = (*Encoder)(nil)
	_ pipeline.ActiveHandler = (*Encoder)(nil)
)

// NewEncoder returns an Encoder of h, which it does not keep.
func NewEncoder(h *Header) (*Encoder, error) {
	wire, err := h.AppendTo(nil)
	if err != nil {
		return nil, err
	}
	return &Encoder{wire}, nil
}

// HandlerAdded writes the header on a channel that is active already; the Encoder stays in the pipeline then, and does
// nothing.
func (e *Encoder) HandlerAdded(ctx *pipeline.Context) error {
	if ctx.Active() {
		return ctx.WriteBytes(e.wire)
	}
	return nil
}

// ChannelActive writes the header, leaves, and passes the event on.
func (e *Encoder) ChannelActive(ctx *pipeline.Context) error {
	if err := ctx.WriteBytes(e.wire); err != nil {
		return err
	}
	if _, err := ctx.Pipeline().Remove(ctx.Name()); err != nil {
		return err
	}
	ctx.FireActive()
	return nil
}
