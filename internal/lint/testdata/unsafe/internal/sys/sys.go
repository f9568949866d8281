package sys

import "unsafe"

const size = unsafe.Sizeof(0)

type header struct {
	p unsafe.Pointer
}

func above(p *int) unsafe.Pointer {
	// SAFETY: the caller keeps p alive.
	return unsafe.Pointer(p)
}

func beside(p *int) unsafe.Pointer {
	return unsafe.Pointer(p) // SAFETY: the caller keeps p alive.
}

// around has a reason for all of it.
//
// SAFETY: the caller keeps p alive.
func around(p *int) unsafe.Pointer {
	if p == nil {
		return nil
	}
	return unsafe.Pointer(p)
}

func block(p *int) []int {
	// SAFETY: p points to two numbers.
	for range 2 {
		_ = p
		return unsafe.Slice(p, 2)
	}
	return nil
}

func none(p *int) unsafe.Pointer {
	return unsafe.Pointer(p) // want "unsafe.Pointer without"
}

func other(p *int) unsafe.Pointer {
	// It is safe.
	return unsafe.Pointer(p) // want "unsafe.Pointer without"
}

func far(p *int) unsafe.Pointer {
	// SAFETY: this is about the next line only.
	q := p

	return unsafe.Pointer(q) // want "unsafe.Pointer without"
}

func twice(p *int, n uintptr) *int {
	x := unsafe.Add(nil, n) // want "unsafe.Add without"
	_ = x
	return (*int)(unsafe.Pointer(p)) // want "unsafe.Pointer without"
}
