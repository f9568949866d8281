package flow

import (
	"fmt"
	"math"
	"time"
)

// CoDelConfig configures a CoDel. The zero value works.
type CoDelConfig struct {
	// Target is how long one may wait in the queue for good. Zero means 5 ms.
	Target time.Duration
	// Interval is how long a wait above Target is taken for a burst. Zero means 100 ms, or Target where that is more.
	Interval time.Duration
}

// CoDel says which entries of a queue to drop so that waiting in it stays short: none while any entry in an Interval
// has waited less than Target, then one, and more and more often until one waits less again (RFC 8289). It judges how
// long each has waited, not how many wait. It belongs to one goroutine.
type CoDel struct {
	cfg      CoDelConfig
	above    time.Duration // when Interval of waiting above the target will be over
	isAbove  bool
	next     time.Duration // of the next drop
	count    int           // of drops since dropping began
	last     int           // count when dropping began the last time
	dropping bool
}

// NewCoDel returns one that has seen nothing. The error wraps ErrConfig.
func NewCoDel(cfg CoDelConfig) (*CoDel, error) {
	if cfg.Target == 0 {
		cfg.Target = 5 * time.Millisecond
	}
	if cfg.Interval == 0 {
		cfg.Interval = max(100*time.Millisecond, cfg.Target)
	}
	if cfg.Target < 0 || cfg.Interval < cfg.Target {
		return nil, fmt.Errorf("flow: CoDel with target %v and interval %v, want 0 < target <= interval: %w",
			cfg.Target, cfg.Interval, ErrConfig)
	}
	return &CoDel{cfg: cfg}, nil
}

// Drop reports whether to drop an entry that is taken from the queue at now, having waited for waited. left is how many
// stay behind it: the last one is never dropped.
func (c *CoDel) Drop(now, waited time.Duration, left int) bool {
	late := c.late(now, waited, left)
	if c.dropping {
		if !late {
			c.dropping = false
			return false
		}
		if now < c.next {
			return false
		}
		c.count++
		c.next += c.gap()
		return true
	}
	if !late {
		return false
	}
	c.dropping = true
	// Where dropping ended only just now, its rate was about right (RFC 8289, section 4.3).
	if c.count > c.last+1 && now-c.next < 16*c.cfg.Interval {
		c.count -= c.last
	} else {
		c.count = 1
	}
	c.last = c.count
	c.next = now + c.gap()
	return true
}

// Overloaded reports whether waiting was above the target for an Interval, so that the newest entries should be served
// first: the oldest have waited too long anyway.
func (c *CoDel) Overloaded() bool { return c.dropping }

// late reports whether entries have waited above the target for an interval.
func (c *CoDel) late(now, waited time.Duration, left int) bool {
	if waited < c.cfg.Target || left == 0 {
		c.isAbove = false
		return false
	}
	if !c.isAbove {
		c.isAbove, c.above = true, now+c.cfg.Interval
		return false
	}
	return now >= c.above
}

// gap is the time to the next drop.
func (c *CoDel) gap() time.Duration {
	return time.Duration(float64(c.cfg.Interval) / math.Sqrt(float64(c.count)))
}
