package watermark

import (
	"time"

	"github.com/weirnet/weir/pipeline"
)

// quantaPerSecond bounds how often an empty bucket is asked again: a receive is worth its system call.
const quantaPerSecond = 64

// ReadGrant returns how much may be read: the budget, half of it from half of HighBytes on, nothing at High, never more
// than the rate and the shared levels allow.
func (h *Handler) ReadGrant(ctx *pipeline.Context) (n int, retry time.Duration) {
	if h.level >= OverLimit {
		return 0, 0
	}
	p := ctx.Pending()
	if h.sharedHigh(false) || p >= h.cfg.HighBytes || h.level != Normal {
		h.settle(p) // the end of the turn tells
	}
	if h.paused {
		return 0, 0 // until the level falls
	}
	n = h.cfg.BudgetBytes
	if p >= h.cfg.HighBytes/2 || h.level != Normal {
		n = max(1, n/2)
	}
	if h.bucket != nil && !h.cfg.KeepReading {
		if n, retry = h.allowed(ctx.Now(), n); n == 0 {
			return 0, retry
		}
	}
	if !h.inTurn() {
		return 0, 0 // until it is
	}
	for i := range h.subs {
		n = h.subs[i].reserve(n)
	}
	return n, 0
}

// allowed returns how much of n the rate allows now, or when to ask again. What is granted is charged once it has come.
func (h *Handler) allowed(now time.Duration, n int) (int, time.Duration) {
	h.bucket.Charge(now, h.got)
	h.got = 0
	have := h.bucket.Available(now)
	if have >= int64(n) {
		return n, 0
	}
	quantum := min(int64(n), max(1, h.cfg.RateBytesPerSecond/quantaPerSecond))
	if h.cfg.BurstBytes > 0 {
		quantum = min(quantum, h.cfg.BurstBytes)
	}
	if have < quantum {
		return 0, max(1, h.bucket.Wait(now, quantum))
	}
	return int(have), 0
}
