package pipelinetest

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// kernel is the simulated transport, which notes what it was asked for.
type kernel struct {
	*sim.Transport
	l *Loop
}

// Submit starts an operation.
func (k kernel) Submit(op transport.Op) {
	switch op.Kind {
	case transport.Recv:
		k.note(op.Handle, "receive")
	case transport.Cancel:
		k.note(op.Handle, "cancel")
	case transport.Send:
		k.note(op.Handle, fmt.Sprintf("send %d", length(op.Bufs)))
	case transport.SendFile:
		k.note(op.Handle, fmt.Sprintf("send file %d", op.File.Length))
	case transport.WatchClose:
		k.note(op.Handle, "watch")
	case transport.CloseWrite:
		k.finishes(k.note(op.Handle, "close-write"))
	case transport.Close:
		k.finishes(k.note(op.Handle, map[bool]string{false: "close", true: "reset"}[op.Reset]))
	}
	k.Transport.Submit(op)
}

// SendNow sends what the kernel takes.
func (k kernel) SendNow(h transport.Handle, bufs []*buffer.Buf) (int, error) {
	k.note(h, fmt.Sprintf("send %d", length(bufs)))
	return k.Transport.SendNow(h, bufs)
}

// note writes it down for the channel with that handle and returns that one.
func (k kernel) note(h transport.Handle, what string) *Channel {
	c := k.l.handles[h]
	if c != nil {
		c.ops = append(c.ops, what)
	}
	return c
}

// finishes has the loop look whether c's peer has to answer a FIN.
func (k kernel) finishes(c *Channel) {
	if c != nil && !c.cfg.SilentPeer {
		k.l.finishing = append(k.l.finishing, c)
	}
}

func length(bufs []*buffer.Buf) (n int) {
	for _, b := range bufs {
		n += b.Len()
	}
	return n
}
