package main

import "github.com/weirnet/weir/pipeline"

// front is the client's side of a proxy. It reads nothing until the backend is connected. Each side stops reading while
// the other one cannot be written to. It belongs to its channel's loop, which is the backend's, too.
type front struct {
	backend string
	peer    *pipeline.Context // the backend's side; nil: not connected yet
}

var (
	_ pipeline.ActiveHandler      = (*front)(nil)
	_ pipeline.ReadHandler        = (*front)(nil)
	_ pipeline.ReadClosedHandler  = (*front)(nil)
	_ pipeline.InactiveHandler    = (*front)(nil)
	_ pipeline.WritabilityHandler = (*front)(nil)
)

func (f *front) ChannelActive(ctx *pipeline.Context) error {
	ctx.Pause()
	return ctx.Dial("tcp", f.backend, func(p *pipeline.Pipeline) error {
		return p.AddLast("back", &back{front: f, peer: ctx})
	}, func(err error) { ctx.Abort(err) })
}

// ChannelRead borrows msg until return.
func (f *front) ChannelRead(_ *pipeline.Context, msg any) error { return f.peer.Write(msg) }

func (f *front) ChannelReadClosed(*pipeline.Context) error { return f.peer.CloseWrite() }

func (f *front) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if f.peer != nil {
		follow(f.peer, ctx)
	}
	return nil
}

func (f *front) ChannelInactive(ctx *pipeline.Context) error {
	if f.peer != nil {
		f.peer.Abort(ctx.Cause())
		f.peer = nil
	}
	return nil
}

// back is the backend's side.
type back struct {
	front *front
	peer  *pipeline.Context // the client's side
}

var (
	_ pipeline.ActiveHandler      = (*back)(nil)
	_ pipeline.ReadHandler        = (*back)(nil)
	_ pipeline.ReadClosedHandler  = (*back)(nil)
	_ pipeline.InactiveHandler    = (*back)(nil)
	_ pipeline.WritabilityHandler = (*back)(nil)
)

func (b *back) ChannelActive(ctx *pipeline.Context) error {
	if !b.peer.Active() { // the client has gone
		ctx.Abort(b.peer.Cause())
		return nil
	}
	b.front.peer = ctx
	b.peer.Resume()
	return nil
}

// ChannelRead borrows msg until return.
func (b *back) ChannelRead(_ *pipeline.Context, msg any) error { return b.peer.Write(msg) }

func (b *back) ChannelReadClosed(*pipeline.Context) error { return b.peer.CloseWrite() }

func (b *back) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	follow(b.peer, ctx)
	return nil
}

func (b *back) ChannelInactive(ctx *pipeline.Context) error {
	b.front.peer = nil
	b.peer.Abort(ctx.Cause())
	return nil
}

// follow reads from source while sink can be written to.
func follow(source, sink *pipeline.Context) {
	if sink.Writable() {
		source.Resume()
	} else {
		source.Pause()
	}
}
