package pipeline_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// Function types with one handler interface each; a struct that embeds several is a handler with those.
type (
	onRead         func(*pipeline.Context, any) error
	onReadComplete func(*pipeline.Context) error
	onActive       func(*pipeline.Context) error
	onInactive     func(*pipeline.Context) error
	onReadClosed   func(*pipeline.Context) error
	onError        func(*pipeline.Context, error) error
	onEvent        func(*pipeline.Context, any) error
	onWritability  func(*pipeline.Context) error
	onResume       func(*pipeline.Context) error
	onGrant        func(*pipeline.Context) (int, time.Duration)
	onShutdown     func(*pipeline.Context) error
	onWrite        func(*pipeline.Context, any) error
	onFlush        func(*pipeline.Context) error
	onClose        func(*pipeline.Context) error
	onAdded        func(*pipeline.Context) error
	onRemoved      func(*pipeline.Context) error
)

func (f onRead) ChannelRead(ctx *pipeline.Context, msg any) error             { return f(ctx, msg) }
func (f onReadComplete) ChannelReadComplete(ctx *pipeline.Context) error      { return f(ctx) }
func (f onActive) ChannelActive(ctx *pipeline.Context) error                  { return f(ctx) }
func (f onInactive) ChannelInactive(ctx *pipeline.Context) error              { return f(ctx) }
func (f onReadClosed) ChannelReadClosed(ctx *pipeline.Context) error          { return f(ctx) }
func (f onError) ErrorCaught(ctx *pipeline.Context, err error) error          { return f(ctx, err) }
func (f onEvent) ChannelEvent(ctx *pipeline.Context, ev any) error            { return f(ctx, ev) }
func (f onWritability) ChannelWritabilityChanged(ctx *pipeline.Context) error { return f(ctx) }
func (f onResume) ChannelResume(ctx *pipeline.Context) error                  { return f(ctx) }
func (f onGrant) ReadGrant(ctx *pipeline.Context) (int, time.Duration)        { return f(ctx) }
func (f onShutdown) ChannelShutdown(ctx *pipeline.Context) error              { return f(ctx) }
func (f onWrite) Write(ctx *pipeline.Context, msg any) error                  { return f(ctx, msg) }
func (f onFlush) Flush(ctx *pipeline.Context) error                           { return f(ctx) }
func (f onClose) Close(ctx *pipeline.Context) error                           { return f(ctx) }
func (f onAdded) HandlerAdded(ctx *pipeline.Context) error                    { return f(ctx) }
func (f onRemoved) HandlerRemoved(ctx *pipeline.Context) error                { return f(ctx) }

// journal collects lines.
type journal []string

func (j *journal) add(format string, args ...any) { *j = append(*j, fmt.Sprintf(format, args...)) }

// tap has every event interface, notes each event as "name:event" and passes it on.
type tap struct {
	name string
	log  *journal
}

func (h tap) note(what string) { h.log.add("%s:%s", h.name, what) }

func (h tap) ChannelRead(ctx *pipeline.Context, msg any) error {
	h.note("read " + text(msg))
	ctx.FireRead(msg)
	return nil
}

func (h tap) ChannelReadComplete(ctx *pipeline.Context) error {
	h.note("read-complete")
	ctx.FireReadComplete()
	return nil
}

func (h tap) ChannelActive(ctx *pipeline.Context) error {
	h.note("active")
	ctx.FireActive()
	return nil
}

func (h tap) ChannelInactive(ctx *pipeline.Context) error {
	h.note("inactive")
	ctx.FireInactive()
	return nil
}

func (h tap) ChannelReadClosed(ctx *pipeline.Context) error {
	h.note("read-closed")
	ctx.FireReadClosed()
	return nil
}

func (h tap) ErrorCaught(ctx *pipeline.Context, err error) error {
	h.note("error " + err.Error())
	return err
}

func (h tap) ChannelEvent(ctx *pipeline.Context, ev any) error {
	h.note("event " + text(ev))
	ctx.FireEvent(ev)
	return nil
}

func (h tap) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	h.note(fmt.Sprint("writable ", ctx.Writable()))
	ctx.FireWritabilityChanged()
	return nil
}

func (h tap) ChannelShutdown(ctx *pipeline.Context) error {
	h.note("shutdown")
	ctx.FireShutdown()
	return nil
}

func (h tap) ChannelResume(*pipeline.Context) error {
	h.note("resume")
	return nil
}

func (h tap) Write(ctx *pipeline.Context, msg any) error {
	h.note("write " + text(msg))
	return ctx.Write(msg)
}

func (h tap) Flush(ctx *pipeline.Context) error {
	h.note("flush")
	return ctx.Flush()
}

