package weir

import (
	"fmt"
	"syscall"

	"github.com/weirnet/weir/internal/sys"
)

// dup keeps a descriptor of the socket behind c, which need not be bound yet: both descriptors are one socket.
func (s *sharedSocket) dup(c syscall.RawConn) error {
	fd := -1
	var dupErr error
	err := c.Control(func(original uintptr) {
		syscall.ForkLock.RLock() // no child inherits it between the two calls
		defer syscall.ForkLock.RUnlock()
		if fd, dupErr = syscall.Dup(int(original)); dupErr == nil {
			syscall.CloseOnExec(fd)
		}
	})
	if err == nil {
		err = dupErr
	}
	if err != nil {
		return fmt.Errorf("weir: duplicate the listener: %w", err)
	}
	s.close()
	s.fd, s.open = fd, true
	return nil
}

// sharePort lets others of the same user listen on the socket's port from here on (socket(7), SO_REUSEPORT).
func (s *sharedSocket) sharePort() error {
	if err := sys.SharePort(s.fd); err != nil {
		return fmt.Errorf("weir: share the port among the loops: %w", err)
	}
	return nil
}

// steer makes the kernel choose among the port's n listeners by processor.
func (s *sharedSocket) steer(n int) error {
	if err := sys.SteerByCPU(s.fd, n); err != nil {
		return fmt.Errorf("weir: steer connections by processor: %w", err)
	}
	return nil
}

// listenDrops is what the kernel has dropped of connections to listeners.
func listenDrops() (overflows, drops uint64) {
	n, err := sys.ReadNetstat("ListenOverflows", "ListenDrops")
	if err != nil {
		return 0, 0
	}
	return n[0], n[1]
}

// close closes the descriptor that dup keeps.
func (s *sharedSocket) close() {
	if s.open {
		s.open = false
		_ = syscall.Close(s.fd)
	}
}
