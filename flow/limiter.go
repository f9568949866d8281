package flow

import (
	"fmt"
	"math"
	"time"
)

// Limiter says how many requests may be under way at an upstream at once. It learns from each that ends: use it for
// what has a round trip that the upstream's load decides, which is a connect or a request with its response. The
// "round trip" of a receive, an accept or a single send is how long the peer is idle, from which nothing can be
// learned.
//
// A Limiter belongs to one goroutine, and reads no clock: the times come from who asks.
type Limiter interface {
	// Limit is how many may be under way now: at least 1.
	Limit() int
	// Done tells of a request that has ended at now, after it was under way for took. inFlight is how many were under
	// way just before it ended, itself included: where that is far below the limit, its success says nothing about a
	// larger limit. A dropped one was refused by the upstream or ran into its time limit; ones that failed otherwise,
	// or were given up by who asked, must not be told.
	Done(now, took time.Duration, inFlight int, dropped bool)
}

// MaxLimit is the largest limit that a limiter may be configured for.
const MaxLimit = 1 << 20

// Fixed is a Limiter that learns nothing.
type Fixed int

// NewFixed returns a limit of n, from 1 to MaxLimit. The error wraps ErrConfig.
func NewFixed(n int) (Fixed, error) {
	if n < 1 || n > MaxLimit {
		return 0, fmt.Errorf("flow: fixed limit %d, want 1 to %d: %w", n, MaxLimit, ErrConfig)
	}
	return Fixed(n), nil
}

// Limit is the number.
func (f Fixed) Limit() int { return int(f) }

// Done does nothing.
func (f Fixed) Done(time.Duration, time.Duration, int, bool) {}

// WindowConfig configures a Window. The zero value works.
type WindowConfig struct {
	// Initial is the first limit. Zero means 10 (RFC 6928), or Max where that is less.
	Initial int
	// Max bounds the limit. Zero means 1000.
	Max int
	// Backoff is what a loss leaves of the limit: above 0 and below 1. Zero means 0.7 (CUBIC's, RFC 9438, section 4.6).
	Backoff float64
}

// Window is a congestion window as TCP has one (RFC 5681), counted in requests: it doubles in a round trip until the
// first loss (slow start), then grows by one in a round trip (avoidance); a loss takes it to Backoff of what it was,
// once for all that were under way when it happened (recovery). Round trips are counted in requests, not in time: one
// is over when those under way at its beginning have ended. The limit is at least 1, at most Max, and grows only while
// at least half of it is in use. It finds a limit where an upstream refuses; one that queues without end and never
// refuses, it fills up to Max or to the time limit of its requests: use Gradient there.
type Window struct {
	cfg       WindowConfig
	limit     float64
	threshold float64 // slow start below it
	recovery  int     // how many that were under way at the loss have not ended
}

var (
	_ Limiter = Fixed(1)
	_ Limiter = (*Window)(nil)
)

// NewWindow returns a window in slow start. The error wraps ErrConfig.
func NewWindow(cfg WindowConfig) (*Window, error) {
	if cfg.Max == 0 {
		cfg.Max = max(1000, cfg.Initial)
	}
	if cfg.Initial == 0 {
		cfg.Initial = min(10, cfg.Max)
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 0.7
	}
	if cfg.Initial < 1 || cfg.Max < cfg.Initial || cfg.Max > MaxLimit || !(cfg.Backoff > 0 && cfg.Backoff < 1) {
		return nil, fmt.Errorf("flow: window from %d to %d with backoff %v, want 1 <= initial <= max <= %d, "+
			"0 < backoff < 1: %w", cfg.Initial, cfg.Max, cfg.Backoff, MaxLimit, ErrConfig)
	}
	return &Window{cfg: cfg, limit: float64(cfg.Initial), threshold: math.Inf(1)}, nil
}

// Limit is how many may be under way.
func (w *Window) Limit() int { return int(w.limit) }

// Done learns from one that has ended. The times are not used.
func (w *Window) Done(_, _ time.Duration, inFlight int, dropped bool) {
	used := 2*inFlight >= int(w.limit)
	if w.recovery > 0 {
		w.recovery--
		return // it was under way at the loss, or as many that came later were: nothing new
	}
	if dropped {
		w.threshold = max(w.limit*w.cfg.Backoff, 1)
		w.limit = w.threshold
		w.recovery = max(inFlight-1, 0)
		return
	}
	switch {
	case !used:
	case w.limit < w.threshold:
		w.limit++
	default:
		w.limit += 1 / w.limit
	}
	w.limit = min(w.limit, float64(w.cfg.Max))
}
