package pipelinetest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"syscall"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// WriteInbound delivers msgs as if they had come from the peer: a []byte, a string or the bytes of a *buffer.Buf (which
// it borrows) as the *buffer.Buf that a socket would give, each in a block that is overwritten as soon as the handlers
// have returned without retaining it. Anything else comes as it is, for handlers behind a decoder. Pieces are not
// joined; what is longer than a block of 64 KiB comes in several. While reading is paused or there is no grant, they
// wait.
func (c *Channel) WriteInbound(msgs ...any) {
	c.l.t.Helper()
	if c.peerEnd != nil && !c.closed {
		c.l.t.Fatalf("pipelinetest: the peer cannot send after it has finished: %v", c.peerEnd)
	}
	c.play(func() {
		for _, m := range msgs {
			switch v := m.(type) {
			case []byte:
				c.write(v)
			case string:
				c.write([]byte(v))
			case *buffer.Buf:
				c.write(v.Bytes())
			default:
				c.feed(m)
			}
		}
	})
}

// WriteInboundSplit is WriteInbound of b in pieces of n bytes, each in a turn of its own: decoders must not mind.
func (c *Channel) WriteInboundSplit(b []byte, n int) {
	c.l.t.Helper()
	for piece := range slices.Chunk(b, n) {
		c.WriteInbound(piece)
	}
}

// play lets the peer do something, as soon as there is one.
func (c *Channel) play(fn func()) {
	c.l.t.Helper()
	if c.peer == nil {
		c.early = append(c.early, fn)
		return
	}
	c.l.act(fn)
}

func (c *Channel) write(b []byte) {
	c.sent += int64(len(b))
	c.peer.Write(b)
}

// marker is the byte that the peer sends in the place of a message.
const marker = 0xA7

// feeder stands at the head and fires messages in the place of their markers.
type feeder struct {
	c    *Channel
	at   int64 // where in the stream what comes next begins
	msgs []fed
}

type fed struct {
	at  int64
	msg any
}

// feed sends msg.
func (c *Channel) feed(msg any) {
	if c.feeder == nil {
		c.feeder = &feeder{c: c, at: c.peer.Taken()}
	}
	if c.ctx != nil && !c.closed {
		c.installFeeder()
	}
	c.feeder.msgs = append(c.feeder.msgs, fed{c.sent, msg})
	c.write([]byte{marker})
}

// installFeeder puts the feeder before all others, where it may not stand any more.
func (c *Channel) installFeeder() {
	const name = "pipelinetest feeder"
	p := c.Pipeline()
	if names := p.Names(); len(names) > 0 && names[0] == name {
		return
	}
	_, _ = p.Remove(name)
	if err := p.AddFirst(name, c.feeder); err != nil {
		c.l.failure = err.Error()
	}
}

// ChannelRead fires what msg stands for.
func (f *feeder) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf).Bytes()
	at := f.at
	f.at += int64(len(b))
	if len(f.msgs) > 0 && f.msgs[0].at == at {
		if msg = f.msgs[0].msg; len(b) != 1 || b[0] != marker {
			f.c.l.failure = "the first message that is not bytes came while reading was paused in the middle of a batch"
		}
		f.msgs = f.msgs[1:]
	}
	ctx.FireRead(msg)
	return nil
}

// PeerClose makes the peer finish sending, after all it has sent; it still takes what is written.
func (c *Channel) PeerClose() {
	c.l.t.Helper()
	c.play(c.peerCloses)
}

func (c *Channel) peerCloses() {
	c.peerEnd = io.EOF
	c.peer.CloseWrite()
}

// PeerReset breaks the connection, after all that the peer has sent.
func (c *Channel) PeerReset() {
	c.l.t.Helper()
	c.play(func() {
		c.peerEnd = syscall.ECONNRESET
		c.peer.Reset()
	})
}

// Paused reports whether a handler pauses reading.
func (c *Channel) Paused() bool { return !c.Pipeline().Reading() }

// Stashed is the number of messages that the kernel holds back because nothing is received.
func (c *Channel) Stashed() int { return c.peer.Unread() }

