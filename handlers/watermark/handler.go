package watermark

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/pipeline"
)

// Handler holds one channel at its level. It stands before what decodes, so that it sees what was read as it came. It
// belongs to the channel's loop; Level and Stats may be read by any goroutine.
type Handler struct {
	cfg    Config
	ctx    *pipeline.Context
	own    flow.Level        // of what is pending
	bucket *flow.TokenBucket // nil: no bound
	got    int64             // bytes read and not yet charged to it

	level  Level        // now
	public atomic.Int32 // the same, for other goroutines
	told   Level        // by the last Change
	over   int          // pending, when it was last found above the hard limit; 0: it is not
	overAt uint64       // Outgoing, then
	since  time.Duration
	paused bool

	subs      []sub
	highSubs  int                                // how many of subs are high
	inputs    int                                // how many Inputs are high
	followers []*Input                           // of others
	follows   []*Input                           // of h
	marks     [2]int                             // what is watched for
	watcher   func(*pipeline.Context, int) error // pendingChanged, made once
	change    Change
}

var (
	_ pipeline.ReadHandler     = (*Handler)(nil)
	_ pipeline.GrantHandler    = (*Handler)(nil)
	_ pipeline.ResumeHandler   = (*Handler)(nil)
	_ pipeline.InactiveHandler = (*Handler)(nil)
	_ pipeline.AddedHandler    = (*Handler)(nil)
	_ pipeline.RemovedHandler  = (*Handler)(nil)
)

// New returns a Handler for one channel. The error wraps ErrConfig.
func New(cfg Config) (*Handler, error) {
	d, level, err := cfg.settle()
	if err != nil {
		return nil, err
	}
	h := &Handler{cfg: d, own: level}
	h.watcher = h.pendingChanged
	if d.RateBytesPerSecond > 0 {
		h.bucket, err = flow.NewTokenBucket(flow.TokenBucketConfig{Rate: d.RateBytesPerSecond, Capacity: d.BurstBytes}, 0)
		if err != nil {
			return nil, fmt.Errorf("watermark: rate: %w", err)
		}
	}
	if d.Stats == nil {
		h.cfg.Stats = &Stats{}
	}
	if len(d.Shared) > 0 {
		h.subs = make([]sub, len(d.Shared))
		for i, s := range d.Shared {
			h.subs[i] = sub{h: h, shared: s}
		}
	}
	return h, nil
}

// Level is the level now. Any goroutine.
func (h *Handler) Level() Level { return Level(h.public.Load()) }

// Stats are those of the Config, or the handler's own. Any goroutine.
func (h *Handler) Stats() *Stats { return h.cfg.Stats }

// HandlerAdded begins to watch.
func (h *Handler) HandlerAdded(ctx *pipeline.Context) error {
	if h.ctx != nil {
		return fmt.Errorf("watermark: add %q: a Handler is for one channel and once: %w", ctx.Name(), ErrPlace)
	}
	h.ctx = ctx
	h.since = ctx.Now()
	for i := range h.subs {
		h.subs[i].subscribe(ctx)
	}
	h.settle(ctx.Pending()) // an Input may be high already
	h.watch()
	return nil
}

// HandlerRemoved ends all that it watches.
func (h *Handler) HandlerRemoved(ctx *pipeline.Context) error {
	if h.ctx != ctx {
		return nil // it could not be added
	}
	for i := range h.subs {
		h.subs[i].unsubscribe()
	}
	h.highSubs = 0
	h.end(ctx, Closed)
	return nil
}

// ChannelInactive makes the level Closed, where it is not OverLimit.
func (h *Handler) ChannelInactive(ctx *pipeline.Context) error {
	h.end(ctx, Closed)
	h.tell(ctx)
	ctx.FireInactive()
	return nil
}

// ChannelRead passes msg on and looks at what became of it. It borrows msg until return.
func (h *Handler) ChannelRead(ctx *pipeline.Context, msg any) error {
	if h.level != Normal && !h.admit() {
		return nil
	}
	if b, ok := msg.(*buffer.Buf); ok {
		h.got += int64(b.Len())
		for i := range h.subs {
			h.subs[i].credit -= b.Len()
		}
	}
	if h.sharedHigh(true) && h.level == Normal {
		h.settle(ctx.Pending()) // now, so that what decodes keeps it
	}
	ctx.FireRead(msg)
	h.look(false)
	return nil
}

// ChannelResume tells what has changed, and passes the resume on by returning.
func (h *Handler) ChannelResume(ctx *pipeline.Context) error {
	h.look(false)
	h.tell(ctx)
	return nil
}

// admit reports whether one more message may be dealt with: the hard limit is judged without it.
func (h *Handler) admit() bool {
	if h.level >= OverLimit {
		return h.removed()
	}
	if p := h.ctx.Pending(); p > h.cfg.HardLimitBytes {
		h.overLimit(p)
		return false
	}
	return true
}

