//go:build !linux

package uring

import (
	"fmt"

	"github.com/weirnet/weir/transport"
)

// Transport is not to be had on this system.
type Transport struct{ transport.Transport }

// Open returns transport.ErrNotSupported: io_uring is Linux'.
func Open(Config) (*Transport, error) {
	return nil, fmt.Errorf("%w: %w: io_uring is Linux'", ErrUnavailable, transport.ErrNotSupported)
}

// Probe returns why io_uring cannot be used.
func Probe() error {
	return fmt.Errorf("%w: %w: io_uring is Linux'", ErrUnavailable, transport.ErrNotSupported)
}

// Counters returns zeros.
func (*Transport) Counters() Counters { return Counters{} }

// Features returns none.
func (*Transport) Features() Features { return 0 }
