package weir

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/weirnet/weir/transport"
)

// opener makes one kind of transport, on the loop's thread.
type opener struct {
	kind Kind
	open func(raw bool, warn func(text string)) (transport.Transport, error)
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
	kind, err := cfg.transport()
	if err != nil {
		return nil, err
	}
	switch kind {
	case Auto:
		f.openers = cfg.openers
	case Epoll, Uring:
		for _, o := range cfg.openers {
			if o.kind == kind {
				f.openers = []opener{o}
			}
		}
	}
	if len(f.openers) == 0 {
		return nil, fmt.Errorf("weir: transport %q: %w on this system", kind, transport.ErrNotSupported)
	}
	return f, nil
}

// transport is the kind to open: that of the settings, else that of the environment, else Auto.
func (cfg *engineConfig) transport() (Kind, error) {
	kind, from := cfg.kind, "Transport"
	if kind == "" || kind == Auto {
		kind, from = Kind(os.Getenv(TransportEnv)), TransportEnv
	}
	switch kind {
	case "":
		return Auto, nil
	case Auto, Epoll, Uring:
		return kind, nil
	}
	return "", fmt.Errorf("%w: %s %q is not %q, %q or %q", ErrConfig, from, kind, Auto, Uring, Epoll)
}

// open runs on the loop's thread.
func (f *fallback) open(raw bool, w *worker) (transport.Transport, error) {
	var failed []error
	for _, o := range f.openers {
		tr, err := o.open(raw, func(text string) { f.logger.Warn("weir: "+text, "loop", w.loop.Name()) })
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