// tail gets what came through to the end of the pipelines.
type tail struct{ l *Loop }

// Message records a message. It borrows msg until return.
func (t tail) Message(ch *channel.Channel, msg any) {
	switch m := msg.(type) {
	case *buffer.Buf:
		msg = append([]byte{}, m.Bytes()...)
	case []byte:
		msg = append([]byte{}, m...)
	}
	c := t.l.of[ch]
	c.inbound = append(c.inbound, msg)
}

// Event records an event.
func (t tail) Event(ch *channel.Channel, event any) {
	c := t.l.of[ch]
	c.events = append(c.events, event)
}

// Error records an error that closes the channel, or comes too late to close it.
func (t tail) Error(ch *channel.Channel, err error) {
	c := t.l.of[ch]
	late := errors.Is(err, pipeline.ErrClosed) && (!c.Open() || c.peer.Broken()) // of who writes and did not know yet
	if c.uncaught == nil && !late {
		c.uncaught = err
	}
}

// ReadInbound returns the oldest message that came through to the end of the pipeline, nil when there is none. Bytes
// (*buffer.Buf, []byte) are recorded as a []byte of their own.
func (c *Channel) ReadInbound() any {
	if len(c.inbound) == 0 {
		return nil
	}
	m := c.inbound[0]
	c.inbound = c.inbound[1:]
	return m
}

// Inbound returns all messages that came through to the end since the last call.
func (c *Channel) Inbound() []any {
	m := c.inbound
	c.inbound = nil
	return m
}

// InboundString is Inbound for messages that are bytes or strings, joined. Another message fails the test.
func (c *Channel) InboundString() string {
	c.l.t.Helper()
	var b bytes.Buffer
	for _, m := range c.Inbound() {
		switch v := m.(type) {
		case []byte:
			b.Write(v)
		case string:
			b.WriteString(v)
		default:
			c.l.t.Fatalf("pipelinetest: inbound message %T is not bytes", m)
		}
	}
	return b.String()
}

// Events returns the events of FireEvent that came through to the end since the last call.
func (c *Channel) Events() []any {
	e := c.events
	c.events = nil
	return e
}

// Outbound returns the bytes that the kernel took since the last call.
func (c *Channel) Outbound() []byte {
	if c.peer == nil {
		return nil
	}
	return c.peer.Read(nil)
}

// OutboundString is Outbound as a string.
func (c *Channel) OutboundString() string { return string(c.Outbound()) }

// FinSent reports whether the channel has finished sending.
func (c *Channel) FinSent() bool { return c.peer.Finished() }

// Stall makes the kernel take nothing from now on.
func (c *Channel) Stall() { c.peer.Stall() }

// Drain makes a stalled kernel take up to n bytes, of what is flushed now or later. It returns how many it took now.
func (c *Channel) Drain(n int) int {
	c.l.t.Helper()
	before := c.peer.Received()
	c.l.act(func() { c.peer.Allow(n) })
	return int(c.peer.Received() - before)
}

// Unstall makes the kernel take everything again.
func (c *Channel) Unstall() {
	c.l.t.Helper()
	c.l.act(c.peer.Unstall)
}

// Pending is Context.Pending.
func (c *Channel) Pending() int { return c.ctx.Pending() }

// Writable is Context.Writable.
func (c *Channel) Writable() bool { return c.ctx.Writable() }

// SetPending makes Pending n as it is now, by bytes that no handler wrote: it plays a stalled peer without data.
// SetPending(0) takes them away when nothing else is pending. They are a handler's at the head, which the first call
// adds.
func (c *Channel) SetPending(n int) {
	c.l.t.Helper()
	c.l.act(func() {
		p := c.real.Pipeline()
		if p.Context(holderName) == nil {
			if err := p.AddFirst(holderName, visitor{}); err != nil {
				c.l.t.Fatalf("pipelinetest: SetPending(%d): %v", n, err)
			}
		}
		more := max(n-c.Pending(), -c.extra)
		c.extra += more
		p.Context(holderName).Hold(more)
	})
}
