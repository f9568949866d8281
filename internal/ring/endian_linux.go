package ring

import (
	"encoding/binary"
)

// bigEndian tells how this machine orders the bytes of a word.
func bigEndian() bool {
	return binary.NativeEndian.Uint16([]byte{0, 1}) == 1
}

// pollWord orders the halves of an entry's 32-bit poll mask: io_uring_enter(2) has them swapped on big-endian machines,
// so that the 16-bit mask of old keeps its place.
func pollWord(events uint32) uint32 {
	if bigEndian() {
		return events<<16 | events>>16
	}
	return events
}

// tailWord is the word of a buffer ring that holds the number of the first entry's block and the ring's tail behind it.
func tailWord(first, tail uint16) uint32 {
	if bigEndian() {
		return uint32(first)<<16 | uint32(tail)
	}
	return uint32(tail)<<16 | uint32(first)
}
