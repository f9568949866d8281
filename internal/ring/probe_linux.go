package ring

import (
	"unsafe"
)

const probeOps = 256

// probe is struct io_uring_probe with its operations.
type probe struct {
	last uint8
	ops  uint8
	_    uint16
	_    [3]uint32
	op   [probeOps]probeOp
}

type probeOp struct {
	op    uint8
	_     uint8
	flags uint16
	_     uint32
}

// Opcodes tells which operations the kernel has.
type Opcodes [probeOps]bool

// Has reports whether the kernel has an operation.
func (o *Opcodes) Has(opcode uint8) bool { return o[opcode] }

// Probe asks the kernel for its operations. It returns nil when the kernel does not tell: before 5.6.
func (r *Ring) Probe() *Opcodes {
	var p probe
	// SAFETY: the struct has the kernel's layout and outlives the call.
	if _, errno := r.register(registerProbe, unsafe.Pointer(&p), probeOps); errno != 0 {
		return nil
	}
	var o Opcodes
	for i := range p.op {
		o[i] = i < int(p.ops) && p.op[i].flags&probeOpSupported != 0
	}
	return &o
}

// LimitWorkers bounds the kernel's worker threads of this ring, for files and for everything else. Kernels before 5.15
// refuse; what they do then is bounded by RLIMIT_NPROC.
func (r *Ring) LimitWorkers(files, other uint32) {
	limits := [2]uint32{files, other}
	// SAFETY: the array has the kernel's layout and outlives the call.
	_, _ = r.register(registerIOWQMaxWorkers, unsafe.Pointer(&limits), 2)
}
