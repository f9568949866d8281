package flow

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// BackoffConfig configures a Backoff. The zero value works.
type BackoffConfig struct {
	// Initial is the first delay. Zero means 50 ms.
	Initial time.Duration
	// Max bounds every delay. Zero means 5 s.
	Max time.Duration
	// Rand, when set, shortens delays by chance, so that many who failed together do not try again together. It belongs
	// to the same goroutine as the Backoff.
	Rand *rand.Rand
	// Jitter is the part of a delay that is left to chance, above 0 and at most 1: a delay d becomes one of
	// [d-Jitter*d, d]. Zero means 1 ("full jitter": Brooker, Exponential Backoff And Jitter, AWS Architecture Blog,
	// 2015). Unused without Rand.
	Jitter float64
}

// Backoff returns how long to wait before the next attempt: twice as long after each failure, up to Max. It belongs to
// one goroutine.
type Backoff struct {
	cfg  BackoffConfig
	next time.Duration
}

// NewBackoff returns a Backoff whose next delay is the initial one. The error wraps ErrConfig.
func NewBackoff(cfg BackoffConfig) (*Backoff, error) {
	if cfg.Initial == 0 {
		cfg.Initial = 50 * time.Millisecond
	}
	if cfg.Max == 0 {
		cfg.Max = max(5*time.Second, cfg.Initial)
	}
	if cfg.Jitter == 0 {
		cfg.Jitter = 1
	}
	if cfg.Initial < 0 || cfg.Max < cfg.Initial || !(cfg.Jitter > 0 && cfg.Jitter <= 1) {
		return nil, fmt.Errorf("flow: backoff from %v to %v with jitter %v, want 0 < initial <= max, 0 < jitter <= 1: %w",
			cfg.Initial, cfg.Max, cfg.Jitter, ErrConfig)
	}
	return &Backoff{cfg: cfg, next: cfg.Initial}, nil
}

// Next returns how long to wait after a failure.
func (b *Backoff) Next() time.Duration {
	d := b.next
	if b.next > b.cfg.Max/2 {
		b.next = b.cfg.Max
	} else {
		b.next *= 2
	}
	if b.cfg.Rand == nil {
		return d
	}
	span := d
	if b.cfg.Jitter < 1 {
		span = min(d, time.Duration(b.cfg.Jitter*float64(d))) // float64(d) may be above d
	}
	return d - time.Duration(b.cfg.Rand.Uint64N(uint64(span)+1))
}

// Reset makes the next delay the initial one: after a success.
func (b *Backoff) Reset() { b.next = b.cfg.Initial }
