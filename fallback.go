package weir

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weirnet/weir/transport"
)

// opener makes one kind of transport, on the loop's thread.
type opener struct {
	kind Kind
	open func(raw bool) (transport.Transport, error)
}

// fallback opens the transports of one engine: the first that can be opened.
type fallback struct {
	openers []opener // tried in turn; the last one's error counts
	logger  *slog.Logger
	told    sync.Once // that it is not the first
}

func newFallback(cfg engineConfig) (*fallback, error) {
	f := &fallback{logger: cfg.logger}
	if f.logger == nil {
		f.logger = slog.Default()
	}
	switch cfg.kind {
	case "", Auto:
		f.openers = cfg.openers
	case Epoll, Uring:
		for _, o := range cfg.openers {
			if o.kind == cfg.kind {
				f.openers = []opener{o}
			}
		}
	default:
		return nil, fmt.Errorf("%w: Transport %q is not %q, %q or %q", ErrConfig, cfg.kind, Auto, Uring, Epoll)
	}
	if len(f.openers) == 0 {
		return nil, fmt.Errorf("weir: transport %q: %w on this system", cfg.kind, transport.ErrNotSupported)
	}
	return f, nil
}

// open runs on the loop's thread.
func (f *fallback) open(raw bool, w *worker) (transport.Transport, error) {
	var failed []error
	for _, o := range f.openers {
		tr, err := o.open(raw)
		if err == nil {
			w.kind = o.kind
			if len(failed) > 0 {
				f.told.Do(func() {
					f.logger.Warn("weir: transport falls back", "to", o.kind, "reason", errors.Join(failed...))
				})
			}
			return tr, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", o.kind, err))
	}
	return nil, errors.Join(failed...)
}
