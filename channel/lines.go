package channel

import (
	"github.com/weirnet/weir/flow"
)

// How many lines the channels of a listener, or of a dial, log about their handlers' failures.
const (
	linesPerSecond = 10
	linesAtOnce    = 100
)

// lineLimit keeps a peer that makes handlers fail from filling the log. It belongs to the loop of its settings.
type lineLimit struct {
	bucket  *flow.TokenBucket // nil: nothing has been logged
	omitted int
}

// logError logs a line unless there have been too many of late. How many were left out stands in the next one.
func (c *Channel) logError(msg string, args ...any) {
	l, now := &c.cfg.lines, c.loop.Now()
	if l.bucket == nil {
		cfg := flow.TokenBucketConfig{Rate: linesPerSecond, Capacity: linesAtOnce}
		bucket, err := flow.NewTokenBucket(cfg, now)
		if err != nil {
			panic(err) // constants
		}
		l.bucket = bucket
	}
	if l.bucket.Take(now, 1) == 0 {
		l.omitted++
		return
	}
	if l.omitted > 0 {
		args = append(args, "omitted", l.omitted)
		l.omitted = 0
	}
	c.logger().Error(msg, args...)
}
