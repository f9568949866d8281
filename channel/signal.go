package channel

import (
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// signal is a pipeline.Signal: a node of the loop.
type signal struct {
	completer // of whom the loop tells a panic
	node      loop.Node
	fn        func()
}

var (
	_ pipeline.Signal = (*signal)(nil)
	_ loop.Completer  = (*signal)(nil)
)

// NewSignal returns a signal whose fn runs on the loop as this channel's, until the channel is closed.
func (c head) NewSignal(fn func()) pipeline.Signal {
	s := &signal{completer: completer{c.Channel}, fn: fn}
	s.node.Init(s)
	return s
}

// Raise makes the loop run fn, unless the channel is closed by then. Any goroutine.
func (s *signal) Raise() { s.c.loop.Post(&s.node) }

// RunNode runs fn.
func (s *signal) RunNode(*loop.Node) {
	if s.c.life() != pipeline.LifeClosed {
		s.fn()
	}
}
