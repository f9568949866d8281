package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// discardMost is how much that has been received Dismiss throws away.
const discardMost = 64 << 10

// Detached is the non-blocking descriptor of a connected socket that no transport has.
type Detached int

// Close closes it with RST.
func (d Detached) Close() {
	ResetOnClose(int(d))
	Close(int(d))
}

// Dismiss sends what fits of words and closes, with FIN unless there is more than 64 KiB to throw away. It never
// blocks.
func (d Detached) Dismiss(words []byte) {
	if len(words) > 0 {
		// SAFETY: the kernel reads words during the call only.
		_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(d), uintptr(unsafe.Pointer(&words[0])), uintptr(len(words)),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	}
	Discard(int(d), discardMost)
	Close(int(d))
}

// Discard throws away up to n bytes that a TCP socket has received, without copying them (tcp(7), MSG_TRUNC). It never
// blocks.
func Discard(fd, n int) {
	_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, uintptr(n), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
}
