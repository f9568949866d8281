package pipeline

import (
	"math"
	"slices"

	"github.com/weirnet/weir/internal/invariants"
)

// pendingWatches are the watches of a pipeline's Contexts, with what they have in common, and what they hold. Most
// pipelines have none.
type pendingWatches struct {
	atMost, atLeast int // the largest and the least of list
	list            []pendingWatch
	firing          bool // FirePending walks the list
	holds           []hold
}

// hold is what one Context counts as pending by Hold: more than nothing.
type hold struct {
	ctx   *Context
	bytes int
}

// pending makes the pipeline's watches and holds when they are needed for the first time.
func (p *Pipeline) pending() *pendingWatches {
	if p.watch == nil {
		p.watch = &pendingWatches{}
		p.watch.compact()
	}
	return p.watch
}

// Hold counts n bytes that the handler keeps on their way out as pending; negative n gives them back, as many as it
// has. What is left when HandlerRemoved has returned counts no more, and a removed Context adds nothing.
func (c *Context) Hold(n int) {
	gone := c.state&stateRemoved != 0
	if n > 0 && gone {
		return
	}
	w := c.p.pending()
	i := slices.IndexFunc(w.holds, func(h hold) bool { return h.ctx == c })
	if i < 0 {
		i = len(w.holds)
		w.holds = append(w.holds, hold{ctx: c})
	}
	h := &w.holds[i]
	if invariants.Enabled {
		invariants.Check(gone || h.bytes+n >= 0, "Hold(%d) with %d bytes held", n, h.bytes)
	}
	n = max(n, -h.bytes)
	h.bytes += n
	if h.bytes == 0 {
		w.holds = slices.Delete(w.holds, i, i+1)
	}
	c.p.ch.Hold(n)
}

// dropHold gives back what a Context that has left still counts.
func (p *Pipeline) dropHold(c *Context) {
	if p.watch == nil {
		return
	}
	for _, h := range p.watch.holds {
		if h.ctx == c {
			c.Hold(-h.bytes)
			return
		}
	}
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
	if c.state&stateRemoved != 0 || fn == nil && p.watch == nil {
		return
	}
	p.pending().set(pendingWatch{ctx: c, atMost: atMost, atLeast: atLeast, fn: fn})
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