func (h tap) Close(ctx *pipeline.Context) error {
	h.note("close")
	return ctx.Close()
}

func (h tap) HandlerAdded(*pipeline.Context) error {
	h.note("added")
	return nil
}

func (h tap) HandlerRemoved(*pipeline.Context) error {
	h.note("removed")
	return nil
}

// text shows a message.
func text(msg any) string {
	switch m := msg.(type) {
	case *buffer.Buf:
		return string(m.Bytes())
	case []byte:
		return string(m)
	}
	return fmt.Sprint(msg)
}

// pass has the interfaces of the hot path and passes everything on.
type pass struct{}

func (pass) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireRead(msg)
	return nil
}

func (pass) ChannelReadComplete(ctx *pipeline.Context) error {
	ctx.FireReadComplete()
	return nil
}

func (pass) Write(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

// sink ends inbound events.
type sink struct{ reads int }

func (s *sink) ChannelRead(*pipeline.Context, any) error {
	s.reads++
	return nil
}

func (s *sink) ChannelReadComplete(*pipeline.Context) error { return nil }

// driven is a pipeline with its driver.
type driven struct {
	pipeline.Driver
	*pipeline.Pipeline
}

func (d *driven) init(ch pipeline.Channel) {
	d.Driver.Init(ch)
	d.Pipeline = d.Driver.Pipeline()
}

// bareChannel is a Channel that does next to nothing, for measurements.
type bareChannel struct {
	pipe    driven
	pool    *buffer.Pool
	tail    *buffer.Buf
	written int
	dirty   int
	stopped bool
	closes  int
	ends    bool // Close makes Open false
	logger  *slog.Logger
}

var _ pipeline.Channel = (*bareChannel)(nil)

func newBare(handlers ...any) *bareChannel {
	c := &bareChannel{
		pool: buffer.NewPool(buffer.PoolConfig{}), tail: buffer.New(128 << 10), logger: slog.New(slog.DiscardHandler),
	}
	c.pipe.init(c)
	for _, h := range handlers {
		if err := c.pipe.AddLast("", h); err != nil {
			panic(err)
		}
	}
	return c
}

func (c *bareChannel) Write(msg any) error {
	if b, ok := msg.(*buffer.Buf); ok {
		c.written += b.Len()
	}
	return nil
}

func (c *bareChannel) Close(error) {
	c.closes++
	if c.ends {
		c.pipe.SetLife(pipeline.LifeClosing)
	}
}

func (c *bareChannel) WriteErr() error {
	if !c.pipe.Open() {
		return pipeline.ErrClosed
	}
	return nil
}

func (c *bareChannel) Tail(int) *buffer.Buf {
	c.written += c.tail.Len()
	c.tail.Truncate(0)
	return c.tail
}

func (c *bareChannel) Flush()                         {}
func (c *bareChannel) Flushed(fn func(error))         { fn(nil) }
func (c *bareChannel) CloseWrite() error              { return nil }
func (c *bareChannel) Abort(error)                    {}
func (c *bareChannel) StopReading()                   { c.stopped = true }
func (c *bareChannel) StartReading()                  { c.stopped = false }
func (c *bareChannel) Acked() (uint64, int)           { return 0, 0 }
func (c *bareChannel) GrantChanged()                  {}
func (c *bareChannel) Hold(int)                       {}
func (c *bareChannel) Pending() int                   { return 0 }
func (c *bareChannel) Writable() bool                 { return true }
func (c *bareChannel) WritabilityMayHaveChanged()     {}
func (c *bareChannel) WantFlush()                     { c.dirty++ }
func (c *bareChannel) Cause() error                   { return nil }
func (c *bareChannel) ID() uint64                     { return 1 }
func (c *bareChannel) LocalAddr() net.Addr            { return nil }
func (c *bareChannel) RemoteAddr() net.Addr           { return nil }
func (c *bareChannel) RemoteAddrPort() netip.AddrPort { return netip.AddrPort{} }
func (c *bareChannel) Control(func(uintptr) error) error {
	return nil
}
func (c *bareChannel) Pool() *buffer.Pool               { return c.pool }
func (c *bareChannel) Logger() *slog.Logger             { return c.logger }
func (c *bareChannel) Now() time.Duration               { return 0 }
func (c *bareChannel) NewTimer(func()) pipeline.Timer   { return nil }
func (c *bareChannel) Outgoing() uint64                 { return 0 }
func (c *bareChannel) NewSignal(func()) pipeline.Signal { return nil }
func (c *bareChannel) Dial(string, string, func(*pipeline.Pipeline) error, func(error)) error {
	return nil
}
func (c *bareChannel) Ref(*pipeline.Context) pipeline.Ref { return nil }
