package x

import "github.com/weirnet/weir/buffer"

// Nothing does something with b.
func Nothing(b *buffer.Buf) {} // want "Nothing takes"

// Borrows borrows b
// and s until return.
func Borrows(b, s *buffer.Buf) {}

// Borrowed: both are borrowed until return.
func Borrowed(a, b *buffer.Buf) {}

// Takes takes ownership of b, also on error.
func Takes(b *buffer.Buf) error { return nil }

// Retains retains b: it takes its own reference, the caller keeps its own.
func Retains(b *buffer.Buf) {}

// Answers returns owned: b with something behind it.
func Answers(b *buffer.Buf) *buffer.Buf { return b }

// OnlyBorrows borrows b. It is not said until when, and "until" comes too late.
func OnlyBorrows(b *buffer.Buf) {} // want "OnlyBorrows takes"

// Many appends the Bufs.
func Many(bs ...*buffer.Buf) {} // want "Many takes"

// Slice appends the Bufs.
func Slice(n int, bs []*buffer.Buf) {} // want "Slice takes"

func unexported(b *buffer.Buf) {}

// Result takes nothing.
func Result() *buffer.Buf { return nil }

// T is a type.
type T[X any] struct{}

func (t *T[X]) Method(b *buffer.Buf) {} // want "Method takes"

type hidden struct{}

func (h hidden) Method(b *buffer.Buf) {}

// Owner is an interface.
type Owner interface {
	// Silent gets b.
	Silent(b *buffer.Buf) // want "Silent takes"
	// Told takes ownership of b.
	Told(b *buffer.Buf)
	Beside(b *buffer.Buf) // borrows b until return
	Other()
}
