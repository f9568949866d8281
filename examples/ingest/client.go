package main

import (
	"errors"
	"syscall"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// client is the last handler of a pipeline: it counts what happens to one client. It belongs to its channel's loop.
type client struct {
	listener *listener
	high     bool
}

var (
	_ pipeline.ActiveHandler   = (*client)(nil)
	_ pipeline.InactiveHandler = (*client)(nil)
	_ pipeline.EventHandler    = (*client)(nil)
	_ pipeline.ErrorHandler    = (*client)(nil)
)

// ChannelActive counts it in.
func (c *client) ChannelActive(*pipeline.Context) error {
	c.listener.counters.open.Add(1)
	c.listener.counters.connections.Add(1)
	return nil
}

// ChannelEvent counts those that are paused. A lossy one goes on reading.
func (c *client) ChannelEvent(_ *pipeline.Context, event any) error {
	if change, ok := event.(*watermark.Change); ok && !c.listener.lossy {
		c.setHigh(change.To == watermark.High)
	}
	return nil
}

// ErrorCaught counts errors after which the next frame can be found, and lets the others close the channel.
func (c *client) ErrorCaught(_ *pipeline.Context, err error) error {
	counters := &c.listener.counters
	switch {
	case errors.Is(err, codec.ErrTruncated):
		counters.truncated.Add(1)
		return nil
	case errors.Is(err, codec.ErrFrameTooLong):
		counters.tooLong.Add(1)
		return nil
	}
	return err
}

// ChannelInactive counts it out.
func (c *client) ChannelInactive(ctx *pipeline.Context) error {
	c.listener.counters.open.Add(-1)
	c.setHigh(false)
	// A reset is the client's affair; one that goes on sending when the server leaves is cut off.
	if cause := ctx.Cause(); cause != nil && !errors.Is(cause, syscall.ECONNRESET) &&
		!errors.Is(cause, channel.ErrCloseTimeout) {
		c.listener.counters.failed.Add(1)
		c.listener.logger.Warn("client closed", "protocol", c.listener.protocol.name, "from", ctx.RemoteAddr(),
			"error", cause)
	}
	return nil
}

func (c *client) setHigh(high bool) {
	switch {
	case high && !c.high:
		c.listener.counters.paused.Add(1)
	case !high && c.high:
		c.listener.counters.paused.Add(-1)
	}
	c.high = high
}

const (
	// drainQuiet is how long nothing may come from a client that is asked to leave before it is taken to have left.
	drainQuiet = 100 * time.Millisecond
)

// drainer is what becomes of a client when the server stops: it gets FIN, so that it stops or goes elsewhere, and what
// it has sent until then is read: a log message that the kernel had acknowledged would be lost otherwise. It belongs to
// its channel's loop.
type drainer struct {
	limit time.Duration // for how long to read at most
	until time.Duration
	timer pipeline.Timer // made on shutdown
	heard bool
}

var (
	_ pipeline.ReadHandler     = (*drainer)(nil)
	_ pipeline.ShutdownHandler = (*drainer)(nil)
)

// ChannelRead notices that something has come. It borrows msg until return.
func (h *drainer) ChannelRead(ctx *pipeline.Context, msg any) error {
	h.heard = true
	ctx.FireRead(msg)
	return nil
}

// ChannelShutdown lets the other handlers finish when the client is silent.
func (h *drainer) ChannelShutdown(ctx *pipeline.Context) error {
	h.until = ctx.Now() + h.limit
	h.timer = ctx.NewTimer(h.look)
	h.timer.Reset(drainQuiet)
	h.heard = false
	return ctx.CloseWrite()
}

func (h *drainer) look(ctx *pipeline.Context) error {
	if (h.heard || !ctx.Reading()) && ctx.Now() < h.until {
		h.heard = false
		h.timer.Reset(drainQuiet)
		return nil
	}
	ctx.FireShutdown()
	return nil
}
