package ring

import (
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config configures a Ring. The zero value works.
type Config struct {
	// Entries is the length of the submission queue, a power of two. Zero means 4096.
	Entries uint32
	// CQEntries is the length of the completion queue, a power of two. Zero means four times Entries.
	CQEntries uint32
	// Without are flags not to ask for.
	Without Flags
	// Kernel stands in for the kernel. Nil means the real one.
	Kernel Kernel
}

func (cfg Config) withDefaults() Config {
	if cfg.Entries == 0 {
		cfg.Entries = 4096
	}
	if cfg.CQEntries == 0 {
		cfg.CQEntries = 4 * cfg.Entries
	}
	return cfg
}

// Ring is one io_uring. It belongs to the goroutine that opened it.
type Ring struct {
	Shared // set by Open, then immutable

	// The ring's own indexes; they run ahead of what is published.
	sqTail, sqHead uint32
	cqHead         uint32
	sqMask, cqMask uint32

	// Set by Open, then immutable.
	fd         int
	enterFD    uintptr // the descriptor, or its index among the thread's registered ones
	enterFlags uint32
	argAddress uintptr
	arg        *eventsArg
	timeout    *timespec
	kernel     Kernel // nil: the real one
	flags      Flags
	features   Features
	registered bool
	mappings   [][]byte

	closed bool
	enters uint64
}

// Flags are the set-up flags that the kernel granted.
func (r *Ring) Flags() Flags { return r.flags }

// Features are what the kernel said about itself.
func (r *Ring) Features() Features { return r.features }

// Registered reports whether Enter goes without looking the descriptor up.
func (r *Ring) Registered() bool { return r.registered }

// Enters is the number of system calls made by Enter.
func (r *Ring) Enters() uint64 { return r.enters }

// Get returns the next entry to fill, all zero, or nil when the submission queue is full: then Enter makes room.
func (r *Ring) Get() *SQE {
	if r.sqTail-r.sqHead > r.sqMask {
		r.sqHead = atomic.LoadUint32(r.SQHead)
		if r.sqTail-r.sqHead > r.sqMask {
			return nil
		}
	}
	e := &r.SQEs[r.sqTail&r.sqMask]
	r.sqTail++
	e.Reset()
	return e
}

// Room is the number of entries that Get returns before an Enter.
func (r *Ring) Room() int {
	r.sqHead = atomic.LoadUint32(r.SQHead)
	return len(r.SQEs) - int(r.sqTail-r.sqHead)
}

// Prepared is the position behind the entry that Get returned last. Positions count up and wrap around.
func (r *Ring) Prepared() uint32 { return r.sqTail }

// Consumed is the position behind the last entry that the kernel has taken: those before it are done with the vectors,
// headers and addresses they refer to.
func (r *Ring) Consumed() uint32 { return atomic.LoadUint32(r.SQHead) }

// Pending is the number of entries prepared and not taken by the kernel.
func (r *Ring) Pending() int { return int(r.sqTail - atomic.LoadUint32(r.SQHead)) }

// Submit hands the prepared entries to the kernel, and nothing else. It does not tell Go's scheduler.
func (r *Ring) Submit() error {
	return r.result(r.enter(0, 0, true))
}

// Poll hands the prepared entries to the kernel and lets it work on what has become ready. It does not block and does
// not tell Go's scheduler.
func (r *Ring) Poll() error {
	return r.result(r.enter(0, enterGetEvents, true))
}

// Wait is Poll, but it waits for a completion until timeout has passed (negative: without limit). With raw set Go's
// scheduler is not told, so that this thread keeps its P: cheaper, but other goroutines lack the P meanwhile. It also
// ends after a signal.
func (r *Ring) Wait(timeout time.Duration, raw bool) error {
	flags := uint32(enterGetEvents)
	if timeout >= 0 {
		r.timeout.sec, r.timeout.nsec = int64(timeout/time.Second), int64(timeout%time.Second)
		flags |= enterExtArg
	}
	return r.result(r.enter(1, flags, raw))
}

// result sorts out which errors of io_uring_enter(2) are one. The number of entries taken is not looked at: SQHead says
// it, also after an error.
func (r *Ring) result(_ int, errno syscall.Errno) error {
	switch errno {
	case 0, unix.ETIME, unix.EINTR, unix.EAGAIN, unix.EBUSY:
		// Out of time; a signal; no memory for requests, or too many kept completions: reap and come again.
		return nil
	case unix.EBADR:
		return ErrDropped
	}
	return errno
}

// enter is io_uring_enter(2) for all prepared entries.
func (r *Ring) enter(minimum, flags uint32, raw bool) (int, syscall.Errno) {
	r.enters++
	atomic.StoreUint32(r.SQTail, r.sqTail) // release: the entries come before it
	submit := r.sqTail - atomic.LoadUint32(r.SQHead)
	if r.kernel != nil {
		timeout := time.Duration(-1)
		if flags&enterExtArg != 0 {
			timeout = time.Duration(r.timeout.sec)*time.Second + time.Duration(r.timeout.nsec)
		}
		return r.kernel.Enter(submit, minimum, flags, timeout)
	}
	var arg, size uintptr
	if flags&enterExtArg != 0 {
		arg, size = r.argAddress, eventsArgBytes
	}
	flags |= r.enterFlags
	var n uintptr
	var errno syscall.Errno
	if raw {
		n, _, errno = syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, r.enterFD, uintptr(submit), uintptr(minimum),
			uintptr(flags), arg, size)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_IO_URING_ENTER, r.enterFD, uintptr(submit), uintptr(minimum),
			uintptr(flags), arg, size)
	}
	return int(n), errno
}

// Ready returns the positions of the completions that can be reaped: from first to before end. After that, Reaped tells
// the kernel.
func (r *Ring) Ready() (first, end uint32) {
	return r.cqHead, atomic.LoadUint32(r.CQTail) // acquire: the completions come after it
}

// Completion returns the completion at a position that Ready returned. It is valid until Reaped.
func (r *Ring) Completion(position uint32) *CQE { return &r.CQEs[position&r.cqMask] }

// Reaped gives the completions before position back to the kernel.
func (r *Ring) Reaped(position uint32) {
	r.cqHead = position
	atomic.StoreUint32(r.CQHead, position) // release: the completions were read before it
}

// Overflown reports whether the kernel keeps completions that did not fit the queue. The next Poll or Wait brings them,
// as far as there is room.
func (r *Ring) Overflown() bool { return atomic.LoadUint32(r.SQFlags)&sqCQOverflow != 0 }

// Dropped is the number of completions that are lost, because the kernel had no memory to keep them.
func (r *Ring) Dropped() uint32 { return atomic.LoadUint32(r.CQOverflow) }

// CQSpace is the number of completions that fit the queue now.
func (r *Ring) CQSpace() int {
	return len(r.CQEs) - int(atomic.LoadUint32(r.CQTail)-r.cqHead)
}
