package ring

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAnonymous returns zeroed memory outside the Go heap. It starts on a page and is touched lazily.
func mapAnonymous(size int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("ring: mmap of %d bytes: %w", size, err)
	}
	return mem, nil
}

// word returns the 32 bits at off, which is a multiple of four.
func word(mem []byte, off int) *uint32 {
	_ = mem[off+3]
	// SAFETY: the four bytes are inside mem, which is a mapping and so stays where it is; mappings start on a page and
	// off is a multiple of four, so the word is aligned.
	return (*uint32)(unsafe.Pointer(&mem[off]))
}

// view returns n values of type T, which has no pointers, from off on.
func view[T any](mem []byte, off, n int) []T {
	var t T
	if n == 0 {
		return nil
	}
	_ = mem[off+n*int(unsafe.Sizeof(t))-1]
	// SAFETY: the bytes are inside mem, which is a mapping and so stays where it is; callers lay out mem so that off is
	// a multiple of T's alignment. T has no pointers, so the collector need not know.
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[off])), n)
}

// address is where p's bytes are; zero for an empty p.
func address(p []byte) uintptr {
	// SAFETY: only the number is kept. Callers keep the memory reachable until the kernel is done with it, and neither
	// mappings nor heap objects move.
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))
}
