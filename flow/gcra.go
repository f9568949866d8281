package flow

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// GCRAConfig configures a GCRA.
type GCRAConfig struct {
	// Rate is how many are admitted per second in the long run: above 0, at most 1e9.
	Rate float64
	// Burst is how many are admitted at once: at least 1. Zero means 1.
	Burst int64
}

// GCRA is the generic cell rate algorithm (ITU-T I.371, annex A): a rate limit whose whole state is one time, that of
// the next arrival in a perfectly even stream. An arrival may be ahead of that by Burst-1 intervals. Refusing changes
// nothing, and it says when it would admit. Any goroutine may call its methods, with a clock that all of them share.
type GCRA struct {
	interval  int64 // nanoseconds between arrivals at Rate
	tolerance int64 // how far ahead of its time one may come
	next      atomic.Int64
}

// NewGCRA returns a GCRA that has admitted nothing. The error wraps ErrConfig.
func NewGCRA(cfg GCRAConfig) (*GCRA, error) {
	if cfg.Burst == 0 {
		cfg.Burst = 1
	}
	interval := math.Round(1e9 / cfg.Rate)
	if !(cfg.Rate > 0 && cfg.Rate <= 1e9) || cfg.Burst < 1 || float64(cfg.Burst)*interval > math.MaxInt64/4 {
		return nil, fmt.Errorf("flow: GCRA with rate %v/s and burst %d: want a rate above 0 and up to 1e9, a burst from 1 "+
			"and less than 73 years for it: %w", cfg.Rate, cfg.Burst, ErrConfig)
	}
	g := &GCRA{interval: int64(interval), tolerance: (cfg.Burst - 1) * int64(interval)}
	g.next.Store(math.MinInt64 / 2)
	return g, nil
}

// Admit reports whether one more is admitted at now. Where not, it says after what time it would be, if nobody else is
// before that.
func (g *GCRA) Admit(now time.Duration) (wait time.Duration, ok bool) {
	for {
		next := g.next.Load()
		if early := next - int64(now); early > g.tolerance {
			return time.Duration(early - g.tolerance), false
		}
		if g.next.CompareAndSwap(next, max(next, int64(now))+g.interval) {
			return 0, true
		}
	}
}
