package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	logEvery = time.Second
	logLines = 10   // of a kind, in logEvery
	logKinds = 1000 // that are remembered
)

// logLimit is a slog.Handler that passes on so many lines with one message in a time: a client that does something
// wrong a thousand times a second must not fill the disk. The next line that is passed on says how many were left out.
type logLimit struct {
	slog.Handler
	state *logState
}

// logState is what handlers made of one logLimit share. Any goroutine.
type logState struct {
	mu    sync.Mutex
	kinds map[string]*logKind
}

type logKind struct {
	since   time.Time
	lines   int
	leftOut int
}

// limitLog returns a logger in front of another one.
func limitLog(logger *slog.Logger) *slog.Logger {
	return slog.New(&logLimit{logger.Handler(), &logState{kinds: map[string]*logKind{}}})
}

// Handle passes r on, or counts it.
func (l *logLimit) Handle(ctx context.Context, r slog.Record) error {
	leftOut, ok := l.state.admit(r.Message, r.Time)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r.AddAttrs(slog.Int("left out before", leftOut))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that has the same bounds.
func (l *logLimit) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logLimit{l.Handler.WithAttrs(attrs), l.state}
}

// WithGroup returns a handler that has the same bounds.
func (l *logLimit) WithGroup(name string) slog.Handler {
	return &logLimit{l.Handler.WithGroup(name), l.state}
}

// admit reports whether a line may pass, and how many were left out before it.
func (s *logState) admit(message string, at time.Time) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[message]
	if k == nil {
		if len(s.kinds) >= logKinds {
			clear(s.kinds)
		}
		k = &logKind{since: at}
		s.kinds[message] = k
	}
	if at.Sub(k.since) >= logEvery {
		leftOut = k.leftOut
		*k = logKind{since: at}
	}
	if k.lines == logLines {
		k.leftOut++
		return 0, false
	}
	k.lines++
	return leftOut, true
}
