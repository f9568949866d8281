package ring

import (
	"syscall"
	"time"
	"unsafe"
)

// Kernel stands in for the kernel behind a Ring, so that tests can script it: it reads entries from and writes
// completions to the memory that the ring maps, as the kernel would. Its methods are called on the ring's goroutine.
type Kernel interface {
	// Attach is called once, with the memory both sides share.
	Attach(s *Shared)
	// Enter is io_uring_enter(2). A negative timeout means none.
	Enter(submit, minimum, flags uint32, timeout time.Duration) (int, syscall.Errno)
	// RegisterBuffers registers a buffer ring at an address as a group, and UnregisterBuffers ends that: the parts of
	// io_uring_register(2) that a Ring cannot do without.
	RegisterBuffers(group uint16, address uintptr, entries uint32) syscall.Errno
	UnregisterBuffers(group uint16) syscall.Errno
	// Close is called when the ring is closed.
	Close()
}

// Shared is the memory of a ring that both sides use. Each index has one writer; see the package's overview for their
// order.
type Shared struct {
	SQHead     *uint32 // written by the kernel
	SQTail     *uint32 // written by the ring
	SQFlags    *uint32 // written by the kernel
	CQHead     *uint32 // written by the ring
	CQTail     *uint32 // written by the kernel
	CQOverflow *uint32 // written by the kernel: completions dropped
	SQEs       []SQE
	CQEs       []CQE
}

// offsets in the mapping that stands for a ring's when there is a Kernel. The indexes have cache lines of their own.
const (
	fakeSQHead     = 0
	fakeSQTail     = 64
	fakeSQFlags    = 128
	fakeCQHead     = 192
	fakeCQTail     = 256
	fakeCQOverflow = 320
	fakeEntries    = 384
)

// openFake maps memory that only this process looks at.
func openFake(cfg Config) (*Ring, error) {
	cqes := fakeEntries
	sqes := cqes + int(cfg.CQEntries)*cqeBytes
	mem, err := mapAnonymous(sqes + int(cfg.Entries)*sqeBytes)
	if err != nil {
		return nil, err
	}
	r := &Ring{kernel: cfg.Kernel, mappings: [][]byte{mem}}
	r.Shared = Shared{
		SQHead: word(mem, fakeSQHead), SQTail: word(mem, fakeSQTail), SQFlags: word(mem, fakeSQFlags),
		CQHead: word(mem, fakeCQHead), CQTail: word(mem, fakeCQTail), CQOverflow: word(mem, fakeCQOverflow),
		CQEs: view[CQE](mem, cqes, int(cfg.CQEntries)),
		SQEs: view[SQE](mem, sqes, int(cfg.Entries)),
	}
	r.flags = SubmitAll | CQSize | Clamp | SingleIssuer | DeferTaskrun | NoSQArray
	r.features = required
	cfg.Kernel.Attach(&r.Shared)
	if err := r.finish(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// fakeRegister is io_uring_register(2) with a Kernel.
func fakeRegister(k Kernel, opcode uint8, arg unsafe.Pointer) (int, syscall.Errno) {
	switch opcode {
	case registerPbufRing:
		// SAFETY: for this opcode arg is a struct io_uring_buf_reg.
		reg := (*bufferReg)(arg)
		return 0, k.RegisterBuffers(reg.group, uintptr(reg.ringAddress), reg.entries)
	case unregisterPbufRing:
		// SAFETY: as above.
		return 0, k.UnregisterBuffers((*bufferReg)(arg).group)
	}
	return 0, syscall.EINVAL
}
