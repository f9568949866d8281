package buffer

// SameBlock reports whether b and other live in the same block of memory. Both are borrowed until return.
func (b *Buf) SameBlock(other *Buf) bool {
	return b.root() == other.root()
}

// root is the Buf whose block b's bytes are in: b itself unless b is a view.
func (b *Buf) root() *Buf {
	if b.parent != nil {
		return b.parent
	}
	return b
}
