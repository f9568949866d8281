package weir

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Every calls fn each time that d has passed, until stop is called or the server has ended: after Shutdown has waited
// for the channels, or at once by Close. fn runs on a goroutine of its own, beside the loops: it may wait, and may
// call the server and its Sets. It is never called twice at a time; ticks that come while it runs are left out. A
// panic of fn is logged. One call may still be under way when stop, Shutdown or Close has returned. Any goroutine.
//
// Every starts the server's loops when nothing has. Errors: ErrConfig, ErrServerClosed, those of starting.
func (s *Server) Every(d time.Duration, fn func()) (stop func(), err error) {
	if d <= 0 || fn == nil {
		return nil, fmt.Errorf("%w: Every %v, with a func: %v", ErrConfig, d, fn != nil)
	}
	e, err := s.start()
	if err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	go func() {
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-stopped:
				return
			case <-e.stopped:
				return
			}
			select {
			case <-stopped: // both at once
				return
			default:
				tick(fn, s.logger())
			}
		}
	}()
	return sync.OnceFunc(func() { close(stopped) }), nil
}

func tick(fn func(), logger *slog.Logger) {
	defer func() {
		if v := recover(); v != nil {
			logger.Error("weir: func of Every panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	fn()
}
