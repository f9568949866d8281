//go:build !linux

package xdp

import "fmt"

// Entry is an interface's program. It is Linux's.
type Entry struct{}

// Check returns ErrUnsupported.
func Check() error { return fmt.Errorf("xdp: %w: Linux only", ErrUnsupported) }

// Attach returns ErrUnsupported.
func Attach(Config) (*Entry, error) { return nil, Check() }
