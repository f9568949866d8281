//go:build linux

// Package rawsys holds the system calls of the load generator's hot path. They do not tell Go's scheduler, which costs
// more than some of them do; so none may block for long.
package rawsys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EpollPoll is epoll_wait(2) with a timeout of zero.
func EpollPoll(epoll int, events []unix.EpollEvent) (int, syscall.Errno) {
	// SAFETY: events is not empty, outlives the call, and the kernel writes at most len(events) of them.
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_WAIT, uintptr(epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	return int(n), errno
}

// Recv is recv(2) without waiting.
func Recv(fd int, p []byte) (int, syscall.Errno) {
	// SAFETY: p outlives the call, and the kernel writes at most len(p) bytes.
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// Send is send(2) without waiting and without SIGPIPE.
func Send(fd int, p []byte) (int, syscall.Errno) {
	// SAFETY: p outlives the call, and the kernel reads len(p) bytes.
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}