// removed tells that h was taken out of a channel that lives on: it has no say any more.
func (h *Handler) removed() bool { return h.level == Closed && h.ctx.Open() }

// look brings the level in line with what is pending and watched. It is called after whatever may have changed it. amid
// is as for sharedHigh.
func (h *Handler) look(amid bool) {
	if h.level >= OverLimit {
		return
	}
	shared, p := h.sharedHigh(amid), h.ctx.Pending()
	if p < h.cfg.HighBytes && h.level == Normal && !shared {
		return
	}
	h.settle(p)
	h.tell(h.ctx)
}

// pendingChanged is look at the end of a turn that found p bytes pending, beyond what is watched for.
func (h *Handler) pendingChanged(_ *pipeline.Context, p int) error {
	if h.level >= OverLimit {
		return nil
	}
	switch out := h.ctx.Outgoing(); {
	case p <= h.cfg.HardLimitBytes:
		h.over = 0
	case h.over > 0 && p > h.over && out > h.overAt:
		h.overLimit(p) // something was written when the limit had been exceeded
		return nil
	default:
		h.over, h.overAt = p, out // the newest message may do that, also when it was posted and becomes blocks
	}
	h.sharedHigh(false)
	h.settle(p)
	h.tell(h.ctx)
	h.watch()
	return nil
}

// settle makes the level what it has to be with p bytes pending. It fires nothing: it is called from where no handler
// may run.
func (h *Handler) settle(p int) {
	crossed := h.own.Set(p)
	switch crossed {
	case flow.Rose:
		h.follow(true)
	case flow.Fell:
		h.follow(false)
	}
	want := Normal
	if h.reason() != ReasonNone {
		want = High
	}
	if want == h.level {
		if crossed != flow.Stayed {
			h.watch() // its fall is the next thing to learn, although the level is what something else makes it
		}
		return
	}
	h.set(want)
	stats := h.cfg.Stats
	if want == High {
		h.since = h.ctx.Now()
		stats.pauses.Add(1)
		if !h.cfg.KeepReading {
			h.paused = true
			h.ctx.Pause()
		}
	} else {
		stats.highNanos.Add(int64(h.ctx.Now() - h.since))
		stats.resumes.Add(1)
		if h.paused {
			h.paused = false
			h.ctx.Resume()
		}
		h.ctx.GrantChanged() // it may have been asked in between
	}
	h.watch()
}

// reason is what makes the level high.
func (h *Handler) reason() Reason {
	switch {
	case h.own.High() && len(h.follows) == 0: // else what it reads is not what is pending here
		return ReasonPending
	case h.highSubs > 0:
		return ReasonShared
	case h.inputs > 0:
		return ReasonInput
	}
	return ReasonNone
}

// overLimit closes the channel. What is queued is lost: nobody takes it, and its memory is what is too much.
func (h *Handler) overLimit(p int) {
	h.cfg.Stats.overLimits.Add(1)
	h.end(h.ctx, OverLimit)
	h.change.PendingBytes = p
	h.tell(h.ctx)
	h.ctx.Abort(fmt.Errorf("watermark: write with %d bytes pending, limit %d: %w", p, h.cfg.HardLimitBytes, ErrOverLimit))
}

// end makes the level a terminal one, unless it is.
func (h *Handler) end(ctx *pipeline.Context, to Level) {
	if h.level >= OverLimit {
		return
	}
	if h.level == High {
		h.cfg.Stats.highNanos.Add(int64(ctx.Now() - h.since))
	}
	h.set(to)
	h.unfollow()
	if to == OverLimit && !h.paused {
		h.paused = true
		ctx.Pause() // nothing is emitted any more
	}
}

func (h *Handler) set(l Level) {
	h.level = l
	h.public.Store(int32(l))
}

// tell fires the Change since it was last told.
func (h *Handler) tell(ctx *pipeline.Context) {
	if h.told == h.level {
		return
	}
	h.change.From, h.change.To, h.change.Reason = h.told, h.level, ReasonNone
	if h.level != OverLimit {
		h.change.PendingBytes = ctx.Pending()
	}
	if h.level == High || h.level == OverLimit {
		h.change.Reason = h.reason()
	}
	h.told = h.level
	ctx.FireEvent(&h.change)
}

// watch asks to be told at the end of a turn when pending gets where something changes.
func (h *Handler) watch() {
	low, high := -1, h.cfg.HighBytes
	switch {
	case h.level >= OverLimit:
		return
	case h.told != h.level:
		low, high = math.MaxInt, 0 // the end of this turn tells
	case h.over > 0:
		low, high = h.over-1, h.over+1
	case h.own.High():
		low, high = h.cfg.LowBytes, h.cfg.HardLimitBytes+1
	}
	if h.marks != [2]int{low, high} {
		h.marks = [2]int{low, high}
		h.ctx.WatchPending(low, high, h.watcher)
	}
}
