// Package idle tells handlers when nothing has been received, sent, or either, for a time.
//
// It costs one call per batch of reads and one per flush, nothing per message: they note the time, and one timer per
// channel looks at the notes. A kind that is not configured causes no timer. Put the handler first, nearest to the
// socket.
//
// Receiving. Any bytes from the peer are activity, also those that do not complete a message. A peer whose bytes nobody
// reads is not idle: while a handler pauses reading the reader's clock stands still, and it starts anew with the
// resume. (A grant of nothing is no pause: a limiter that withholds grants for longer than Reader has to pause as
// well.) After the peer's FIN there is nothing to wait for, and no Reader event comes.
//
// Sending. Activity is bytes that the kernel takes, not writes that queue behind others. While something is pending the
// handler looks more often, eight times per period: everything sent that was queued when it last looked, or more that
// the peer has acknowledged, is progress. So a peer that reads slowly is not one that does not read, although the
// kernel may take nothing for as long as a large buffer of its own is full. An event may be late by that eighth, the
// first one of a stall, under continued writing or while the kernel still has something to deliver, by one period.
package idle

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/pipeline"
)

// ErrConfig is what New returns for a configuration that makes no sense.
var ErrConfig = errors.New("idle: bad configuration")

// Kind is what has not happened.
type Kind uint8

const (
	Reader Kind = iota // nothing was received
	Writer             // nothing was sent
	All                // neither
	kinds
)

// String returns "reader", "writer" or "all".
func (k Kind) String() string {
	switch k {
	case Reader:
		return "reader"
	case Writer:
		return "writer"
	case All:
		return "all"
	}
	return fmt.Sprintf("idle.Kind(%d)", uint8(k))
}

// Event is fired as *Event, which is valid until the handlers have returned.
type Event struct {
	Kind  Kind
	First bool          // since the last activity; others follow after each further period
	Idle  time.Duration // since the last activity, as far as is known
}

// Config tells after how long of which kind to fire. Zero: never. One of them has to be set.
type Config struct {
	Reader time.Duration
	Writer time.Duration
	All    time.Duration
}

// looks is how many times per period a channel with pending output is looked at.
const looks = 8

// Handler fires an Event for each period without activity. It belongs to its channel's loop and stands in one pipeline.
type Handler struct {
	clocks [kinds]clock
	home   *pipeline.Context // its place, also when it has left
	timer  pipeline.Timer    // nil until the channel is active

	read    time.Duration // of the last bytes received
	sent    time.Duration // of the last bytes known to be sent
	flushed time.Duration // of the last flush while not watching: what it sent has left, if nothing is pending
	pending int           // when last looked
	acked   uint64        // when last looked

	watching   bool // a Flushed callback is out, and only progress counts
	delivering bool // when last looked, the kernel had something that the peer had not acknowledged
	readClosed bool
	event      Event
	whenSent   func(error) // made once
}

// clock is one kind of idleness.
type clock struct {
	period time.Duration // zero: never
	active time.Duration // of the last activity
	base   time.Duration // from where the period runs: the last activity or event
	again  bool          // an event was fired since the last activity
}

var (
	_ pipeline.AddedHandler        = (*Handler)(nil)
	_ pipeline.ActiveHandler       = (*Handler)(nil)
	_ pipeline.ReadCompleteHandler = (*Handler)(nil)
	_ pipeline.ReadClosedHandler   = (*Handler)(nil)
	_ pipeline.FlushHandler        = (*Handler)(nil)
	_ pipeline.RemovedHandler      = (*Handler)(nil)
)

// New returns a handler for one channel.
func New(cfg Config) (*Handler, error) {
	if cfg.Reader < 0 || cfg.Writer < 0 || cfg.All < 0 || cfg == (Config{}) {
		return nil, fmt.Errorf("%w: reader %v, writer %v, all %v", ErrConfig, cfg.Reader, cfg.Writer, cfg.All)
	}
	h := &Handler{}
	h.clocks[Reader].period, h.clocks[Writer].period, h.clocks[All].period = cfg.Reader, cfg.Writer, cfg.All
	return h, nil
}

// HandlerAdded starts the clocks when the channel is active already.
func (h *Handler) HandlerAdded(ctx *pipeline.Context) error {
	if h.whenSent != nil {
		return fmt.Errorf("%w: a handler stands in one pipeline, once", ErrConfig)
	}
	h.home = ctx
	h.whenSent = func(err error) {
		h.watching = false
		if err == nil && h.timer != nil {
			h.sent = max(h.sent, ctx.Now())
		}
	}
	if ctx.Active() {
		h.start(ctx)
	}
	return nil
}

