package ring

import (
	"math"
	"unsafe"

	abi "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// MaxVectors is the most vectors one send takes: IOV_MAX of sendmsg(2).
const MaxVectors = 1024

// Vector is struct iovec. The address is a number, not a pointer: see the package's overview.
type Vector struct {
	base   uintptr
	length uintptr
}

// MakeVector returns a vector of p. The caller keeps p reachable until the kernel is done with it.
func MakeVector(p []byte) Vector { return Vector{address(p), uintptr(len(p))} }

// MessageHeader is struct msghdr.
type MessageHeader struct {
	name       uintptr
	nameLength uint32
	vectors    uintptr
	count      uintptr
	control    uintptr
	ctlLength  uintptr
	flags      int32
}

// Recv prepares a receive of at most length bytes into a block of the group.
func Recv(e *SQE, fd int32, group uint16, length uint32) {
	e.PrepOperation(abi.IORING_OP_RECV, fd, 0, length, 0)
	e.SetFlags(sqeBufferSelect)
	e.SetBufGroup(group)
}

// RecvLimited prepares a receive that goes on, at most length bytes at a time, until limit bytes have come. The last
// block may go beyond the limit. It needs Linux 6.17, earlier ones return EINVAL.
func RecvLimited(e *SQE, fd int32, group uint16, length, limit uint32) {
	Recv(e, fd, group, length)
	e.SetIoprio(recvMultishot)
	e.SetSpliceFdIn(int32(limit)) // shares its place with optlen
}

// Send prepares a send of p with the flags of send(2). The caller keeps p reachable until the completion.
func Send(e *SQE, fd int32, p []byte, flags uint32) {
	e.PrepOperation(abi.IORING_OP_SEND, fd, uint64(address(p)), uint32(min(len(p), math.MaxInt32)), 0)
	e.SetOpFlags(flags)
}

// SendVectors prepares a send of several runs of bytes. The vectors are a part of an Arena. It needs Linux 6.17,
// earlier ones return EINVAL.
func SendVectors(e *SQE, fd int32, v []Vector, flags uint32) {
	// SAFETY: only the number is kept; v is in a mapping.
	base := uintptr(unsafe.Pointer(unsafe.SliceData(v)))
	e.PrepOperation(abi.IORING_OP_SEND, fd, uint64(base), uint32(len(v)), 0)
	e.SetOpFlags(flags)
	e.SetIoprio(sendVectorized)
}

// SendMessage is SendVectors for any kernel, with a header of an Arena.
func SendMessage(e *SQE, fd int32, h *MessageHeader, v []Vector, flags uint32) {
	// SAFETY: only the number is kept; v is in a mapping.
	base := uintptr(unsafe.Pointer(unsafe.SliceData(v)))
	*h = MessageHeader{vectors: base, count: uintptr(len(v))}
	// SAFETY: only the number is kept; h is in a mapping.
	header := uintptr(unsafe.Pointer(h))
	e.PrepOperation(abi.IORING_OP_SENDMSG, fd, uint64(header), 1, 0)
	e.SetOpFlags(flags)
}

// SkipSuccess lets an entry go without a completion unless it fails or falls short.
func SkipSuccess(e *SQE) { e.SetFlags(sqeSkipSuccess) }

// HardLink makes the next entry wait for the end of this one, however it ends. Both must go to the kernel in one Enter.
func HardLink(e *SQE) { e.SetFlags(sqeHardLink) }

// Accept prepares an accept4(2): one connection.
//
// With pollFirst (Linux 6.10) the kernel looks whether there is a connection before it tries to accept one: a try makes
// a socket and a file first, and throws both away when nobody is there.
func Accept(e *SQE, fd int32, pollFirst bool) {
	e.PrepOperation(abi.IORING_OP_ACCEPT, fd, 0, 0, 0)
	e.SetOpFlags(unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)
	if pollFirst {
		e.SetIoprio(acceptPollFirst)
	}
}

// Connect prepares a connect(2). The address is the kernel's struct sockaddr in an Arena.
func Connect(e *SQE, fd int32, sockaddr []byte) {
	e.PrepOperation(abi.IORING_OP_CONNECT, fd, uint64(address(sockaddr)), 0, uint64(len(sockaddr)))
}

// Poll prepares a wait for events of poll(2), with multishot one that goes on.
func Poll(e *SQE, fd int32, events uint32, multishot bool) {
	length := uint32(0)
	if multishot {
		length = pollMultishot
	}
	e.PrepOperation(abi.IORING_OP_POLL_ADD, fd, 0, length, 0)
	e.SetOpFlags(pollWord(events))
}

// Cancel prepares the cancellation of the entry with this user data.
func Cancel(e *SQE, userData uint64) {
	e.PrepOperation(abi.IORING_OP_ASYNC_CANCEL, -1, userData, 0, 0)
}

// CancelDescriptor prepares the cancellation of everything on a descriptor.
func CancelDescriptor(e *SQE, fd int32) {
	e.PrepOperation(abi.IORING_OP_ASYNC_CANCEL, fd, 0, 0, 0)
	e.SetOpFlags(cancelFD | cancelAll)
}

// CancelEverything prepares the cancellation of all entries of the ring.
func CancelEverything(e *SQE) {
	e.PrepOperation(abi.IORING_OP_ASYNC_CANCEL, -1, 0, 0, 0)
	e.SetOpFlags(cancelAny | cancelAll)
}

// Close prepares a close(2).
func Close(e *SQE, fd int32) { e.PrepOperation(abi.IORING_OP_CLOSE, fd, 0, 0, 0) }

// Splice prepares a splice(2) of length bytes of a file from offset on into a pipe. A worker thread carries it out.
func Splice(e *SQE, file int32, offset int64, pipe int32, length uint32) {
	e.PrepOperation(abi.IORING_OP_SPLICE, pipe, uint64(offset), length, math.MaxUint64)
	e.SetSpliceFdIn(file)
}

// ReadAt prepares a pread(2) into p. The caller keeps p reachable until the completion.
func ReadAt(e *SQE, fd int32, p []byte, offset int64) {
	e.PrepOperation(abi.IORING_OP_READ, fd, uint64(address(p)), uint32(min(len(p), math.MaxInt32)), uint64(offset))
}

// Nop prepares an entry that does nothing.
func Nop(e *SQE) { e.PrepOperation(abi.IORING_OP_NOP, -1, 0, 0, 0) }
