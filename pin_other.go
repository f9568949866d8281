//go:build !linux

package weir

import (
	"fmt"

	"github.com/weirnet/weir/transport"
)

func pinThread(int) error { return fmt.Errorf("weir: pin: %w", transport.ErrNotSupported) }
