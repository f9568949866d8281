package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	arenaVectors = 16 * MaxVectors
	arenaHeaders = 4096
	arenaNames   = 256
	nameBytes    = 128 // struct sockaddr_storage
)

// Arena holds what entries refer to until the kernel has consumed them: vectors, message headers and addresses, in
// anonymous memory. It is emptied as a whole. It belongs to the goroutine of its Ring.
type Arena struct {
	mem     []byte
	vectors []Vector
	headers []MessageHeader
	names   []byte
	v, h, n int // used
}

// NewArena maps an arena.
func NewArena() (*Arena, error) {
	const vectorBytes, headerBytes = 16, 56 // on 64 bits, less on 32
	mem, err := mapAnonymous(arenaVectors*vectorBytes + arenaHeaders*headerBytes + arenaNames*nameBytes)
	if err != nil {
		return nil, err
	}
	headers := arenaVectors * vectorBytes
	names := headers + arenaHeaders*headerBytes
	return &Arena{
		mem:     mem,
		vectors: view[Vector](mem, 0, arenaVectors),
		headers: view[MessageHeader](mem, headers, arenaHeaders),
		names:   mem[names:],
	}, nil
}

// Vectors returns room for n vectors, at most MaxVectors, or nil when the arena is full.
func (a *Arena) Vectors(n int) []Vector {
	if len(a.vectors)-a.v < n {
		return nil
	}
	v := a.vectors[a.v : a.v+n : a.v+n]
	a.v += n
	return v
}

// Header returns a message header, or nil when the arena is full.
func (a *Arena) Header() *MessageHeader {
	if a.h == len(a.headers) {
		return nil
	}
	a.h++
	return &a.headers[a.h-1]
}

// Name copies the struct sockaddr at p, at most 128 bytes, and returns the copy, or nil when the arena is full. It
// borrows p until return.
func (a *Arena) Name(p unsafe.Pointer, size uint32) []byte {
	if a.n+nameBytes > len(a.names) || size > nameBytes {
		return nil
	}
	name := a.names[a.n : a.n+int(size)]
	a.n += nameBytes
	// SAFETY: the caller says that size bytes are at p.
	copy(name, unsafe.Slice((*byte)(p), size))
	return name
}

// Reset empties the arena: the kernel has consumed every entry that refers to it.
func (a *Arena) Reset() { a.v, a.h, a.n = 0, 0, 0 }

// Close unmaps the arena.
func (a *Arena) Close() {
	_ = unix.Munmap(a.mem)
	*a = Arena{}
}
