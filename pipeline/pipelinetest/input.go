package pipelinetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"github.com/weirnet/weir/buffer"
)

const (
	blockBytes   = 16 << 10 // a receive block
	discardBytes = 1 << 20  // input thrown away while closing
)

// input is the read side: what the peer has sent and the handlers have not got.
type input struct {
	queue []any // *buffer.Buf owned
	end   error // what ends it, not yet told
	peer  error // what the peer did: io.EOF, ECONNRESET

	armed     bool
	limit     int // of the receive that is armed, bytes
	got       int
	debt      int
	noGrant   bool
	closed    bool // EOF was told
	discarded int
}

// WriteInbound delivers msgs as if they had come from the peer, followed by ChannelReadComplete: a []byte or string as the
// *buffer.Buf a socket would give (of a block that is overwritten as soon as the handlers have returned without retaining
// it), anything else as it is, for handlers behind a decoder. A *buffer.Buf is retained: the caller keeps its own
// reference. While reading is paused or there is no grant, they wait, in order, for a resume.
func (c *Channel) WriteInbound(msgs ...any) {
	c.l.t.Helper()
	c.l.act(func() {
		for _, m := range msgs {
			c.enqueue(m)
		}
		if c.state == stateActive {
			c.read()
		}
		c.dirty = true
	})
}

// WriteInboundSplit is WriteInbound of b in pieces of n bytes, each in a turn of its own: decoders must not mind.
func (c *Channel) WriteInboundSplit(b []byte, n int) {
	c.l.t.Helper()
	for piece := range slices.Chunk(b, n) {
		c.WriteInbound(piece)
	}
}

func (c *Channel) enqueue(m any) {
	in := &c.in
	if in.peer != nil {
		c.l.t.Fatalf("pipelinetest: the peer cannot send after it has finished: %v", in.peer)
	}
	if c.state >= stateClosing {
		if n, ok := size(m); ok {
			in.discarded += n
		}
		if in.discarded > discardBytes && in.end == nil {
			in.end = io.EOF // as good as
		}
		return
	}
	switch v := m.(type) {
	case []byte:
		m = c.lend(v)
	case string:
		m = c.lend([]byte(v))
	case *buffer.Buf:
		m = v.Retain()
	}
	in.queue = append(in.queue, m)
}

func size(m any) (int, bool) {
	switch v := m.(type) {
	case []byte:
		return len(v), true
	case string:
		return len(v), true
	case *buffer.Buf:
		return v.Len(), true
	}
	return 0, false
}

// lend answers b in a block as a transport lends it.
func (c *Channel) lend(b []byte) *buffer.Buf {
	if len(b) > 1<<20 {
		buf := c.l.pool.Get(len(b))
		buf.Append(b)
		return buf
	}
	buf := c.l.pool.Lend(lender{c.l.pool}, c.l.pool.Block(max(blockBytes, len(b))))
	buf.Append(b)
	return buf
}

// lender overwrites what comes back: who looks at a borrowed Buf later sees that.
type lender struct{ pool *buffer.Pool }

func (l lender) Returned(b *buffer.Buf) {
	mem := l.pool.Reclaim(b)
	mem[0] = 0xDB
	for n := 1; n < len(mem); n *= 2 { // in strides: the race detector looks at each access
		copy(mem[n:], mem[:n])
	}
	l.pool.PutBlock(mem)
}

func (l lender) Left(*buffer.Buf) {}

// PeerClose makes the peer finish sending, after all it has sent; it still takes what is written.
func (c *Channel) PeerClose() { c.peerEnds(io.EOF) }

// PeerReset breaks the connection, after all that the peer has sent: the channel closes with syscall.ECONNRESET in its
// cause as soon as it has been read, or when it writes.
func (c *Channel) PeerReset() { c.peerEnds(syscall.ECONNRESET) }

func (c *Channel) peerEnds(err error) {
	c.l.act(func() {
		in := &c.in
		if c.state == stateClosed || in.peer != nil && !errors.Is(in.peer, io.EOF) {
			return
		}
		in.peer = err
		switch {
		case in.closed && err != io.EOF:
			socket{c}.Abort(fmt.Errorf("pipelinetest: connection broke while half-closed: %w", err))
		case !in.closed:
			in.end = err
		}
		if c.state == stateActive {
			c.read()
		}
		c.dirty = true
	})
}

