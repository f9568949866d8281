package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenEventFD opens a non-blocking eventfd.
func OpenEventFD() (int, error) {
	return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
}

// SignalEventFD adds one to an eventfd. It never blocks; any goroutine.
func SignalEventFD(fd int) unix.Errno {
	one := uint64(1)
	for {
		// SAFETY: the kernel reads eight bytes of one during the call only.
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN: // the counter is full: whoever waits has been told
			return 0
		}
		return errno
	}
}

// ClearEventFD sets an eventfd to zero. It never blocks.
func ClearEventFD(fd int) unix.Errno {
	var count uint64
	for {
		// SAFETY: the kernel writes eight bytes into count during the call only.
		_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&count)), 8)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0
		}
		return errno
	}
}
