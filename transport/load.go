package transport

import "sync/atomic"

// Load is how full a transport is, as of the end of its last Wait.
type Load struct {
	Waiting int // completions that have come and were not handed out
	Entries int // those that it holds before it slows accepting and arming down
}

// Ratio is Waiting as a part of Entries; zero without Entries.
func (l Load) Ratio() float64 {
	if l.Entries == 0 {
		return 0
	}
	return float64(l.Waiting) / float64(l.Entries)
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
