package buffer

type Buf struct{}

func Bad(b *Buf) {} // want "Bad takes"

// Good borrows b until return.
func Good(b *Buf) {}
