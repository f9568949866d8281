//go:build !linux

package epoll

import (
	"fmt"
	"runtime"

	"github.com/weirnet/weir/transport"
)

// Transport does not exist on this system.
type Transport struct{ transport.Transport }

// Open returns an error that wraps transport.ErrNotSupported.
func Open(cfg Config) (*Transport, error) {
	if _, err := cfg.withDefaults(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("epoll on %s: %w", runtime.GOOS, transport.ErrNotSupported)
}

// Counters returns zeros.
func (*Transport) Counters() Counters { return Counters{} }
