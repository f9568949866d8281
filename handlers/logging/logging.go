// Package logging writes what happens on a channel to a log/slog logger, to see what a pipeline does.
//
// It logs where it stands: bytes when it is first, messages behind a decoder. The level is asked for before any work is
// done, at each event, so that it may change at run time (slog.LevelVar); what is not logged costs no allocation. The
// handler takes part in each write, though, so that what handlers behind it write goes through one more buffer: leave
// it out where nobody will ever look.
package logging

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

var (
	// ErrConfig is what New returns for a configuration that makes no sense.
	ErrConfig = errors.New("logging: bad configuration")
	// ErrReused is the error of adding a Handler that was added before: it logs the addresses of its channel.
	ErrReused = errors.New("logging: a handler is for one channel and once")
)

// MaxDumpBytes is the most that a dump may show of a message.
const MaxDumpBytes = 64 << 10

// Config says what to log. The zero value works.
type Config struct {
	// Logger gets the records. Nil means the channel's own (Context.Logger).
	Logger *slog.Logger
	// Level is that of all records; the zero value is slog.LevelInfo.
	Level slog.Level
	// Name tells two of these handlers in one pipeline apart: the attribute "at", where it is not empty.
	Name string
	// DumpBytes is how much of each message is shown in hexadecimal and ASCII. Zero shows none, MaxDumpBytes is the
	// most.
	DumpBytes int
}

// Handler is the handler. It belongs to its channel's loop and stands in one pipeline.
type Handler struct {
	cfg Config
	log *slog.Logger // with the channel's attributes; nil until something is logged

	added bool
}

var (
	_ pipeline.AddedHandler        = (*Handler)(nil)
	_ pipeline.ActiveHandler       = (*Handler)(nil)
	_ pipeline.ReadHandler         = (*Handler)(nil)
	_ pipeline.ReadCompleteHandler = (*Handler)(nil)
	_ pipeline.ReadClosedHandler   = (*Handler)(nil)
	_ pipeline.EventHandler        = (*Handler)(nil)
	_ pipeline.WritabilityHandler  = (*Handler)(nil)
	_ pipeline.ShutdownHandler     = (*Handler)(nil)
	_ pipeline.ErrorHandler        = (*Handler)(nil)
	_ pipeline.InactiveHandler     = (*Handler)(nil)
	_ pipeline.WriteHandler        = (*Handler)(nil)
	_ pipeline.FlushHandler        = (*Handler)(nil)
	_ pipeline.CloseHandler        = (*Handler)(nil)
)

// New returns a handler for one channel.
func New(cfg Config) (*Handler, error) {
	if cfg.DumpBytes < 0 || cfg.DumpBytes > MaxDumpBytes {
		return nil, fmt.Errorf("%w: a dump of %d bytes", ErrConfig, cfg.DumpBytes)
	}
	return &Handler{cfg: cfg}, nil
}

// HandlerAdded refuses a second place.
func (h *Handler) HandlerAdded(ctx *pipeline.Context) error {
	if h.added {
		return fmt.Errorf("logging: add %q: %w", ctx.Name(), ErrReused)
	}
	h.added = true
	return nil
}

// ChannelActive logs "active".
func (h *Handler) ChannelActive(ctx *pipeline.Context) error {
	if h.on(ctx) {
		h.say(ctx, "active")
	}
	ctx.FireActive()
	return nil
}

// ChannelRead logs "read". It borrows msg until return.
func (h *Handler) ChannelRead(ctx *pipeline.Context, msg any) error {
	if h.on(ctx) {
		h.message(ctx, "read", msg)
	}
	ctx.FireRead(msg)
	return nil
}

// ChannelReadComplete logs "read complete".
func (h *Handler) ChannelReadComplete(ctx *pipeline.Context) error {
	if h.on(ctx) {
		h.say(ctx, "read complete")
	}
	ctx.FireReadComplete()
	return nil
}

// ChannelReadClosed logs "read closed".
func (h *Handler) ChannelReadClosed(ctx *pipeline.Context) error {
	if h.on(ctx) {
		h.say(ctx, "read closed")
	}
	ctx.FireReadClosed()
	return nil
}

