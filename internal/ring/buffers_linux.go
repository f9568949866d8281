package ring

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bufferEntry is struct io_uring_buf.
type bufferEntry struct {
	address uint64
	length  uint32
	id      uint16
	resv    uint16 // in the first entry: the ring's tail
}

// bufferReg is struct io_uring_buf_reg.
type bufferReg struct {
	ringAddress uint64
	entries     uint32
	group       uint16
	flags       uint16
	resv        [3]uint64
}

const (
	bufferEntryBytes = 16
	tailWordOffset   = 12 // the last word of the first entry
	// MaxBuffers is the most entries the kernel takes in one buffer ring.
	MaxBuffers = 1 << 15
)

// BufferRing is a ring of blocks that the kernel receives into: a queue from this side to the kernel's. It belongs to
// the goroutine of its Ring.
type BufferRing struct {
	ring    *Ring
	mem     []byte
	entries []bufferEntry
	word    *uint32 // the first entry's block and the tail
	tail    uint16
	shown   uint16
	mask    uint16
	group   uint16
}

// RegisterBuffers registers an empty ring of the given length, a power of two up to MaxBuffers, as a group. It needs
// Linux 5.19.
func (r *Ring) RegisterBuffers(group uint16, length int) (*BufferRing, error) {
	if length < 1 || length > MaxBuffers || length&(length-1) != 0 {
		return nil, fmt.Errorf("ring: buffer ring of %d: not a power of two up to %d", length, MaxBuffers)
	}
	mem, err := mapAnonymous(max(length*bufferEntryBytes, pageBytes))
	if err != nil {
		return nil, err
	}
	b := &BufferRing{
		ring: r, mem: mem, entries: view[bufferEntry](mem, 0, length), word: word(mem, tailWordOffset),
		mask: uint16(length - 1), group: group,
	}
	reg := bufferReg{ringAddress: uint64(address(mem)), entries: uint32(length), group: group}
	// SAFETY: the struct has the kernel's layout and outlives the call.
	if _, errno := r.register(registerPbufRing, unsafe.Pointer(&reg), 1); errno != 0 {
		_ = unix.Munmap(mem)
		if errno == unix.ENOMEM {
			return nil, unavailable(errno)
		}
		return nil, fmt.Errorf("%w: no buffer ring of %d, which need Linux 5.19: %w", ErrUnavailable, length, errno)
	}
	return b, nil
}

// Add puts a block into the ring under a number; Publish shows it to the kernel. The caller keeps mem reachable until a
// completion brings the number back, and never has more blocks in the ring than it has entries.
func (b *BufferRing) Add(mem []byte, id uint16) {
	e := &b.entries[b.tail&b.mask]
	e.address = uint64(address(mem))
	e.length = uint32(len(mem))
	e.id = id
	b.tail++
}

// Publish shows the added blocks to the kernel.
func (b *BufferRing) Publish() {
	if b.tail == b.shown {
		return
	}
	b.shown = b.tail
	// The tail has 16 bits and needs a store with release semantics, which Go has for 32 bits only. The half in front
	// of it is the first entry's number, which the kernel only reads: storing it again, unchanged, does no harm. arm64
	// and others keep the order also towards the kernel's 16-bit load, which reads a part of what was stored as one.
	atomic.StoreUint32(b.word, tailWord(b.entries[0].id, b.tail))
}

// Group is the number that receives name.
func (b *BufferRing) Group() uint16 { return b.group }

// Unregister takes the ring from the kernel: from here on it writes into no block of it.
func (b *BufferRing) Unregister() error {
	reg := bufferReg{group: b.group}
	// SAFETY: the struct has the kernel's layout and outlives the call.
	if _, errno := b.ring.register(unregisterPbufRing, unsafe.Pointer(&reg), 1); errno != 0 {
		return fmt.Errorf("ring: unregister buffer ring: %w", errno)
	}
	_ = unix.Munmap(b.mem)
	b.mem, b.entries, b.word = nil, nil, nil
	return nil
}

// register is io_uring_register(2).
func (r *Ring) register(opcode uint8, arg unsafe.Pointer, n uint32) (int, syscall.Errno) {
	if r.kernel != nil {
		return fakeRegister(r.kernel, opcode, arg)
	}
	for {
		// SAFETY: arg is converted in the call's argument list, as package unsafe asks.
		v, _, errno := syscall.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(opcode), uintptr(arg),
			uintptr(n), 0, 0)
		if errno != unix.EINTR {
			return int(v), errno
		}
	}
}
