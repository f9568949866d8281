package weir

import (
	"context"
	"log/slog"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/flow"
)

// LogClosed says which ends of connections a Server logs.
type LogClosed int

// What a Server logs of the ends of its connections, to its Logger, with the peer, the channel's ID and the cause. A
// loop logs 10 of them per second, and 100 at once; how many it has left out stands in its next line, so that no peer
// can fill the log.
const (
	// LogClosedOff logs nothing.
	LogClosedOff LogClosed = iota
	// LogClosedErrors logs the ends that have a cause: resets, timeouts, limits, errors of handlers.
	LogClosedErrors
	// LogClosedAll logs the orderly ends, too.
	LogClosedAll
)

const (
	closedLinesPerSecond = 10
	closedLinesAtOnce    = 100
)

// closedLog is a worker's part of LogClosed. It belongs to the loop.
type closedLog struct {
	what    LogClosed
	bucket  *flow.TokenBucket // of lines; nil: nothing has been logged
	omitted int
}

// logClosed tells of the end of a channel.
func (w *worker) logClosed(c *channel.Channel, from origin) {
	l := &w.closedLog
	cause := c.Cause()
	if l.what == LogClosedOff || l.what == LogClosedErrors && cause == nil {
		return
	}
	now := w.loop.Now()
	if l.bucket == nil {
		cfg := flow.TokenBucketConfig{Rate: closedLinesPerSecond, Capacity: closedLinesAtOnce}
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
	level, attrs := slog.LevelInfo, make([]slog.Attr, 0, 5)
	attrs = append(attrs, slog.Any("remote", c.RemoteAddr()), slog.Uint64("channel", c.ID()))
	if cause != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("cause", cause))
	}
	if from == fromDial {
		attrs = append(attrs, slog.Bool("dialed", true))
	}
	if l.omitted > 0 {
		attrs = append(attrs, slog.Int("omitted", l.omitted))
		l.omitted = 0
	}
	w.loop.Logger().LogAttrs(context.Background(), level, "weir: connection closed", attrs...)
}

// tellOmitted ends the log.
func (w *worker) tellOmitted() {
	if n := w.closedLog.omitted; n > 0 {
		w.closedLog.omitted = 0
		w.loop.Logger().Info("weir: connections closed", "omitted", n)
	}
}
