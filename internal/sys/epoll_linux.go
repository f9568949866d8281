package sys

import (
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Events of epoll_ctl(2).
const (
	EpollIn        = uint32(unix.EPOLLIN)
	EpollOut       = uint32(unix.EPOLLOUT)
	EpollErr       = uint32(unix.EPOLLERR)
	EpollHup       = uint32(unix.EPOLLHUP)
	EpollRDHup     = uint32(unix.EPOLLRDHUP)
	EpollEdge      = uint32(unix.EPOLLET & math.MaxUint32)
	EpollExclusive = uint32(unix.EPOLLEXCLUSIVE)
)

// EpollEvent is one event with its 64 bits of user data.
type EpollEvent struct{ ev unix.EpollEvent }

// Events returns the event bits.
func (e *EpollEvent) Events() uint32 { return e.ev.Events }

// Data returns the user data.
func (e *EpollEvent) Data() uint64 { return uint64(uint32(e.ev.Fd)) | uint64(uint32(e.ev.Pad))<<32 }

// MakeEpollEvent returns an event.
func MakeEpollEvent(events uint32, data uint64) EpollEvent {
	return EpollEvent{unix.EpollEvent{Events: events, Fd: int32(data), Pad: int32(data >> 32)}}
}

// Epoll is an epoll instance. It belongs to one goroutine.
type Epoll struct {
	fd         int
	noNanowait bool // epoll_pwait2 (Linux 5.11) is missing or forbidden
}

// OpenEpoll opens an epoll instance.
func OpenEpoll() (Epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return Epoll{fd: fd}, err
}

// Close closes the instance.
func (e *Epoll) Close() error { return unix.Close(e.fd) }

// Add adds fd. It never blocks.
func (e *Epoll) Add(fd int, events uint32, data uint64) unix.Errno {
	return e.ctl(unix.EPOLL_CTL_ADD, fd, events, data)
}

// Modify changes the events of fd. It never blocks.
func (e *Epoll) Modify(fd int, events uint32, data uint64) unix.Errno {
	return e.ctl(unix.EPOLL_CTL_MOD, fd, events, data)
}

// Delete removes fd. It never blocks.
func (e *Epoll) Delete(fd int) unix.Errno {
	return e.ctl(unix.EPOLL_CTL_DEL, fd, 0, 0)
}

func (e *Epoll) ctl(op, fd int, events uint32, data uint64) unix.Errno {
	ev := MakeEpollEvent(events, data)
	// SAFETY: the kernel reads ev during the call only.
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(e.fd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	return errno
}

// WaitRaw waits for events without telling the scheduler; timeout is bounded by the caller, since it holds a P. EINTR
// comes back as it is: Go's runtime interrupts the thread with SIGURG when it wants it to stop, and the way back
// through the caller's code is where it does.
func (e *Epoll) WaitRaw(events []EpollEvent, timeout time.Duration) (int, unix.Errno) {
	if !e.noNanowait && fractional(timeout) {
		ts := kernelTimespec(timeout)
		// SAFETY: the kernel writes at most len(events) events and reads ts, both during the call only.
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(e.fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(events))),
			uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if !e.lacksNanowait(errno) {
			return count(n, errno), errno
		}
	}
	// SAFETY: the kernel writes at most len(events) events, during the call only.
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(milliseconds(timeout)), 0, 0)
	return count(n, errno), errno
}

// Wait waits for events and lets Go's scheduler have the P meanwhile. A negative timeout waits without limit. EINTR
// comes back as it is.
func (e *Epoll) Wait(events []EpollEvent, timeout time.Duration) (int, unix.Errno) {
	if !e.noNanowait && fractional(timeout) {
		ts := kernelTimespec(timeout)
		// SAFETY: the kernel writes at most len(events) events and reads ts, both during the call only.
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(e.fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(events))),
			uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if !e.lacksNanowait(errno) {
			return count(n, errno), errno
		}
	}
	// SAFETY: the kernel writes at most len(events) events, during the call only.
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(milliseconds(timeout)), 0, 0)
	return count(n, errno), errno
}

// count is a system call's result, 0 when it failed.
func count(n uintptr, errno unix.Errno) int {
	if errno != 0 {
		return 0
	}
	return int(n)
}

// lacksNanowait notes that the kernel, or a seccomp filter (EPERM), does not let us have epoll_pwait2.
func (e *Epoll) lacksNanowait(errno unix.Errno) bool {
	if errno == unix.ENOSYS || errno == unix.EPERM {
		e.noNanowait = true
	}
	return e.noNanowait
}

// timespec64 is struct __kernel_timespec, which has 64 bits on every architecture.
type timespec64 struct{ sec, nsec int64 }

func kernelTimespec(d time.Duration) timespec64 {
	return timespec64{int64(d / time.Second), int64(d % time.Second)}
}

// fractional reports whether a timeout needs more than epoll_wait's milliseconds.
func fractional(timeout time.Duration) bool { return timeout > 0 && timeout%time.Millisecond != 0 }

// milliseconds rounds up, so that nobody wakes before a timer is due.
func milliseconds(timeout time.Duration) int32 {
	if timeout < 0 {
		return -1
	}
	ms := timeout / time.Millisecond
	if timeout%time.Millisecond != 0 {
		ms++
	}
	return int32(min(ms, math.MaxInt32))
}
