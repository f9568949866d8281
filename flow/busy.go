package flow

import (
	"fmt"
	"time"
)

// Class is how important a request is: 0 is the most important, larger ones are refused first. Exempt ones, such as
// health checks, are never refused: who refuses them has a healthy server taken out of service, and its load falls on
// the others.
type Class uint8

// Exempt is the class of what is never refused for load.
const Exempt Class = 255

// String returns "exempt" or the number.
func (c Class) String() string {
	if c == Exempt {
		return "exempt"
	}
	return fmt.Sprintf("%d", uint8(c))
}

const (
	// MinRetryAfter is the least hint of RetryHint.
	MinRetryAfter = 10 * time.Millisecond
	// MaxRetryAfter is its largest.
	MaxRetryAfter = 5 * time.Second
)

// Busy is the answer to a request that is not served now, whatever the protocol: its codec makes of it 503 with
// Retry-After, REFUSED_STREAM, a push-back or an error reply. It is an error, so that a client can find it with
// errors.As. It is a plain value; who holds it may read it from any goroutine.
type Busy struct {
	// RetryAfter is how long to wait before trying again, at least. Zero: no hint.
	RetryAfter time.Duration
	// Shed tells that the request was refused to save the server. Otherwise it was over a quota of its sender's, which
	// another server refuses as well: the difference between 503 and 429 (RFC 9110, section 15.6.4; RFC 6585, section
	// 4).
	Shed bool
	// Class is the class of the request that was refused.
	Class Class
}

// Error names the reason, the class and the hint.
func (b *Busy) Error() string {
	reason := "over quota"
	if b.Shed {
		reason = "overloaded"
	}
	if b.RetryAfter <= 0 {
		return fmt.Sprintf("flow: %s, class %v", reason, b.Class)
	}
	return fmt.Sprintf("flow: %s, class %v, retry after %v", reason, b.Class, b.RetryAfter)
}

// RetryHint returns when somebody who is refused might try again where what waits is served after drain: drain times
// 0.5 to 1.5, so that those who were refused together do not come back together, between MinRetryAfter and
// MaxRetryAfter. chance is drawn evenly from [0, 1).
func RetryHint(drain time.Duration, chance float64) time.Duration {
	if drain >= 2*MaxRetryAfter {
		return MaxRetryAfter - time.Duration(chance*float64(MaxRetryAfter)/2)
	}
	hint := time.Duration(float64(drain) * (0.5 + chance))
	return min(max(hint, MinRetryAfter), MaxRetryAfter)
}
