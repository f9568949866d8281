package sim

import (
	"math"
	"net/netip"

	"github.com/weirnet/weir/transport"
)

// Dialing is a Connect whose outcome the test decides, see Config.Answer. It belongs to the World's goroutine.
type Dialing struct {
	// Config is what was asked for. Its addresses need not be valid.
	Config *transport.DialConfig

	t   *Transport
	src source
	o   *operation
}

func (t *Transport) ask(op transport.Op) {
	d := &Dialing{Config: op.Dial, t: t, src: t.w.source()}
	d.o = t.begin(op, &d.src, func(*operation) {})
	t.w.trace(t, d.src.id, "connects; the test answers")
	t.w.cfg.Answer(d)
}

// Over reports whether the Connect has ended: it was answered or cancelled.
func (d *Dialing) Over() bool { return d.o.ended || d.t.closed }

// Connect makes the connection and returns its other end. It returns nil when the Connect is over.
func (d *Dialing) Connect(local, remote netip.AddrPort) *Peer {
	if d.Over() {
		return nil
	}
	from, to := address{network: "tcp", ap: local}, address{network: "tcp", ap: remote}
	endless := transport.SocketConfig{SendBufferBytes: math.MaxInt32, ReceiveBufferBytes: math.MaxInt32}
	c := d.t.w.newConnection(d.t, from, to, endless, endless)
	c.a.h = d.t.attach(c.a, nil)
	d.o.finish(transport.Completion{Handle: c.a.h, Addr: remote}, nil)
	return &Peer{e: c.b}
}

// Fail ends the Connect with err, unless it is over.
func (d *Dialing) Fail(err error) {
	if !d.Over() {
		d.o.finish(transport.Completion{Err: err}, nil)
	}
}

// Peer is the other end of a connection that the test plays by hand. What it does travels like everything else. Its
// buffers have no bounds but those that Stall sets. It belongs to the World's goroutine.
type Peer struct{ e *endpoint }

// Write sends b. A Recv of the other side never joins bytes of two Writes, nor does its limit cut one that fits into a
// block.
func (p *Peer) Write(b []byte) {
	if p.e.broken || p.e.out.finQueued || len(b) == 0 {
		return
	}
	p.e.out.borders = append(p.e.out.borders, p.e.out.written+int64(len(b)))
	p.e.out.write(b)
}

// Unread is the number of Writes that the other side has not received completely.
func (p *Peer) Unread() int { return len(p.e.out.borders) }

// Taken is how many bytes it has received.
func (p *Peer) Taken() int64 { return p.e.out.read }

// CloseWrite sends FIN.
func (p *Peer) CloseWrite() {
	if !p.e.broken && !p.e.out.finQueued {
		p.e.out.finQueued = true
		p.e.out.transmit()
	}
}

// Reset breaks the connection.
func (p *Peer) Reset() { p.e.sendReset() }

// Read appends what has arrived by now to dst and returns it.
func (p *Peer) Read(dst []byte) []byte {
	p.e.w.runTo(p.e.w.now)
	from := len(dst)
	dst = append(dst, make([]byte, p.e.in.unread())...)
	p.e.in.take(dst[from:])
	p.e.w.fail(p.e.in.hand(dst[from:]))
	return dst
}

// Finished reports whether the other side's FIN has arrived.
func (p *Peer) Finished() bool { return p.e.in.finArrived }

// Broken reports whether a reset went or came.
func (p *Peer) Broken() bool { return p.e.broken }

// Received is how many bytes the other side has sent so far, as far as its kernel took them.
func (p *Peer) Received() int64 { return p.e.in.written }

// Stall makes the other side's kernel take no more bytes to send than those that Allow grants from now on.
func (p *Peer) Stall() { p.e.in.throttled, p.e.in.allowance = true, 0 }

// Allow lets a stalled kernel take n bytes more.
func (p *Peer) Allow(n int) {
	p.e.in.allowance += n
	p.e.in.from.push()
}

// Unstall lets it take everything again.
func (p *Peer) Unstall() {
	p.e.in.throttled = false
	p.e.in.from.push()
}

// Handle is the Handle of the other side.
func (p *Peer) Handle() transport.Handle { return p.e.in.from.h }
