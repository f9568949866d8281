package buffer

import "unsafe" // want "buffer must not import unsafe"

// SAFETY: a reason does not help here.
func f(p *int) unsafe.Pointer { return unsafe.Pointer(p) }
