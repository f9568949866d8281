// Package sys holds the raw system calls of the transports and what they need to set up sockets. It knows nothing of
// transports or loops.
//
// Names ending in Raw, and all functions that say "never blocks", do not tell Go's scheduler about the call: the
// calling goroutine keeps its P. That is right for calls that return at once (120-140 ns against 180-215 ns) and,
// bounded, for waits.
package sys
