//go:build !linux

package weir

import (
	"syscall"

	"github.com/weirnet/weir/transport"
)

func (s *sharedSocket) dup(syscall.RawConn) error { return transport.ErrNotSupported }

func (s *sharedSocket) sharePort() error { return transport.ErrNotSupported }

func (s *sharedSocket) steer(int) error { return transport.ErrNotSupported }

func (s *sharedSocket) close() {}

func listenDrops() (overflows, drops uint64) { return 0, 0 }