// ChannelActive starts the clocks.
func (h *Handler) ChannelActive(ctx *pipeline.Context) error {
	h.start(ctx)
	ctx.FireActive()
	return nil
}

// ChannelReadComplete follows each batch of received bytes, and each resume.
func (h *Handler) ChannelReadComplete(ctx *pipeline.Context) error {
	h.read = ctx.Now()
	ctx.FireReadComplete()
	return nil
}

// ChannelReadClosed stops the reader's clock.
func (h *Handler) ChannelReadClosed(ctx *pipeline.Context) error {
	h.readClosed = true
	ctx.FireReadClosed()
	return nil
}

// Flush sees what the kernel takes at once.
func (h *Handler) Flush(ctx *pipeline.Context) error {
	if h.timer == nil || h.clocks[Writer].period == 0 && h.clocks[All].period == 0 {
		return ctx.Flush()
	}
	before := ctx.Pending()
	err := ctx.Flush()
	now := ctx.Pending()
	switch {
	case now < before, before < h.pending:
		h.sent = ctx.Now()
	case before > 0 && !h.watching:
		h.flushed = ctx.Now()
	}
	h.pending = now
	return err
}

// HandlerRemoved stops the timer.
func (h *Handler) HandlerRemoved(ctx *pipeline.Context) error {
	if ctx == h.home && h.timer != nil { // else it was refused a second place
		h.timer.Stop()
		h.timer = nil
	}
	return nil
}

// ResetReader makes now the time of the last receive, as if there had been one.
func (h *Handler) ResetReader(ctx *pipeline.Context) { h.read = ctx.Now() }

// ResetWriter makes now the time of the last send.
func (h *Handler) ResetWriter(ctx *pipeline.Context) { h.sent = ctx.Now() }

func (h *Handler) start(ctx *pipeline.Context) {
	if h.timer != nil {
		return
	}
	now := ctx.Now()
	h.read, h.sent = now, now
	for i := range h.clocks {
		h.clocks[i].active, h.clocks[i].base = now, now
	}
	h.timer = ctx.NewTimer(h.look)
	h.timer.Reset(h.next(now))
}

// look fires what is due and sets the timer for what is next.
func (h *Handler) look(ctx *pipeline.Context) error {
	if !ctx.Open() {
		return nil // a close has its own deadline
	}
	now := ctx.Now()
	if !ctx.Reading() {
		h.read = now
	}
	h.lookAtOutput(ctx, now)
	for k := range kinds {
		c := &h.clocks[k]
		if c.period == 0 || k == Reader && h.readClosed {
			continue
		}
		if last := h.last(k); last > c.active {
			c.active, c.base, c.again = last, max(c.base, last), false
		}
		if now-c.base < c.period {
			continue
		}
		h.event = Event{Kind: k, First: !c.again, Idle: now - c.active}
		c.base, c.again = now, true
		ctx.FireEvent(&h.event)
		if h.timer == nil || !ctx.Open() {
			return nil
		}
	}
	if next := h.next(now); next > 0 {
		h.timer.Reset(next)
	}
	return nil
}

// lookAtOutput notices what has been sent, and taken by the peer, since the last look. While something is pending it
// keeps a Flushed callback out.
func (h *Handler) lookAtOutput(ctx *pipeline.Context, now time.Duration) {
	if h.clocks[Writer].period == 0 && h.clocks[All].period == 0 {
		return
	}
	pending := ctx.Pending()
	acked, left := ctx.Acked()
	switch {
	case (h.watching || h.delivering || pending > 0) && acked != h.acked:
		h.sent = now // with nothing pending it may be long ago
	case !h.delivering && left > 0: // when the peer took the last of it is not known
		h.sent = now
	case !h.watching: // between the last flush and now; a stall begins at the earliest with the flush
		h.sent = max(h.sent, h.flushed)
	}
	h.pending, h.acked, h.delivering = pending, acked, left > 0
	if pending > 0 && !h.watching {
		h.watching = true
		ctx.Flushed(h.whenSent)
	}
}

// last is when the activity was that keeps k from firing.
func (h *Handler) last(k Kind) time.Duration {
	switch k {
	case Reader:
		return h.read
	case Writer:
		return h.sent
	}
	return max(h.read, h.sent)
}

// next is how long the timer may sleep; 0: for good, because only Reader is configured and the peer has finished.
func (h *Handler) next(now time.Duration) time.Duration {
	var next time.Duration
	for k := range kinds {
		c := &h.clocks[k]
		if c.period == 0 || k == Reader && h.readClosed {
			continue
		}
		d := max(c.base, h.last(k)) + c.period - now
		if (h.watching || h.delivering) && k != Reader {
			d = min(d, c.period/looks)
		}
		if next == 0 || d < next {
			next = max(d, 1)
		}
	}
	return next
}
