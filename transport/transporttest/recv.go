package transporttest

import (
	"io"
	"math/rand/v2"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

func recvClaims() []claim {
	return []claim{
		{name: "a Recv ends at its limit and overshoots it by less than a block", run: recvLimit},
		{name: "Recvs with limits, one after the other, deliver the whole stream", run: recvLimitsInTurn},
		{name: "what is beyond the limit of a Recv waits for the next one", run: recvLeavesRest},
		{name: "a Recv with an enormous limit is one without end", run: recvWithoutEnd},
		{
			name: "a second Recv on a socket that has one completes with ErrBusy and leaves the first alone",
			run:  recvBusy,
		},
		{name: "every completion of a Recv brings between 1 byte and a block", run: recvBlockSize},
		{name: "a received Buf that is retained keeps its bytes while 1000 more are received", run: recvRetained},
		{
			name: "a received Buf that is retained when less than half full holds a small block",
			run:  recvRetainedSmall, needs: needsLends,
		},
		{name: "keeping all that is received starves no other connection", run: recvKeepsAll},
		{name: "receives go on when blocks come back after all were lent", run: recvAllLent},
		{name: "a received Buf is the caller's alone and may be appended to", run: recvExclusive},
	}
}

func recvLimit(r *rig) {
	block := r.f.BlockBytes
	limits := []int{1, 2, 1000, block - 1, block, block + 1, 2 * block, 3*block - 1, 3*block + 1, 100_000}
	want := payload(1, 2*(block*13+110_000))
	l := r.link()
	send := l.a.send(want)
	var got []byte
	for _, limit := range limits {
		recv := l.b.recv(limit)
		r.done(recv)
		r.must("Recv", recv.err)
		if n := len(recv.data); n < limit || n >= limit+block {
			r.Fatalf("a Recv with limit %d delivered %d bytes", limit, n)
		}
		got = append(got, recv.data...)
	}
	rest := l.b.recv(len(want) - len(got))
	r.done(rest, send)
	r.same("all that was received", append(got, rest.data...), want)
}

func recvLimitsInTurn(r *rig) {
	l := r.link()
	rng := rand.New(rand.NewPCG(1, 1))
	want := payload(1, 2<<20)
	send := l.a.send(want)
	var got []byte
	for len(got) < len(want) {
		recv := l.b.recv(min(1+rng.IntN(1<<rng.IntN(18)), len(want)-len(got)))
		r.done(recv)
		r.must("Recv", recv.err)
		got = append(got, recv.data...)
	}
	r.done(send)
	r.same("all that was received", got, want)
}

func recvLeavesRest(r *rig) {
	l := r.link()
	want := payload(1, 8*r.f.BlockBytes)
	send := l.a.send(want)
	first := l.b.recv(1)
	r.done(first)
	r.quiet() // a completion now would come after the last one
	second := l.b.recv(len(want) - len(first.data))
	r.done(second, send)
	r.same("both Recvs", append(first.data, second.data...), want)
}

func recvWithoutEnd(r *rig) {
	l := r.link()
	want := payload(1, 1<<20)
	recv := l.b.recv(1<<62 + 1)
	r.done(l.a.send(want))
	r.done(l.a.closeWrite(), recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	r.same("bytes", recv.data, want)
}

func recvBusy(r *rig) {
	l := r.link()
	first := l.b.recv(0)
	for range 3 {
		second := l.b.recv(100)
		r.done(second)
		r.wantErr("second Recv", second.err, transport.ErrBusy)
	}
	want := payload(1, 1000)
	r.done(l.a.send(want))
	r.until("data of the first Recv", func() bool { return len(first.data) == len(want) })
	r.same("bytes", first.data, want)
}

func recvBlockSize(r *rig) {
	l := r.link()
	want := payload(1, 32*r.f.BlockBytes)
	recv := l.b.recvKeep(len(want))
	send := l.a.send(want)
	r.done(recv, send)
	var got []byte
	for _, b := range recv.bufs {
		if n := b.Len(); n < 1 || n > r.f.BlockBytes {
			r.Errorf("a completion brought %d bytes", n)
		}
		got = append(got, b.Bytes()...)
		b.Release()
	}
	r.same("bytes", got, want)
}

func recvRetained(r *rig) {
	l := r.links(2, transport.SocketConfig{})
	// Buffers of both kinds: nearly empty ones and full ones.
	want := payload(1, 4*r.f.BlockBytes+10)
	kept := l[0].b.recvKeep(len(want))
	first := l[0].a.send(want[:10])
	r.until("the first bytes", func() bool { return first.done && kept.n == 10 })
	r.done(l[0].a.send(want[10:]), kept)
	more := payload(2, 1000)
	for i := range more {
		recv := l[1].b.recv(1)
		r.done(l[1].a.send(more[i:i+1]), recv)
	}
	big := payload(3, 64*r.f.BlockBytes)
	recv := l[1].b.recv(len(big))
	r.done(l[1].a.send(big), recv)
	r.same("later bytes", recv.data, big)
	var got []byte
	for _, b := range kept.bufs {
		got = append(got, b.Bytes()...)
		b.Release()
	}
	r.same("retained bytes", got, want)
}

func recvRetainedSmall(r *rig) {
	l := r.link()
	recv := l.b.recvKeep(0)
	for i := range 100 {
		send := l.a.send([]byte{byte(i)})
		r.until("the byte", func() bool { return send.done && recv.n == i+1 })
	}
	held := 0
	for _, b := range recv.bufs {
		held += b.Cap()
		b.Release()
	}
	if most := len(recv.bufs) * 256; held > most {
		r.Fatalf("%d retained bytes hold %d bytes of memory, want at most %d", recv.n, held, most)
	}
}

func recvKeepsAll(r *rig) {
	l := r.links(2, transport.SocketConfig{})
	want := payload(1, 20<<20)
	kept := l[0].b.recvKeep(len(want))
	send := l[0].a.sendPieces(want, 1<<20)
	r.done(kept, send)
	r.runFlows(r.flow(l[1].a, l[1].b, 2, 256<<10))
	at := 0
	for _, b := range kept.bufs {
		r.same("kept bytes", b.Bytes(), want[at:at+b.Len()])
		at += b.Len()
		b.Release()
	}
}

func recvAllLent(r *rig) {
	links := r.links(3, transport.SocketConfig{})
	want := payload(1, 12<<20)
	var recvs, sends []*call
	for _, l := range links {
		recv := l.b.recv(len(want))
		recv.hold = true
		recvs = append(recvs, recv)
		sends = append(sends, l.a.sendPieces(want, 1<<20))
	}
	r.quiet()
	// All that can be lent is lent now. Give it back a little at a time.
	r.until("all bytes", func() bool {
		for _, recv := range recvs {
			recv.takeHeld(8)
		}
		return allDone(recvs) && allDone(sends)
	})
	for _, recv := range recvs {
		recv.takeHeld(len(recv.bufs))
		r.same("bytes", recv.data, want)
	}
}

// takeHeld takes the data of up to n held Bufs and gives them back.
func (c *call) takeHeld(n int) {
	n = min(n, len(c.bufs))
	for _, b := range c.bufs[:n] {
		c.data = append(c.data, b.Bytes()...)
		b.Release()
	}
	c.bufs = c.bufs[n:]
}

func recvExclusive(r *rig) {
	l := r.link()
	want := payload(1, 100)
	recv := l.b.recv(len(want))
	recv.hold = true
	r.done(l.a.send(want), recv)
	var all []*buffer.Buf
	for _, b := range recv.bufs {
		kept := b.Retain()
		b.Release()
		if !kept.Exclusive() {
			r.Errorf("somebody else holds a received Buf, too")
		}
		kept.Append(want)
		all = append(all, kept)
	}
	recv.bufs = nil
	for _, b := range all {
		b.Release()
	}
}
