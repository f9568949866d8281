//go:build !linux

package loop

// threadID names the calling goroutine: a thread that a goroutine is locked to runs no other, so that inside a loop
// both tell the same. It is slower than a thread's id. It is never 0.
func threadID() int64 { return goroutineID() }