// read hands out what has come in while nobody objects.
func (c *Channel) read() {
	in := &c.in
	delivered := false
	for len(in.queue) > 0 && c.mayRead() {
		m := in.queue[0]
		in.queue = in.queue[1:]
		delivered = true
		c.deliver(m)
	}
	if delivered {
		c.pipe.Pipeline().FireReadComplete()
	}
	if c.state != stateActive {
		return
	}
	switch {
	case in.end == nil:
		c.mayRead() // arms, and asks the GrantHandlers
	case c.held() || len(in.queue) > 0:
		if !c.pausedEnd.armed {
			c.pausedEnd.Reset(c.cfg.PausedCloseTimeout)
		}
	default:
		end := in.end
		in.end = nil
		c.endInput(end)
	}
}

func (c *Channel) deliver(m any) {
	b, ok := m.(*buffer.Buf)
	if !ok {
		c.pipe.Pipeline().FireRead(m)
		return
	}
	defer b.Release() // also when a handler panics
	n := b.Len()
	c.pipe.Pipeline().FireRead(b)
	in := &c.in
	in.got += n
	if in.got >= in.limit {
		in.armed = false
		in.debt += in.got - in.limit
	}
}

// held tells whether input must wait.
func (c *Channel) held() bool { return c.resumeDue || !c.pipe.Pipeline().Reading() }

// mayRead arms a receive with a grant when none is armed. It answers false when input must wait.
func (c *Channel) mayRead() bool {
	in := &c.in
	if c.state != stateActive || c.held() || in.noGrant {
		in.armed = in.armed && !c.held()
		return false
	}
	for !in.armed {
		n, retry := c.pipe.ReadGrant()
		pay := min(n, in.debt)
		in.debt -= pay
		in.limit, in.got = n-pay, 0
		in.armed = in.limit > 0
		if in.armed || retry <= 0 && pay > 0 {
			continue
		}
		in.noGrant = true
		if retry > 0 {
			c.retryGrant.Reset(retry)
		}
		return false
	}
	return true
}

// resume lets the handlers go on with what they held back, then hands out what the channel did.
func (c *Channel) resume() {
	if c.state != stateActive || !c.pipe.Pipeline().Reading() || !c.pipe.FireResume() {
		return
	}
	c.read()
	if c.pipe.Pipeline().Reading() {
		c.pausedEnd.Stop()
	}
	c.dirty = true
}

func (c *Channel) endInput(err error) {
	if !errors.Is(err, io.EOF) {
		socket{c}.Abort(fmt.Errorf("pipelinetest: receive: %w", err))
		return
	}
	c.in.closed = true
	if !c.pipe.FireReadClosed() {
		c.closeOrderly()
		return
	}
	c.closeWhenBothClosed()
}

func (c *Channel) pausedTooLong() {
	if c.state == stateActive && (c.held() || len(c.in.queue) > 0) {
		socket{c}.Abort(ErrPausedClose)
	}
}

// Paused tells whether a handler pauses reading.
func (c *Channel) Paused() bool { return !c.pipe.Pipeline().Reading() }

// Stashed is the number of messages that wait for a resume or a grant.
func (c *Channel) Stashed() int { return len(c.in.queue) }

// ReadInbound answers the oldest message that came through to the end of the pipeline, nil when there is none. Bytes
// (*buffer.Buf, []byte) are recorded as a []byte of their own.
func (c *Channel) ReadInbound() any {
	if len(c.inbound) == 0 {
		return nil
	}
	m := c.inbound[0]
	c.inbound = c.inbound[1:]
	return m
}

// Inbound answers all messages that came through to the end since the last call.
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

// Events answers the events of FireEvent that came through to the end since the last call.
func (c *Channel) Events() []any {
	e := c.events
	c.events = nil
	return e
}

// drop gives up what was not read.
func (in *input) drop() {
	for _, m := range in.queue {
		if b, ok := m.(*buffer.Buf); ok {
			b.Release()
		}
	}
	in.queue = nil
}
