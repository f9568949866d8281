package transporttest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// sock is one side of a connection.
type sock struct {
	e *end
	h transport.Handle
}

// link is a connection: a on the connecting transport, b on the accepting one.
type link struct{ a, b sock }

// smallBuffers keeps the kernel's buffers small, so that a send blocks early.
func smallBuffers() transport.SocketConfig {
	return transport.SocketConfig{SendBufferBytes: 16 << 10, ReceiveBufferBytes: 16 << 10}
}

// listen opens a listener on e.
func (e *end) listen(socket transport.SocketConfig) transport.Handle {
	e.r.Helper()
	cfg := e.r.address()
	cfg.Socket = socket
	return e.listenOn(cfg)
}

func (e *end) listenOn(cfg transport.ListenConfig) transport.Handle {
	e.r.Helper()
	h, err := e.tr.Listen(cfg)
	e.r.must("Listen", err)
	if h == 0 {
		e.r.Fatalf("Listen answered the zero Handle")
	}
	e.handles[h] = true
	return h
}

// address is a fresh configuration to listen with.
func (r *rig) address() transport.ListenConfig {
	cfg := transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0"}
	if r.f.Listen != nil {
		cfg = r.f.Listen(r.listens)
	}
	r.listens++
	return cfg
}

// dialConfig says how to reach the listener h of e.
func (e *end) dialConfig(h transport.Handle, socket transport.SocketConfig) *transport.DialConfig {
	e.r.Helper()
	addr := e.tr.LocalAddr(h)
	if addr == nil {
		e.r.Fatalf("LocalAddr of a listener is nil")
	}
	return &transport.DialConfig{Network: addr.Network(), Address: addr.String(), Socket: socket}
}

func (e *end) accept(h transport.Handle) *call {
	return e.submit(transport.Op{Kind: transport.Accept, Handle: h})
}

// acceptSome accepts at most limit connections, any number for zero.
func (e *end) acceptSome(h transport.Handle, limit int) *call {
	return e.submit(transport.Op{Kind: transport.Accept, Handle: h, Limit: limit})
}

func (e *end) connect(cfg *transport.DialConfig) *call {
	return e.submit(transport.Op{Kind: transport.Connect, Dial: cfg})
}

func (e *end) cancel(target *call) *call {
	return e.submit(cancelOf(&target.op))
}

// cancelOf is the Cancel of op.
func cancelOf(op *transport.Op) transport.Op {
	return transport.Op{Kind: transport.Cancel, Handle: op.Handle, Target: op.Kind, ConnectToken: op.Token}
}

func (e *end) close(h transport.Handle) *call {
	return e.submit(transport.Op{Kind: transport.Close, Handle: h})
}

// link connects the client to the server.
func (r *rig) link() link { return r.links(1, transport.SocketConfig{})[0] }

// tightLink is link with small buffers in the kernel.
func (r *rig) tightLink() link { return r.links(1, smallBuffers())[0] }

// links opens n connections from the client to the server, in order, and closes the listener.
func (r *rig) links(n int, socket transport.SocketConfig) []link {
	r.Helper()
	h := r.server().listen(socket)
	links := r.linksTo(r.client(), r.server(), h, n, socket)
	r.done(r.server().close(h))
	return links
}

// linksTo opens n connections from one transport to the listener h of another, one after the other.
func (r *rig) linksTo(from, to *end, h transport.Handle, n int, socket transport.SocketConfig) []link {
	r.Helper()
	dial := to.dialConfig(h, socket)
	acc := to.accept(h)
	links := make([]link, n)
	for i := range links {
		con := from.connect(dial)
		r.done(con)
		r.must("Connect", con.err)
		r.until("an accepted connection", func() bool { return len(acc.conns) == i+1 || acc.done })
		if acc.done {
			r.Fatalf("Accept ended: %v", acc.err)
		}
		links[i] = link{a: sock{from, con.handle()}, b: sock{to, acc.conns[i]}}
	}
	r.done(to.cancel(acc), acc)
	return links
}

func (s sock) op(kind transport.Kind) *call {
	return s.e.submit(transport.Op{Kind: kind, Handle: s.h})
}

// recv arms a receive; a limit of zero means without end.
func (s sock) recv(limit int) *call {
	if limit == 0 {
		limit = 1 << 40
	}
	return s.e.submit(transport.Op{Kind: transport.Recv, Handle: s.h, Limit: limit})
}

// recvKeep is recv that keeps the Bufs.
func (s sock) recvKeep(limit int) *call {
	c := s.recv(limit)
	c.keep = true
	return c
}

// send sends p in Bufs of at most 64 KiB, which are released at the end.
func (s sock) send(p []byte) *call { return s.sendPieces(p, 64<<10) }

// sendPieces sends p in Bufs of the given size.
func (s sock) sendPieces(p []byte, piece int) *call { return s.sendBufs(s.pieces(p, piece)) }

// pieces returns owned: Bufs of the given size with the bytes of p.
func (s sock) pieces(p []byte, piece int) []*buffer.Buf {
	var bufs []*buffer.Buf
	for len(p) > 0 {
		n := min(piece, len(p))
		b := s.e.tr.Pool().Get(n)
		b.Append(p[:n])
		bufs = append(bufs, b)
		p = p[n:]
	}
	return bufs
}

// sendBufs sends Bufs and releases them at the end.
func (s sock) sendBufs(bufs []*buffer.Buf) *call {
	c := s.e.submit(transport.Op{Kind: transport.Send, Handle: s.h, Bufs: bufs})
	c.own = bufs
	return c
}

func (s sock) watch() *call      { return s.op(transport.WatchClose) }
func (s sock) closeWrite() *call { return s.op(transport.CloseWrite) }
func (s sock) close() *call      { return s.op(transport.Close) }

func (s sock) reset() *call {
	return s.e.submit(transport.Op{Kind: transport.Close, Handle: s.h, Reset: true})
}

// blockedSend sends more than every buffer on the way holds and takes turns until nothing moves any more.
func (s sock) blockedSend(seed uint64) (*call, []byte) {
	s.e.r.Helper()
	p := payload(seed, 4<<20)
	c := s.sendPieces(p, 256<<10)
	s.e.r.quiet()
	if c.done {
		s.e.r.Fatalf("a send of %d bytes to a peer that does not read ended: %v", len(p), c)
	}
	return c, p
}

// payload returns n bytes that depend on seed and position.
func payload(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0x77656972))
	p := make([]byte, n+7)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], rng.Uint64())
	}
	return p[:n]
}

// same fails the test unless got is want.
func (r *rig) same(what string, got, want []byte) {
	r.Helper()
	if bytes.Equal(got, want) {
		return
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	r.Fatalf("%s: %d bytes, want %d; the first difference is at %d", what, len(got), len(want), i)
}

// prefix fails the test unless got is the beginning of want.
func (r *rig) prefix(what string, got, want []byte) {
	r.Helper()
	if len(got) > len(want) {
		r.Fatalf("%s: %d bytes, at most %d were sent", what, len(got), len(want))
	}
	r.same(what, got, want[:len(got)])
}
