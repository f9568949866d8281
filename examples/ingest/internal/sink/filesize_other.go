//go:build !linux

package sink

// maxFileBytes is unknown.
func maxFileBytes() uint64 { return 1<<64 - 1 }
