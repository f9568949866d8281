package transporttest

import (
	"errors"
	"io"
	"math/rand/v2"
	"syscall"

	"github.com/weirnet/weir/transport"
)

func churnClaims() []claim {
	return []claim{
		{name: "in any mix of operations each ends once and no byte is lost, doubled or misplaced", run: churn},
	}
}

// party is one side of a connection under random operations, with the model of what it may see.
type party struct {
	s      sock
	peer   *party
	want   []byte // what it sends in the course of time
	sent   int    // submitted
	send   *call
	recv   *call
	watch  *call
	got    []byte
	eof    bool
	fin    bool // CloseWrite was submitted
	closed bool
	dirty  bool // a Send was cut off, or the connection reset: the peer gets a prefix only
}

// churn does random things to a set of connections that are replaced when they end.
func churn(r *rig) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 3))
		h := r.server().listen(transport.SocketConfig{})
		var parties []*party
		for range 8 {
			parties = append(parties, r.parties(h, rng)...)
		}
		for range 1500 {
			p := parties[rng.IntN(len(parties))]
			p.act(rng)
			if rng.IntN(3) == 0 {
				r.turn()
			}
			for _, q := range parties {
				q.look()
			}
			if rng.IntN(100) == 0 {
				parties = append(parties, r.parties(h, rng)...)
			}
		}
		r.drain(parties)
		r.done(r.server().close(h))
	}
}

func (r *rig) parties(h transport.Handle, rng *rand.Rand) []*party {
	socket := transport.SocketConfig{}
	if rng.IntN(2) == 0 {
		socket = smallBuffers()
	}
	l := r.linksTo(r.client(), r.server(), h, 1, socket)[0]
	a := &party{s: l.a, want: payload(rng.Uint64(), 300_000)}
	b := &party{s: l.b, want: payload(rng.Uint64(), 300_000), peer: a}
	a.peer = b
	return []*party{a, b}
}

// act does one random thing that the contract allows.
func (p *party) act(rng *rand.Rand) {
	if p.closed {
		return
	}
	switch n := rng.IntN(100); {
	case n < 35:
		if p.recv == nil && p.watch == nil {
			p.recv = p.s.recv(1 + rng.IntN(1<<rng.IntN(18)))
		}
	case n < 65:
		if p.send == nil && !p.fin && !p.dirty && p.sent < len(p.want) {
			n := 1 + rng.IntN(min(1<<rng.IntN(18), len(p.want)-p.sent))
			p.send = p.s.sendPieces(p.want[p.sent:p.sent+n], 1+rng.IntN(20_000))
			p.sent += n
		}
	case n < 75:
		if p.recv != nil {
			p.s.e.cancel(p.recv)
		}
	case n < 82:
		if p.recv == nil && p.watch == nil {
			p.watch = p.s.watch()
		}
	case n < 90:
		if p.watch != nil {
			p.s.e.cancel(p.watch)
		}
	case n < 93:
		if p.send != nil {
			p.s.e.cancel(p.send)
		}
	case n < 96:
		if p.send == nil && !p.fin {
			p.fin = true
			p.s.closeWrite()
		}
	case n < 98:
		p.end(p.s.close)
	case n < 99:
		p.peer.dirty, p.dirty = true, true
		p.end(p.s.reset)
	}
}

// end closes p. Data that it has not read makes the kernel reset the connection, so the peer may lose some.
func (p *party) end(how func() *call) {
	p.closed = true
	if !p.eof || p.send != nil {
		p.dirty, p.peer.dirty = true, true
	}
	how()
}

// look takes in what has completed.
func (p *party) look() {
	r := p.s.e.r
	if c := p.recv; c != nil {
		p.got = append(p.got, c.data...)
		c.data = nil
		if c.done {
			p.recv = nil
			p.ended(c, io.EOF)
			p.eof = p.eof || errors.Is(c.err, io.EOF)
		}
		r.prefix("bytes of a churned connection", p.got, p.peer.want[:p.peer.sent])
	}
	if c := p.send; c != nil && c.done {
		p.send = nil
		if c.err != nil {
			p.dirty, p.peer.dirty = true, true
		}
		p.ended(c, syscall.EPIPE)
	}
	if c := p.watch; c != nil && c.done {
		p.watch = nil
		p.ended(c, nil)
	}
}

// ended checks the error of an operation.
func (p *party) ended(c *call, usual error) {
	r := p.s.e.r
	r.Helper()
	switch {
	case c.err == nil, errors.Is(c.err, transport.ErrCanceled), usual != nil && errors.Is(c.err, usual):
	case errors.Is(c.err, syscall.ECONNRESET), errors.Is(c.err, syscall.EPIPE):
		if !p.dirty && !p.peer.dirty && !p.peer.closed {
			r.Fatalf("%v failed on a connection that nobody broke", c)
		}
	default:
		r.Fatalf("unexpected end: %v", c)
	}
}

// drain finishes every connection that is still whole and checks that both sides got everything.
func (r *rig) drain(parties []*party) {
	r.until("the end of all connections", func() bool {
		whole := true
		for _, p := range parties {
			p.look()
			whole = p.wind() && whole
		}
		return whole
	})
	for _, p := range parties {
		if p.closed || p.dirty || p.peer.dirty || p.peer.closed {
			continue
		}
		r.same("bytes of a connection that ended well", p.got, p.peer.want[:p.peer.sent])
	}
	for _, p := range parties {
		if !p.closed {
			p.closed = true
			p.s.close()
		}
	}
}

// wind brings p to its end: FIN sent and EOF read, or, when the connection is not whole any more, nothing under way. It
// reports whether that is so.
func (p *party) wind() bool {
	if p.closed {
		return true
	}
	if p.watch != nil {
		p.s.e.cancel(p.watch)
		return false
	}
	if p.dirty {
		for _, c := range []*call{p.recv, p.send} {
			if c != nil {
				p.s.e.cancel(c)
			}
		}
		return p.recv == nil && p.send == nil
	}
	if p.send == nil && !p.fin {
		p.fin = true
		p.s.closeWrite()
	}
	if p.recv == nil && !p.eof {
		p.recv = p.s.recv(1 << 20)
	}
	return p.eof && p.send == nil
}
