package ring

import un "unsafe"

func none(p *byte) []byte {
	return un.Slice(p, 1) // want "un.Slice without"
}
