// Package admission refuses requests above a server's budgets, before anything is done for them. The budgets are those
// of the package admission of weir's root, shared by all connections on all loops; here a "connection" of theirs is a
// request in flight.
package admission

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/pipeline"
)

// DefaultMaxWaiting is Config.MaxWaiting's.
const DefaultMaxWaiting = 1024

// ErrConfig is the error of settings that cannot work; it is wrapped with the values.
var ErrConfig = errors.New("admission: bad configuration of the handler")

// Config configures the handlers of a server. It may be used for all of them.
type Config struct {
	// Ledger has the budgets: how many requests are in flight, of one source, per second. What it says of waiting is not
	// for requests: they are refused.
	Ledger *admission.Ledger
	// Busy returns what a refused request is answered with, which goes to the handlers before this one. It is borrowed
	// until it has been written; nil writes nothing, and the request has no answer.
	Busy func(ctx *pipeline.Context, request any, v admission.Verdict) (answer any)
	// Request says which messages are requests. Nil: all. Others pass.
	Request func(msg any) bool
	// Response says which writes end a request: where a response is several messages, the last one. Nil: all.
	Response func(msg any) bool
	// Unordered says that responses need not come in the order of their requests, because they carry an id: a refusal is
	// then written at once, and not behind the responses of those that came before.
	Unordered bool
	// MaxWaiting is how many requests of a connection may have no response yet, refused ones included, before its reading
	// is paused, until half of them have. Zero means 1,024.
	MaxWaiting int
}

// Handler admits the requests of one connection. It stands behind the decoder, so that what it gets are requests, and
// what is written behind it are responses.
type Handler struct {
	cfg    Config
	queue  []entry // without a response yet, the oldest first
	paused bool
}

// entry is a request without a response.
type entry struct {
	claim   admission.Claim
	refused bool
	answer  any // of a refused one
}

var (
	_ pipeline.ReadHandler    = (*Handler)(nil)
	_ pipeline.WriteHandler   = (*Handler)(nil)
	_ pipeline.RemovedHandler = (*Handler)(nil)
)

// New returns the handler of one connection. The error wraps ErrConfig.
func New(cfg Config) (*Handler, error) {
	if cfg.Ledger == nil {
		return nil, fmt.Errorf("%w: Ledger is not set", ErrConfig)
	}
	if cfg.MaxWaiting < 0 {
		return nil, fmt.Errorf("%w: negative: MaxWaiting %d", ErrConfig, cfg.MaxWaiting)
	}
	if cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = DefaultMaxWaiting
	}
	return &Handler{cfg: cfg}, nil
}

// ChannelRead lets a request pass, or refuses it.
func (h *Handler) ChannelRead(ctx *pipeline.Context, msg any) error {
	if h.cfg.Request != nil && !h.cfg.Request(msg) {
		ctx.FireRead(msg)
		return nil
	}
	claim, v := h.cfg.Ledger.Take(admission.Arrival{
		Peer: ctx.RemoteAddrPort(), Unix: isUnix(ctx), Loop: int(ctx.ID() >> 48),
	})
	if v.Action == admission.Serve {
		h.push(ctx, entry{claim: claim})
		ctx.FireRead(msg)
		return nil
	}
	var answer any
	if h.cfg.Busy != nil {
		answer = h.cfg.Busy(ctx, msg, v)
	}
	if h.cfg.Unordered || len(h.queue) == 0 {
		return h.write(ctx, answer)
	}
	h.push(ctx, entry{refused: true, answer: answer})
	return nil
}

// isUnix reports whether the peer is a Unix socket; a peer without an address may also be one that nobody knows.
func isUnix(ctx *pipeline.Context) bool {
	addr := ctx.RemoteAddr()
	return addr != nil && addr.Network() == "unix"
}

func (h *Handler) push(ctx *pipeline.Context, e entry) {
	h.queue = append(h.queue, e)
	if len(h.queue) >= h.cfg.MaxWaiting && !h.paused {
		h.paused = true
		ctx.Pause()
	}
}

// Write passes a response on, and then the refusals that were waiting for it.
func (h *Handler) Write(ctx *pipeline.Context, msg any) error {
	if err := ctx.Write(msg); err != nil {
		return err
	}
	if h.cfg.Response != nil && !h.cfg.Response(msg) || len(h.queue) == 0 {
		return nil
	}
	h.cfg.Ledger.Give(h.pop().claim)
	for len(h.queue) > 0 && h.queue[0].refused {
		if err := h.write(ctx, h.pop().answer); err != nil {
			return err
		}
	}
	if h.paused && len(h.queue) <= h.cfg.MaxWaiting/2 {
		h.paused = false
		ctx.Resume()
	}
	return nil
}

func (h *Handler) pop() entry {
	e := h.queue[0]
	h.queue[0] = entry{}
	h.queue = h.queue[1:]
	if len(h.queue) == 0 {
		h.queue = nil
	}
	return e
}

func (h *Handler) write(ctx *pipeline.Context, answer any) error {
	if answer == nil {
		return nil
	}
	return ctx.Write(answer)
}

// HandlerRemoved gives back what requests without a response have taken.
func (h *Handler) HandlerRemoved(*pipeline.Context) error {
	for _, e := range h.queue {
		if !e.refused {
			h.cfg.Ledger.Give(e.claim)
		}
	}
	h.queue = nil
	return nil
}
