package ring

import (
	"unsafe"

	abi "github.com/iceber/iouring-go/syscall"
)

// SQE is a submission queue entry and CQE a completion queue entry.
type (
	SQE = abi.SubmissionQueueEntry64
	CQE = abi.CompletionQueueEvent16
)

// What include/uapi/linux/io_uring.h has and the abi package has not.
const (
	enterGetEvents      = 1 << 0
	enterExtArg         = 1 << 3 // 5.11
	enterRegisteredRing = 1 << 4 // 5.18
	enterNoIOWait       = 1 << 7 // 6.15

	sqCQOverflow = 1 << 1

	registerProbe          = 8  // 5.6
	registerIOWQMaxWorkers = 19 // 5.15
	registerRingFDs        = 20 // 5.18
	unregisterRingFDs      = 21
	registerPbufRing       = 22 // 5.19
	unregisterPbufRing     = 23

	sqeHardLink      = 1 << 3
	sqeBufferSelect  = 1 << 5
	sqeSkipSuccess   = 1 << 6 // 5.17
	recvMultishot    = 1 << 1 // 6.0, in ioprio
	sendVectorized   = 1 << 5 // 6.17, in ioprio
	acceptPollFirst  = 1 << 2 // 6.10, in ioprio
	pollMultishot    = 1 << 0 // 5.13, in len
	cancelAll        = 1 << 0 // 5.19
	cancelFD         = 1 << 1 // 5.19
	cancelAny        = 1 << 2 // 5.19
	probeOpSupported = 1 << 0
)

// Flags of a completion.
const (
	FlagBuffer   = 1 << 0 // it has a block of the buffer ring, see BufferID
	FlagMore     = 1 << 1 // its entry has further completions
	FlagNonEmpty = 1 << 2 // more can be received at once
	FlagNotif    = 1 << 3 // zero-copy memory is free

	bufferShift = 16
)

const (
	sqeBytes       = 64
	cqeBytes       = 16
	pageBytes      = 4096
	timespecOffset = 64
	eventsArgBytes = unsafe.Sizeof(eventsArg{})
)

// eventsArg is struct io_uring_getevents_arg.
type eventsArg struct {
	_  uint64 // sigmask
	_  uint32 // sigmask_sz
	_  uint32 // min_wait_usec
	ts uint64
}

// timespec is struct __kernel_timespec, 64 bits wide everywhere.
type timespec struct{ sec, nsec int64 }

// rsrcUpdate is struct io_uring_rsrc_update.
type rsrcUpdate struct {
	offset uint32
	resv   uint32
	data   uint64
}

// BufferID is the block that a completion with FlagBuffer came with.
func BufferID(c *CQE) uint16 { return uint16(c.Flags() >> bufferShift) }

// Entry is a submission queue entry as the kernel reads it: what a scripted kernel sees.
type Entry struct {
	Opcode   uint8
	Flags    uint8
	Ioprio   uint16
	FD       int32
	Offset   uint64
	Address  uint64
	Length   uint32
	OpFlags  uint32
	UserData uint64
	Group    uint16
	_        uint16
	Optlen   uint32 // also the splice's source
	_        [2]uint64
}

// Read returns what an entry says.
func Read(e *SQE) Entry {
	// SAFETY: both types are the 64 bytes of struct io_uring_sqe; a test compares the fields' places.
	return *(*Entry)(unsafe.Pointer(e))
}

// completion is struct io_uring_cqe.
type completion struct {
	userData uint64
	result   int32
	flags    uint32
}

// Write fills a completion: what a scripted kernel does.
func Write(c *CQE, userData uint64, result int32, flags uint32) {
	// SAFETY: both types are the 16 bytes of struct io_uring_cqe; a test compares the fields' places.
	*(*completion)(unsafe.Pointer(c)) = completion{userData, result, flags}
}
