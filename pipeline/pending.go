package pipeline

import (
	"math"
	"slices"
)

// pendingWatches are the watches of a pipeline's Contexts, and what they have in common. Most pipelines have none.
type pendingWatches struct {
	atMost, atLeast int // the largest and the least of list
	list            []pendingWatch
	firing          bool // FirePending walks the list
}

// pendingWatch is what one Context waits for.
type pendingWatch struct {
	ctx             *Context
	atMost, atLeast int
	fn              func(ctx *Context, pendingBytes int) error
}

// WatchPending makes the end of each turn that finds Pending at or below atMost, or at or above atLeast, call fn, from
// the loop and never from inside a Write, until this Context watches for something else: it has one watch. -1 and
// math.MaxInt are marks that are never reached, and a nil fn ends the watch. Between the marks it costs nothing. An
// error of fn is treated like one of an inbound method. The watch ends with the Context and when the channel closes.
func (c *Context) WatchPending(atMost, atLeast int, fn func(ctx *Context, pendingBytes int) error) {
	p := c.p
	if c.state&stateRemoved != 0 {
		return
	}
	if p.watch == nil {
		if fn == nil {
			return
		}
		p.watch = &pendingWatches{}
	}
	p.watch.set(pendingWatch{ctx: c, atMost: atMost, atLeast: atLeast, fn: fn})
	p.ch.Hold(0) // the end of this turn looks
}

// set replaces, adds or takes out the watch of one Context.
func (w *pendingWatches) set(new pendingWatch) {
	i := 0
	for i < len(w.list) && w.list[i].ctx != new.ctx {
		i++
	}
	switch {
	case new.fn != nil && i < len(w.list):
		w.list[i] = new
	case new.fn != nil:
		w.list = append(w.list, new)
	case i < len(w.list):
		w.list[i] = pendingWatch{}
	}
	if !w.firing { // else nobody's place may change now
		w.compact()
	}
}

// compact removes the places of those who have left, and finds the marks that are nearest.
func (w *pendingWatches) compact() {
	w.list = slices.DeleteFunc(w.list, func(p pendingWatch) bool { return p.fn == nil })
	w.atMost, w.atLeast = -1, math.MaxInt
	for i := range w.list {
		w.atMost, w.atLeast = max(w.atMost, w.list[i].atMost), min(w.atLeast, w.list[i].atLeast)
	}
}
