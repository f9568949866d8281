package main

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/examples/resp/internal/command"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/codec/resp"
	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/pipeline"
)

// checkBytes is after how many bytes of replies to one batch of requests the handler looks whether the client reads
// them.
const checkBytes = 4 << 10

// errStalled is why a client is disconnected that does not read.
var errStalled = errors.New("resp: the client reads no replies")

// handler runs the requests of one client. It belongs to its channel's loop.
type handler struct {
	session *command.Session
}

var (
	_ pipeline.ReadHandler        = (*handler)(nil)
	_ pipeline.WritabilityHandler = (*handler)(nil)
	_ pipeline.EventHandler       = (*handler)(nil)
	_ pipeline.ErrorHandler       = (*handler)(nil)
	_ pipeline.RemovedHandler     = (*handler)(nil)
)

// ChannelRead replies to requests. A client that does not read its replies gets no more of its requests read: what it
// has sent already stays in the decoder and in the kernel, and its replies stay few.
func (h *handler) ChannelRead(ctx *pipeline.Context, msg any) error {
	batch, ok := msg.(*resp.CommandBatch)
	if !ok {
		return fmt.Errorf("resp: %T is not a batch of requests", msg)
	}
	out := ctx.Out()
	for checked := out.Len(); ; {
		request := batch.Next()
		if request == nil {
			break
		}
		if h.session.Execute(request.Args, out) {
			return ctx.Close()
		}
		if out.Len()-checked < checkBytes {
			continue
		}
		if !ctx.Writable() {
			break
		}
		out = ctx.Out()
		checked = out.Len()
	}
	if !ctx.Writable() {
		ctx.Pause()
	}
	return nil
}

// ChannelWritabilityChanged goes on when the client has caught up.
func (h *handler) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	ctx.FireWritabilityChanged()
	return nil
}

// ChannelEvent disconnects a client that has read nothing for a time although replies wait.
func (h *handler) ChannelEvent(ctx *pipeline.Context, event any) error {
	if e, ok := event.(*idle.Event); ok && ctx.Pending() > 0 {
		ctx.Abort(fmt.Errorf("%w: %d bytes wait for %v", errStalled, ctx.Pending(), e.Idle))
		return nil
	}
	ctx.FireEvent(event)
	return nil
}

// ErrorCaught tells a client what is wrong with its bytes, as Redis does, and closes.
func (h *handler) ErrorCaught(ctx *pipeline.Context, err error) error {
	if errors.Is(err, codec.ErrTruncated) {
		return nil // a client that has gone inside a request; the replies to those before are on their way
	}
	var wrong *resp.ProtocolError
	if !errors.As(err, &wrong) {
		return err
	}
	if err := resp.AppendError(ctx.Out(), wrong.Reply()); err != nil {
		return err
	}
	return ctx.Close()
}

// HandlerRemoved counts the client out.
func (h *handler) HandlerRemoved(*pipeline.Context) error {
	h.session.Close()
	return nil
}
