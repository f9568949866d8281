package flow

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// TokenBucketConfig configures a TokenBucket. The unit of a token is the caller's, usually a byte.
type TokenBucketConfig struct {
	// Rate is how many tokens are added per second: at least 1.
	Rate int64
	// Capacity is how many tokens the bucket holds, which bounds a burst. Zero means Rate: what a second adds.
	Capacity int64
}

// TokenBucket grants at most Capacity tokens at once and Rate tokens a second in the long run. It counts billionths of
// tokens as integers, so however often it is asked, no fraction is lost and none is granted twice. It belongs to one
// goroutine.
//
// It adds nothing while its clock stands still and fills up, no further, when that jumps ahead. When the clock goes
// backwards nothing is added, and nothing taken away, until it has passed the latest time it ever showed: time that
// comes twice counts once.
type TokenBucket struct {
	rate, capacity int64
	tokens         int64  // ≤ capacity; negative: debt
	nanos          uint64 // of the next token: 0 … 1e9-1; 0 when the bucket is full
	at             time.Duration
}

const nanosPerToken = 1_000_000_000 // equal to the nanoseconds of a second: each nanosecond adds Rate nanos

// NewTokenBucket returns a full bucket. now is the time from which on tokens are added. The error wraps ErrConfig.
func NewTokenBucket(cfg TokenBucketConfig, now time.Duration) (*TokenBucket, error) {
	if cfg.Capacity == 0 {
		cfg.Capacity = cfg.Rate
	}
	if cfg.Rate < 1 || cfg.Capacity < 1 {
		return nil, fmt.Errorf("flow: token bucket with rate %d/s and capacity %d, want at least 1: %w",
			cfg.Rate, cfg.Capacity, ErrConfig)
	}
	return &TokenBucket{rate: cfg.Rate, capacity: cfg.Capacity, tokens: cfg.Capacity, at: now}, nil
}

// Take takes up to n tokens and returns how many: min(n, Available), or 0 when that is negative.
func (b *TokenBucket) Take(now time.Duration, n int64) int64 {
	b.refill(now)
	granted := max(0, min(n, b.tokens))
	b.tokens -= granted
	return granted
}

// Charge takes n tokens even where there are fewer: what is missing is debt, which the time to come pays first. It is
// for what happened before it could be asked for, such as a read that overshot its grant. A negative n does nothing.
// Debt ends at -2^63.
func (b *TokenBucket) Charge(now time.Duration, n int64) {
	b.refill(now)
	if n <= 0 {
		return
	}
	if b.tokens < math.MinInt64+n {
		b.tokens = math.MinInt64
		return
	}
	b.tokens -= n
}

// Refund gives back n tokens that were taken and not used. The bucket does not become more than full. A negative n does
// nothing.
func (b *TokenBucket) Refund(n int64) {
	if n > 0 {
		b.add(uint64(n), b.nanos)
	}
}

// Available is how many tokens are there at now; negative while there is debt.
func (b *TokenBucket) Available(now time.Duration) int64 {
	b.refill(now)
	return b.tokens
}

// Wait is how long it takes from now until n tokens are there if nobody takes any: exactly, to the nanosecond. Since
// the bucket never holds more than its capacity, a larger n waits for a full one. A wait beyond 292 years is told as
// that.
func (b *TokenBucket) Wait(now time.Duration, n int64) time.Duration {
	b.refill(now)
	n = min(n, b.capacity)
	if n <= b.tokens {
		return 0
	}
	// ceil((missing × 1e9 - nanos) / rate); missing is an exact difference also where an int64 would overflow.
	missing := uint64(n) - uint64(b.tokens)
	hi, lo := bits.Mul64(missing, nanosPerToken)
	lo, borrow := bits.Sub64(lo, b.nanos, 0)
	hi -= borrow
	rate := uint64(b.rate)
	if hi >= rate {
		return math.MaxInt64
	}
	wait, rest := bits.Div64(hi, lo, rate)
	if rest > 0 {
		wait++
	}
	return time.Duration(min(wait, math.MaxInt64))
}

// refill adds what the time since the last call is worth. A clock that goes backwards adds nothing and takes nothing.
func (b *TokenBucket) refill(now time.Duration) {
	if now <= b.at {
		return
	}
	elapsed := uint64(now) - uint64(b.at) // exact also from a very negative to a very positive time
	b.at = now
	if b.tokens == b.capacity {
		return
	}
	hi, lo := bits.Mul64(elapsed, uint64(b.rate))
	lo, carry := bits.Add64(lo, b.nanos, 0)
	hi += carry
	if hi >= nanosPerToken {
		b.tokens, b.nanos = b.capacity, 0 // more than 2^64 tokens
		return
	}
	whole, nanos := bits.Div64(hi, lo, nanosPerToken)
	b.add(whole, nanos)
}

// add adds tokens and sets the fraction, unless the bucket is full before.
func (b *TokenBucket) add(whole, nanos uint64) {
	if room := uint64(b.capacity) - uint64(b.tokens); whole >= room {
		b.tokens, b.nanos = b.capacity, 0
		return
	}
	b.tokens += int64(whole)
	b.nanos = nanos
}
