package channel

import (
	"fmt"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// completer is how the loop sees a channel.
type completer struct{ c *Channel }

// Complete handles a completion of one of the channel's operations. It borrows cp and its Buf until return.
func (m completer) Complete(cp *transport.Completion) {
	switch transport.Kind(cp.Token.Tag()) {
	case transport.Recv:
		m.c.completeRecv(cp)
	case transport.Send, transport.SendFile:
		m.c.completeSend(cp)
	case transport.WatchClose:
		m.c.completeWatch(cp)
	case transport.CloseWrite:
		m.c.completeFin(cp)
	case transport.Close:
		m.c.finish()
	}
}

// EndTurn does what is done once per turn, however often it was asked for. Each step stands behind those whose outcome
// it needs; what a handler asks for in a step that has passed makes the channel dirty again, and comes in the next
// round.
func (m completer) EndTurn() {
	c := m.c
	c.inDirty = false
	c.runActivate() // first: nothing else happens before
	if c.active() {
		c.endTurnFlush()    // so that what is told next is what the kernel has left
		c.tellWritability() // handlers resume or pause here,
		c.tellPending()     // and here,
		c.settleReading()   // so only now is it known whether to read
	}
	if c.life() == pipeline.LifeClosed {
		c.failFlushed() // what was asked for too late for finish
	} else {
		c.runFlushed() // behind the flush, which may have sent what they wait for
	}
	c.progressClose()    // behind whatever may close or queue; it sends, too
	c.out.detachUnsent() // behind the last send: what is left now outlives the blocks of this turn
	c.hurrySend()        // behind whatever may wait for it
	c.publish()          // other goroutines see what is left
	c.returnQueue()      // last: nobody needs it any more if it is empty
}

// RunNode does what was posted to the channel.
func (m completer) RunNode(*loop.Node) {
	c := m.c
	if c.life() == pipeline.LifeClosed {
		c.finish()
		return
	}
	if c.resumeDue {
		c.resumeDue = false
		c.resume()
	}
	if c.post != nil {
		c.post.drain()
	}
}

// Panicked aborts the channel after a panic left one of its callbacks; after one while finishing, it finishes the rest.
func (m completer) Panicked(v any, stack []byte) {
	c := m.c
	name := c.pipe.Pipeline().HandlerIn(stack)
	c.logError("weir: handler panicked, channel closed", "handler", name, "panic", v, "channel", c.ID(),
		"remote", c.RemoteAddrPort(), "stack", string(stack))
	if c.life() == pipeline.LifeClosed {
		c.finishGuarded()
		return
	}
	c.Abort(fmt.Errorf("%w: %s: %v", ErrPanic, name, v))
	if c.post != nil {
		c.loop.Post(&c.node) // what was accepted before the panic still runs
	}
}

// Abort closes the channel because its loop goes away. The second call is the loop's last: no completion will come.
func (m completer) Abort(cause error) {
	c := m.c
	if !c.loopGone {
		c.loopGone = true
		c.Abort(cause)
		return
	}
	if c.cause == nil {
		c.cause = cause
	}
	for c.finishStep < finishDone {
		c.finish()
	}
}

var _ loop.Completer = completer{}
