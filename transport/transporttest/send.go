package transporttest

import (
	"errors"
	"io"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

func sendClaims() []claim {
	return []claim{
		{name: "a Send of 5,000 Bufs arrives complete and in order", run: sendManyBufs},
		{name: "the completions of a Send add up to its bytes, also when the peer is slow", run: sendProgress},
		{name: "a Send of nothing completes with N 0", run: sendNothing},
		{name: "a Send begins at the read index of its Bufs", run: sendAdvanced},
		{name: "a Send takes views, and Bufs without bytes among others", run: sendViews},
		{name: "a Send leaves its Bufs as they were", run: sendLeavesBufs},
		{
			name: "the memory of a Send, and the slice of its Bufs, may change after its last completion",
			run:  sendMemory,
		},
		{name: "a Send that is blocked goes on when the peer reads", run: sendGoesOn},
		{name: "a Send that is blocked does not spin", run: sendDoesNotSpin},
		{name: "a Send that is blocked holds up no other connection", run: sendHoldsUpNobody},
		{
			name: "a second Send on a socket that has one completes with ErrBusy and leaves the first alone",
			run:  sendBusy,
		},
		{name: "a Send to a peer that never reads can be cancelled, and what went out is a prefix", run: sendCancelled},
		{name: "a Send to a peer that never reads can be closed", run: sendClosed},
		{name: "a Send and a Recv of one socket do not disturb each other", run: sendWhileReceiving},
		{name: "a Send with NoWait completes in the next Wait, with all its bytes or ErrWouldBlock", run: sendNowFits},
		{name: "a Send with NoWait ends a Wait that blocks, taken whole or not", run: sendNowEndsWait},
		{name: "Acked changes when the peer has taken what was sent, and a stale Handle has none", run: sendAcked},
		{name: "Acked tells that a peer which does not read has not taken everything", run: sendNotAcked},
		{name: "a Send with NoWait that does not fit says how much went out", run: sendNowTooMuch},
	}
}

func sendAcked(r *rig) {
	l := r.tightLink()
	tr := l.a.e.tr
	acked := func() (uint64, int) {
		mark, left, err := tr.Acked(l.a.h)
		r.must("Acked", err)
		return mark, left
	}
	for seed := range uint64(3) {
		before, _ := acked()
		r.runFlows(r.flow(l.a, l.b, seed, 64<<10))
		r.until("a change, and the rest", func() bool { now, left := acked(); return now != before && left == 0 })
	}
	r.done(l.a.close())
	if _, _, err := tr.Acked(l.a.h); !errors.Is(err, transport.ErrStale) {
		r.Fatalf("Acked of a stale Handle returned %v", err)
	}
}

func sendNotAcked(r *rig) {
	l := r.tightLink()
	send, _ := l.a.blockedSend(1)
	r.until("bytes that the peer's kernel had no room for", func() bool {
		_, left, err := l.a.e.tr.Acked(l.a.h)
		r.must("Acked", err)
		return left > 0
	})
	r.done(l.a.close(), send)
}

func sendManyBufs(r *rig) {
	l := r.link()
	want := payload(1, 5000*37)
	recv := l.b.recv(len(want))
	send := l.a.sendPieces(want, 37)
	if n := len(send.own); n != 5000 {
		r.Fatalf("%d Bufs", n)
	}
	r.done(send, recv)
	r.must("Send", send.err)
	r.same("bytes", recv.data, want)
}

func sendProgress(r *rig) {
	l := r.tightLink()
	want := payload(1, 1<<20)
	send := l.a.sendPieces(want, 10_000)
	var got []byte
	for len(got) < len(want) {
		recv := l.b.recv(min(20_000, len(want)-len(got)))
		r.done(recv)
		got = append(got, recv.data...)
	}
	r.done(send) // the record checks the sum
	r.must("Send", send.err)
	r.same("bytes", got, want)
}

func sendNothing(r *rig) {
	l := r.link()
	pool := l.a.e.tr.Pool()
	for _, bufs := range [][]*buffer.Buf{nil, {}, {pool.Get(10)}, {pool.Get(0), pool.Get(1), pool.Get(2)}} {
		send := l.a.sendBufs(bufs)
		r.done(send)
		r.must("Send of nothing", send.err)
	}
	r.runFlows(r.flow(l.a, l.b, 1, 1000))
}

func sendAdvanced(r *rig) {
	l := r.link()
	want := payload(1, 10_000)
	var bufs []*buffer.Buf
	for i := 0; i < len(want); i += 1000 {
		b := l.a.e.tr.Pool().Get(2000)
		b.Append(make([]byte, i/10+1))
		b.Append(want[i : i+1000])
		b.Append([]byte("cut off"))
		b.Advance(i/10 + 1)
		b.Truncate(1000)
		bufs = append(bufs, b)
	}
	recv := l.b.recv(len(want))
	r.done(l.a.sendBufs(bufs), recv)
	r.same("bytes", recv.data, want)
}

func sendViews(r *rig) {
	l := r.link()
	pool := l.a.e.tr.Pool()
	want := payload(1, 3000)
	whole := pool.Get(len(want))
	whole.Append(want)
	bufs := []*buffer.Buf{
		pool.Get(1), whole.Slice(0, 1), pool.Get(1), pool.Get(1), whole.Slice(1, 1999), whole.Slice(2000, 0),
		buffer.Wrap(want[2000:2500]), whole.Slice(2500, 500), pool.Get(1),
	}
	whole.Release()
	recv := l.b.recv(len(want))
	r.done(l.a.sendBufs(bufs), recv)
	r.same("bytes", recv.data, want)
}

func sendLeavesBufs(r *rig) {
	l := r.tightLink()
	want := payload(1, 512<<10)
	bufs := l.a.pieces(want, 5000)
	send := l.a.e.submit(transport.Op{Kind: transport.Send, Handle: l.a.h, Bufs: bufs})
	recv := l.b.recv(len(want))
	r.done(send, recv)
	var after []byte
	for i, b := range bufs {
		if n := min(5000, len(want)-5000*i); b.Len() != n {
			r.Fatalf("Buf %d has %d bytes after the Send, had %d", i, b.Len(), n)
		}
		after = append(after, b.Bytes()...)
		b.Release()
	}
	r.same("the Bufs after the Send", after, want)
}

func sendMemory(r *rig) {
	l := r.link()
	bufs := make([]*buffer.Buf, 1)
	for i := range 20 {
		want := payload(uint64(i), 32<<10)
		b := buffer.New(len(want))
		b.Append(want)
		bufs[0] = b
		send := l.a.e.submit(transport.Op{Kind: transport.Send, Handle: l.a.h, Bufs: bufs})
		r.done(send)
		bufs[0] = nil
		for j, mem := 0, b.Bytes(); j < len(mem); j++ {
			mem[j] = 0xEE
		}
		b.Release()
		recv := l.b.recv(len(want))
		r.done(recv)
		r.same("bytes", recv.data, want)
	}
}

func sendGoesOn(r *rig) {
	l := r.tightLink()
	send, want := l.a.blockedSend(1)
	recv := l.b.recv(len(want))
	r.done(send, recv)
	r.must("Send", send.err)
	r.same("bytes", recv.data, want)
}

func sendDoesNotSpin(r *rig) {
	l := r.tightLink()
	send, _ := l.a.blockedSend(1)
	r.spins(l.a.e, "a Send is blocked")
	if send.done {
		r.Fatalf("the Send ended: %v", send)
	}
}

func sendHoldsUpNobody(r *rig) {
	l := r.links(2, smallBuffers())
	l[0].a.blockedSend(1)
	r.runFlows(r.flow(l[1].a, l[1].b, 2, 256<<10), r.flow(l[1].b, l[1].a, 3, 256<<10))
}

func sendBusy(r *rig) {
	l := r.tightLink()
	first, want := l.a.blockedSend(1)
	second := l.a.send(payload(2, 10))
	third := l.a.sendNow(payload(2, 10))
	r.done(second, third)
	r.wantErr("second Send", second.err, transport.ErrBusy)
	r.wantErr("second Send, with NoWait", third.err, transport.ErrBusy)
	recv := l.b.recv(len(want))
	r.done(first, recv)
	r.same("bytes of the first Send", recv.data, want)
}

func sendCancelled(r *rig) {
	l := r.tightLink()
	send, want := l.a.blockedSend(1)
	cancel := l.a.e.cancel(send)
	r.done(cancel, send)
	r.must("Cancel", cancel.err)
	r.wantErr("the Send", send.err, transport.ErrCanceled)
	recv := l.b.recv(0)
	r.done(l.a.close(), recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	r.prefix("what went out of a cancelled Send", recv.data, want)
	if len(recv.data) < send.n {
		r.Fatalf("the Send told of %d bytes, the peer got %d", send.n, len(recv.data))
	}
}

func sendClosed(r *rig) {
	l := r.tightLink()
	send, want := l.a.blockedSend(1)
	closing := l.a.close()
	r.done(send, closing)
	r.wantErr("the Send", send.err, transport.ErrCanceled)
	r.must("Close", closing.err)
	recv := l.b.recv(0)
	r.done(recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	r.prefix("what went out of a closed Send", recv.data, want)
}

func sendWhileReceiving(r *rig) {
	l := r.tightLink()
	send, want := l.a.blockedSend(1)
	r.runFlows(r.flow(l.b, l.a, 2, 1<<20))
	recv := l.b.recv(len(want))
	r.done(send, recv)
	r.same("bytes", recv.data, want)
}

// sendNow sends p with NoWait.
func (s sock) sendNow(p []byte) *call {
	bufs := s.pieces(p, 64<<10)
	c := s.e.submit(transport.Op{Kind: transport.Send, Handle: s.h, Bufs: bufs, NoWait: true})
	c.own = bufs
	return c
}

func sendNowFits(r *rig) {
	l := r.link()
	recv := l.b.recv(0)
	var all []byte
	whole := 0
	for i := range 50 {
		want := payload(uint64(i), 1+i*20)
		send := l.a.sendNow(want)
		l.a.e.wait(0)
		if !send.done || send.count != 1 {
			r.Fatalf("not completed once by the next Wait: %v", send)
		}
		if send.n == len(want) {
			r.must("Send", send.err)
			whole++
		} else {
			r.wantErr("Send of a part", send.err, transport.ErrWouldBlock)
		}
		all = append(all, want[:send.n]...)
		r.until("the bytes", func() bool { return len(recv.data) == len(all) })
	}
	r.same("bytes", recv.data, all)
	if whole == 0 {
		r.Fatalf("no Send went out whole, although there was room for each")
	}
}

func sendNowTooMuch(r *rig) {
	l := r.tightLink()
	want := payload(1, 8<<20)
	first := l.a.sendNow(want)
	l.a.e.wait(0)
	if !first.done || first.count != 1 {
		r.Fatalf("not completed once by the next Wait: %v", first)
	}
	r.wantErr("Send", first.err, transport.ErrWouldBlock)
	if first.n == 0 || first.n == len(want) {
		r.Fatalf("%d of %d bytes went out at once", first.n, len(want))
	}
	again := l.a.sendNow(want[first.n:])
	l.a.e.wait(0)
	r.wantErr("Send with no room at all", again.err, transport.ErrWouldBlock)
	recv := l.b.recv(len(want))
	rest := l.a.send(want[first.n+again.n:])
	r.done(rest, recv)
	r.must("Send of the rest", rest.err)
	r.same("bytes", recv.data, want)
}

func sendNowEndsWait(r *rig) {
	l := r.tightLink()
	ends := func(what string, p []byte) *call {
		send := l.a.sendNow(p)
		for i := 0; !send.done; i++ {
			if i == 10 {
				r.Fatalf("a Send %s ends no Wait: %v", what, send)
			}
			l.a.e.wait(patience / 10)
		}
		return send
	}
	fits := ends("that fits", payload(1, 10))
	if fits.n == 10 {
		r.must("Send", fits.err)
	}
	r.wantErr("Send", ends("that does not fit", payload(2, 8<<20)).err, transport.ErrWouldBlock)
	r.done(l.b.reset())
	r.quiet()
	if send := ends("on a broken connection", payload(3, 10)); send.err == nil {
		r.Fatalf("a Send on a connection that was reset succeeded: %v", send)
	}
}
