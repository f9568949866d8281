package pipeline

import (
	"errors"
	"fmt"
	"log/slog"
)

// end is what stands before all handlers and behind them: outbound operations that come through go to the channel, and
// what nobody handled ends here.
type end struct{}

const endKinds = kindRead | kindReadComplete | kindActive | kindInactive | kindReadClosed | kindEvent |
	kindWritability | kindShutdown | kindWrite | kindFlush | kindClose

func (end) Write(ctx *Context, msg any) error { return ctx.p.ch.Write(msg) }

func (end) Flush(ctx *Context) error {
	if !ctx.p.Open() {
		return ctx.p.ch.WriteErr()
	}
	ctx.p.state |= flushed
	ctx.p.ch.Flush()
	return nil
}

func (end) Close(ctx *Context) error {
	ctx.p.ch.Close(nil)
	return nil
}

// UnhandledObserver is what a Channel may have besides: it then gets what came through to the tail.
type UnhandledObserver interface {
	// Unhandled borrows msg until return. It reports whether somebody took notice; otherwise the first is logged.
	Unhandled(msg any) bool
	UnhandledEvent(event any)
	// UnhandledError comes before the channel is closed for err.
	UnhandledError(err error)
}

func (end) ChannelRead(ctx *Context, msg any) error {
	p := ctx.p
	p.unhandled++
	if o, ok := p.ch.(UnhandledObserver); ok && o.Unhandled(msg) {
		return nil
	}
	if p.unhandled == 1 {
		p.ch.Logger().Warn("pipeline: message reached the tail unhandled, dropped; further ones are only counted",
			slog.Uint64("channel", p.ch.ID()), slog.String("type", fmt.Sprintf("%T", msg)))
	}
	return nil
}

func (end) ChannelActive(*Context) error             { return nil }
func (end) ChannelReadComplete(*Context) error       { return nil }
func (end) ChannelInactive(*Context) error           { return nil }
func (end) ChannelWritabilityChanged(*Context) error { return nil }

func (end) ChannelEvent(ctx *Context, event any) error {
	if o, ok := ctx.p.ch.(UnhandledObserver); ok {
		o.UnhandledEvent(event)
	}
	return nil
}

func (end) ChannelReadClosed(ctx *Context) error {
	ctx.p.nobodyMinds()
	return nil
}

func (end) ChannelShutdown(ctx *Context) error {
	ctx.p.nobodyMinds()
	return nil
}

// relay takes the place of a removed handler's typed interface. It looks up, for each event, who stands behind now.
type relay struct{}

func (relay) ChannelRead(ctx *Context, msg any) error {
	n := ctx.nextWith(kindRead)
	if err := n.read.ChannelRead(n, msg); err != nil {
		n.fail(err)
	}
	return nil
}

// uncaught is what becomes of an error that no handler swallowed.
func (p *Pipeline) uncaught(err error) {
	if !p.Open() && !errors.Is(err, ErrClosed) {
		p.ch.Logger().Debug("pipeline: error after close", slog.Uint64("channel", p.ch.ID()), slog.Any("error", err))
	}
	if o, ok := p.ch.(UnhandledObserver); ok {
		o.UnhandledError(err)
	}
	p.ch.Close(err)
}

// nobodyMinds is what becomes of the peer's end and of a shutdown when no handler keeps the event: while it is being
// asked, the asker learns it; when a handler passes the event on later, the channel closes now, through the
// CloseHandlers.
func (p *Pipeline) nobodyMinds() {
	if p.state&asking != 0 {
		p.state |= unkept
		return
	}
	if err := p.Close(); err != nil {
		p.ch.Close(err)
	}
}
