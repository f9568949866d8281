package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIovecs is IOV_MAX: what sendmsg(2) takes at most.
const maxIovecs = 1024

// sendFlags: no SIGPIPE, and no waiting even on a descriptor that somebody made blocking.
const sendFlags = unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT

// Recv receives into p, which is not empty. It never blocks.
func Recv(fd int, p []byte) (int, unix.Errno) {
	for {
		// SAFETY: the kernel writes at most len(p) bytes into p during the call only.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)),
			unix.MSG_DONTWAIT, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// Send sends p, which is not empty. It never blocks.
func Send(fd int, p []byte) (int, unix.Errno) {
	for {
		// SAFETY: the kernel reads len(p) bytes of p during the call only.
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)),
			sendFlags, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// Vector collects pieces of memory for one sendmsg(2). It holds no more than IOV_MAX pieces, is used again and again
// and belongs to one goroutine.
type Vector struct {
	iovecs [maxIovecs]unix.Iovec
	count  int
	bytes  int
	header unix.Msghdr
}

// Full reports whether no further piece fits.
func (v *Vector) Full() bool { return v.count == maxIovecs }

// Bytes is the number of bytes added.
func (v *Vector) Bytes() int { return v.bytes }

// Add adds p, which must stay as it is until Send returns. It panics when the vector is full.
func (v *Vector) Add(p []byte) {
	iov := &v.iovecs[v.count]
	// SAFETY: a pointer to p's first byte, stored as a pointer.
	iov.Base = unsafe.SliceData(p)
	iov.SetLen(len(p))
	v.count++
	v.bytes += len(p)
}

// Send sends what was added and empties the vector. It never blocks.
func (v *Vector) Send(fd int) (int, unix.Errno) {
	v.header.Iov = &v.iovecs[0]
	v.header.SetIovlen(v.count)
	var n uintptr
	errno := unix.EINTR
	for errno == unix.EINTR {
		// SAFETY: the kernel reads the header, count iovecs and what they point to, during the call only. All of it is
		// reachable from v, by pointers.
		n, _, errno = unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.header)), sendFlags)
	}
	clear(v.iovecs[:v.count]) // keep nobody's memory alive
	v.count, v.bytes = 0, 0
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// SendFile sends n bytes of a file from offset on by sendfile(2). The socket is non-blocking; reading the file may wait
// for a disk, so the scheduler is told.
func SendFile(fd, file int, offset int64, n int) (int, unix.Errno) {
	for {
		sent, err := unix.Sendfile(fd, file, &offset, n)
		switch err {
		case nil:
			return sent, 0
		case unix.EINTR:
			continue
		}
		return 0, Errno(err)
	}
}

// ReadFile reads a file at offset. It may wait for a disk, so the scheduler is told.
func ReadFile(file int, p []byte, offset int64) (int, unix.Errno) {
	for {
		n, err := unix.Pread(file, p, offset)
		switch err {
		case nil:
			return n, 0
		case unix.EINTR:
			continue
		}
		return 0, Errno(err)
	}
}

// DiscardErrorQueue throws away what waits on a socket's error queue (time stamps, zero-copy notifications that
// somebody asked for): as long as something is there, epoll reports EPOLLERR. It returns the number of entries, at most
// 1024, and never blocks.
func DiscardErrorQueue(fd int) int {
	var header unix.Msghdr
	n := 0
	for ; n < 1024; n++ {
		header.Flags = 0
		// SAFETY: the kernel writes into header during the call only; it has no buffers.
		_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&header)),
			unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || header.Flags&unix.MSG_ERRQUEUE == 0 { // a family without such a queue ignores the flag
			break
		}
	}
	return n
}

// Errno returns the errno behind an error of x/sys/unix, 0 for nil, EIO for what is none.
func Errno(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := err.(unix.Errno); ok {
		return errno
	}
	return unix.EIO
}
