package sys

import "time"

// Clock reads monotonic time. Any goroutine may use it.
type Clock struct {
	start time.Time
}

// NewClock returns a Clock that starts at zero now.
func NewClock() Clock { return Clock{start: time.Now()} }

// Now is the time since NewClock. It reads CLOCK_MONOTONIC through the vDSO: no system call.
func (c Clock) Now() time.Duration { return time.Since(c.start) }
