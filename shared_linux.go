package weir

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// dup keeps a descriptor of the socket behind c, which need not be bound yet: both descriptors are one socket.
func (s *sharedSocket) dup(c syscall.RawConn) error {
	fd := -1
	var dupErr error
	err := c.Control(func(original uintptr) { fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 3) })
	if err == nil {
		err = dupErr
	}
	if err != nil {
		return fmt.Errorf("weir: duplicate the listener: %w", err)
	}
	s.close()
	s.fd.Store(int64(fd))
	return nil
}

// close closes the descriptor that dup keeps; 0 means none, dup answers from 3 on.
func (s *sharedSocket) close() {
	if fd := s.fd.Swap(0); fd > 0 {
		_ = unix.Close(int(fd))
	}
}
