package loop

import "syscall"

// threadID names the calling thread, which the loop's goroutine is locked to: gettid(2). It is never 0.
func threadID() int64 { return int64(syscall.Gettid()) }