// ChannelEvent logs "event" with the event's type.
func (h *Handler) ChannelEvent(ctx *pipeline.Context, event any) error {
	if h.on(ctx) {
		h.say(ctx, "event", slog.String("type", fmt.Sprintf("%T", event)))
	}
	ctx.FireEvent(event)
	return nil
}

// ChannelWritabilityChanged logs "writability changed".
func (h *Handler) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if h.on(ctx) {
		h.say(ctx, "writability changed",
			slog.Bool("writable", ctx.Writable()), slog.Int("pendingBytes", ctx.Pending()))
	}
	ctx.FireWritabilityChanged()
	return nil
}

// ChannelShutdown logs "shutdown".
func (h *Handler) ChannelShutdown(ctx *pipeline.Context) error {
	if h.on(ctx) {
		h.say(ctx, "shutdown")
	}
	ctx.FireShutdown()
	return nil
}

// ErrorCaught logs "error" and passes it on.
func (h *Handler) ErrorCaught(ctx *pipeline.Context, err error) error {
	if h.on(ctx) {
		h.say(ctx, "error", slog.String("error", err.Error()))
	}
	return err
}

// ChannelInactive logs "inactive", with the cause where there is one.
func (h *Handler) ChannelInactive(ctx *pipeline.Context) error {
	if h.on(ctx) {
		if cause := ctx.Cause(); cause != nil {
			h.say(ctx, "inactive", slog.String("cause", cause.Error()))
		} else {
			h.say(ctx, "inactive")
		}
	}
	ctx.FireInactive()
	return nil
}

// Write logs "write". It borrows msg until return.
func (h *Handler) Write(ctx *pipeline.Context, msg any) error {
	if h.on(ctx) {
		h.message(ctx, "write", msg)
	}
	return ctx.Write(msg)
}

// Flush logs "flush".
func (h *Handler) Flush(ctx *pipeline.Context) error {
	if h.on(ctx) {
		h.say(ctx, "flush", slog.Int("pendingBytes", ctx.Pending()))
	}
	return ctx.Flush()
}

// Close logs "close".
func (h *Handler) Close(ctx *pipeline.Context) error {
	if h.on(ctx) {
		h.say(ctx, "close")
	}
	return ctx.Close()
}

// on reports whether there is anything to do, before it is done.
func (h *Handler) on(ctx *pipeline.Context) bool {
	log := h.log
	if log == nil {
		if log = h.cfg.Logger; log == nil {
			log = ctx.Logger()
		}
	}
	return log.Enabled(context.Background(), h.cfg.Level)
}

// say writes a record, with the channel's attributes.
func (h *Handler) say(ctx *pipeline.Context, what string, attrs ...slog.Attr) {
	if h.log == nil {
		log := h.cfg.Logger
		if log == nil {
			log = ctx.Logger()
		}
		if h.cfg.Name != "" {
			log = log.With(slog.String("at", h.cfg.Name))
		}
		h.log = log.With(slog.Uint64("channel", ctx.ID()), slog.String("local", address(ctx.LocalAddr())),
			slog.String("remote", address(ctx.RemoteAddr())))
	}
	h.log.LogAttrs(context.Background(), h.cfg.Level, what, attrs...)
}

// message says what is known about msg, which it borrows until return.
func (h *Handler) message(ctx *pipeline.Context, what string, msg any) {
	var n int
	var dump string
	switch m := msg.(type) {
	case *buffer.Buf:
		n, dump = m.Len(), h.dump(m.Bytes())
	case []byte:
		n, dump = len(m), h.dump(m)
	case string:
		n, dump = len(m), h.dump([]byte(m[:min(len(m), h.cfg.DumpBytes)]))
	default:
		h.say(ctx, what, slog.String("type", fmt.Sprintf("%T", msg)))
		return
	}
	if h.cfg.DumpBytes == 0 {
		h.say(ctx, what, slog.Int("bytes", n))
		return
	}
	h.say(ctx, what, slog.Int("bytes", n), slog.String("dump", dump))
}

func (h *Handler) dump(b []byte) string { return hex.Dump(b[:min(len(b), h.cfg.DumpBytes)]) }

func address(a fmt.Stringer) string {
	if a == nil {
		return ""
	}
	return a.String()
}
