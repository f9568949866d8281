package transport

import "sync/atomic"

// Load is how full a transport is, as of the end of its last Wait.
type Load struct {
	Waiting int // completions that wait to be handed out; on epoll also events that will yield some
	// Entries is what Waiting is measured by: the length of a ring's completion queue, which arms less from 75 % on, or
	// of a batch of events.
	Entries int
}

// LoadGauge is what a transport keeps its Load in. The transport's goroutine sets it, any may read it.
type LoadGauge struct {
	packed atomic.Uint64
	shown  uint64 // of the transport's goroutine
}

// Set publishes the load; it costs a comparison when nothing has changed.
func (g *LoadGauge) Set(waiting, entries int) {
	v := uint64(uint32(entries))<<32 | uint64(uint32(waiting))
	if v != g.shown {
		g.shown = v
		g.packed.Store(v)
	}
}

// Load returns what was published last. Any goroutine.
func (g *LoadGauge) Load() Load {
	v := g.packed.Load()
	return Load{Waiting: int(uint32(v)), Entries: int(v >> 32)}
}
