// Package ring is one io_uring: it sets a ring up with what the kernel grants, maps its queues, prepares entries,
// enters the kernel and reaps completions. It knows nothing of sockets' states; that is transport/uring's.
//
// A Ring belongs to the goroutine that opened it, which stays locked to its OS thread for as long as the ring lives:
// io_uring_setup(2), IORING_SETUP_SINGLE_ISSUER, binds a ring to the thread that made it, and so does the registration
// of its descriptor.
//
// What the kernel reads or writes between two system calls lives in anonymous mappings, outside the Go heap: queues,
// buffer rings, vectors, message headers, addresses, time-outs. Two kinds of Go memory are shown to it: bytes to send
// and blocks to receive into. Whoever prepares such an entry keeps them reachable until the completion; the collector
// does not move heap objects. No address of them is stored as a Go pointer outside the heap, because the write barrier
// would look at the stale one that it overwrites.
//
// # Memory order
//
// Each index of a queue has one writer. The side that fills entries publishes them with a store of the tail that has
// release semantics, the side that reads them loads the tail with acquire semantics; the head goes the other way. Go's
// sync/atomic operations are sequentially consistent, which is stronger: on arm64 they compile to LDAR and STLR (or
// LSE's acquire-release forms), on amd64 to MOV and XCHG. Plain stores would do on amd64 and be wrong on arm64. The
// entries themselves are plain memory, ordered by the tail.
package ring

import "errors"

// What callers branch on.
var (
	// ErrUnavailable is returned when this process cannot have the ring it needs; the text says why.
	ErrUnavailable = errors.New("io_uring is not available")
	// ErrDropped is returned once by Enter after the kernel had no memory to keep completions that did not fit the
	// completion queue: some are lost. Dropped counts them.
	ErrDropped = errors.New("ring: the kernel dropped completions")
)

// Flags are the set-up flags that are asked for and that a kernel may refuse, see io_uring_setup(2).
type Flags uint32

// The flags, with the first kernel that has each.
const (
	CQSize       Flags = 1 << 3  // 5.5: the completion queue's length is ours to choose
	Clamp        Flags = 1 << 4  // 5.6: too long queues are shortened instead of refused
	SubmitAll    Flags = 1 << 7  // 5.18: an entry that fails does not end the batch
	CoopTaskrun  Flags = 1 << 8  // 5.19: completions never interrupt this thread
	SingleIssuer Flags = 1 << 12 // 6.0: only one thread submits
	DeferTaskrun Flags = 1 << 13 // 6.1: completions are worked on only when this thread asks for them
	NoSQArray    Flags = 1 << 16 // 6.6: no indirection between queue and entries
)

// Features are what a kernel says about itself at set-up, see io_uring_setup(2).
type Features uint32

// The features that matter here, with the first kernel that has each.
const (
	SingleMmap   Features = 1 << 0  // 5.4
	NoDrop       Features = 1 << 1  // 5.5: completions that do not fit the queue are kept and come later
	SubmitStable Features = 1 << 2  // 5.5: vectors, headers and addresses are free once an entry was consumed
	FastPoll     Features = 1 << 5  // 5.7: sockets wait without a worker thread
	ExtArg       Features = 1 << 8  // 5.11: enter takes a time-out
	CQESkip      Features = 1 << 11 // 5.17: successful entries may go without a completion
	NoIOWait     Features = 1 << 17 // 6.15: waiting need not count as waiting for a disk
)

// required are the features without which transport/uring cannot work.
const required = SingleMmap | NoDrop | SubmitStable | FastPoll | ExtArg | CQESkip
