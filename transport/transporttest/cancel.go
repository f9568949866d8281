package transporttest

import (
	"errors"
	"io"
	"math/rand/v2"

	"github.com/weirnet/weir/transport"
)

func cancelClaims() []claim {
	return []claim{
		{name: "Cancel ends a Recv, and the next one works", run: cancelRecv},
		{name: "Cancel works in the same turn as its target's Submit", run: cancelAtOnce},
		{name: "what a cancelled Recv had received is delivered before it ends", run: cancelRecvDelivers},
		{name: "a cancelled Recv loses no byte, whenever the Cancel comes", run: cancelRecvLosesNothing},
		{name: "Cancel ends an Accept", run: cancelAccept},
		{name: "Cancel ends a WatchClose", run: cancelWatch},
		{name: "Cancel ends a Connect that gets no answer", run: cancelConnect},
		{name: "Cancel of a Connect right after its Submit leaves nothing open", run: cancelConnectAtOnce},
		{name: "Cancel of what never was, or is over, completes with ErrNotFound", run: cancelNothing},
		{name: "Cancel ends only the operation of its Handle and its kind", run: cancelOnlyTarget},
		{
			name: "Cancel of a Send leaves a SendFile alone, and the other way round", needs: needsSendFile,
			run: cancelSendOrFile,
		},
		{name: "Cancel of a Connect ends the one with its token", run: cancelOneConnect},
		{name: "of two Cancels of one operation each completes, and the operation ends once", run: cancelTwice},
		{name: "a Cancel that races with FIN ends the Recv once", run: cancelRacesFIN},
		{name: "a Cancel that races with the end of a Send ends it once", run: cancelRacesSend},
		{name: "a Cancel that races with a Close ends everything once, the Close last", run: cancelRacesClose},
	}
}

// settled checks what a Cancel and its target say of each other.
func (r *rig) settled(cancel, target *call) {
	r.Helper()
	switch {
	case cancel.err == nil:
	case !errors.Is(cancel.err, transport.ErrNotFound):
		r.Fatalf("Cancel: %v", cancel.err)
	case errors.Is(target.err, transport.ErrCanceled):
		r.Fatalf("the Cancel found nothing, but its target was cancelled: %v", target)
	}
}

func cancelRecv(r *rig) {
	l := r.link()
	for i := range 5 {
		recv := l.b.recv(0)
		r.quiet()
		cancel := l.b.e.cancel(recv)
		r.done(cancel, recv)
		r.must("Cancel", cancel.err)
		r.wantErr("the Recv", recv.err, transport.ErrCanceled)
		r.runFlows(r.flow(l.a, l.b, uint64(i), 1000))
	}
}

func cancelAtOnce(r *rig) {
	l := r.link()
	for range 20 {
		recv := l.b.recv(0)
		cancel := l.b.e.cancel(recv)
		r.done(cancel, recv)
		r.wantErr("the Recv", recv.err, transport.ErrCanceled)
		r.settled(cancel, recv)
	}
	r.runFlows(r.flow(l.a, l.b, 1, 1000))
}

func cancelRecvDelivers(r *rig) {
	l := r.link()
	want := payload(1, 4*r.f.BlockBytes)
	send := l.a.send(want)
	r.quiet()
	recv := l.b.recv(0)
	one := make([]transport.Completion, 0, 1)
	r.until("the first bytes", func() bool {
		out, err := l.b.e.tr.Wait(one, shortWait)
		r.must("Wait", err)
		for i := range out {
			l.b.e.record(&out[i])
		}
		return len(recv.data) > 0
	})
	cancel := l.b.e.cancel(recv)
	r.done(cancel, recv)
	r.settled(cancel, recv)
	r.wantErr("the Recv", recv.err, transport.ErrCanceled)
	r.prefix("bytes of the cancelled Recv", recv.data, want)
	rest := l.b.recv(0)
	r.done(send)
	r.done(l.a.closeWrite(), rest)
	r.same("bytes of both Recvs", append(recv.data, rest.data...), want)
}

func cancelRecvLosesNothing(r *rig) {
	l := r.link()
	rng := rand.New(rand.NewPCG(1, 1))
	want := payload(1, 4<<20)
	send := l.a.sendPieces(want, 50_000)
	var got []byte
	canceled := 0
	for len(got) < len(want) {
		recv := l.b.recv(len(want) - len(got))
		for range rng.IntN(4) {
			r.turn()
		}
		cancel := l.b.e.cancel(recv)
		r.done(cancel, recv)
		r.settled(cancel, recv)
		if recv.err != nil {
			r.wantErr("the Recv", recv.err, transport.ErrCanceled)
			canceled++
		}
		got = append(got, recv.data...)
	}
	r.done(send)
	r.same("bytes of all the Recvs", got, want)
	if canceled == 0 {
		r.Fatalf("no Cancel ever was in time")
	}
}

func cancelAccept(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	for range 3 {
		acc := r.server().accept(h)
		r.quiet()
		cancel := r.server().cancel(acc)
		r.done(cancel, acc)
		r.must("Cancel", cancel.err)
		r.wantErr("the Accept", acc.err, transport.ErrCanceled)
	}
	r.linksTo(r.client(), r.server(), h, 1, transport.SocketConfig{})
}

func cancelWatch(r *rig) {
	l := r.link()
	for range 3 {
		watch := l.b.watch()
		r.quiet()
		cancel := l.b.e.cancel(watch)
		r.done(cancel, watch)
		r.must("Cancel", cancel.err)
		r.wantErr("the WatchClose", watch.err, transport.ErrCanceled)
	}
	watch := l.b.watch()
	r.done(l.a.close(), watch)
	r.must("WatchClose", watch.err)
}

// stuckConnects fills a backlog: the kernel then leaves a SYN without an answer (listen(2), tcp(7)).
func (r *rig) stuckConnects() []*call {
	r.Helper()
	cfg := r.address()
	cfg.Backlog = 1
	h := r.server().listenOn(cfg)
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	var stuck []*call
	for range 8 {
		con := r.client().connect(dial)
		r.quiet()
		if !con.done {
			stuck = append(stuck, con)
		}
	}
	if len(stuck) < 2 {
		r.Fatalf("%d of 8 Connects to a listener with a backlog of 1 wait, so not two can be cancelled", len(stuck))
	}
	return stuck
}

func cancelConnect(r *rig) {
	stuck := r.stuckConnects()
	r.spins(r.client(), "Connects wait for an answer")
	for _, con := range stuck {
		cancel := r.client().cancel(con)
		r.done(cancel, con)
		r.settled(cancel, con)
	}
	if last := stuck[len(stuck)-1]; !errors.Is(last.err, transport.ErrCanceled) {
		r.Fatalf("the Connect ended otherwise: %v", last)
	}
}

func cancelConnectAtOnce(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	acc := r.server().accept(h)
	made := 0
	for i := range 50 {
		con := r.client().connect(dial)
		for range i % 3 {
			r.client().wait(0)
		}
		cancel := r.client().cancel(con)
		r.done(cancel, con)
		r.settled(cancel, con)
		if con.err == nil {
			made++
			r.done(r.client().close(con.handle()))
		} else {
			r.wantErr("Connect", con.err, transport.ErrCanceled)
		}
	}
	r.quiet()
	if open := r.client().tr.Stats().Open; open != 0 {
		r.Fatalf("%d open on the connecting side", open)
	}
	// What was accepted although the other side gave up ends, too.
	for _, conn := range acc.conns {
		r.done(sock{r.server(), conn}.recv(0))
	}
	if len(acc.conns) < made {
		r.Fatalf("%d accepted of %d connections", len(acc.conns), made)
	}
}

func cancelNothing(r *rig) {
	l := r.link()
	all := []transport.Kind{
		transport.KindNone, transport.Recv, transport.Send, transport.SendFile, transport.Accept, transport.Connect,
		transport.WatchClose, transport.CloseWrite, transport.Close, transport.Cancel, transport.Cancel + 1,
	}
	for _, h := range []transport.Handle{l.b.h, 0, l.b.h + 1<<32, ^transport.Handle(0)} {
		for _, kind := range all {
			op := transport.Op{Kind: kind, Handle: h, Token: transport.MakeToken(1<<20, 1, 1)}
			never := l.b.e.submit(cancelOf(&op))
			r.done(never)
			r.wantErr("Cancel of what never was", never.err, transport.ErrNotFound)
		}
	}
	over := l.b.recv(1)
	r.done(l.a.send([]byte{1}), over)
	cancel := l.b.e.cancel(over)
	again := l.b.e.cancel(cancel)
	r.done(cancel, again)
	r.wantErr("Cancel of what is over", cancel.err, transport.ErrNotFound)
	r.wantErr("Cancel of a Cancel", again.err, transport.ErrNotFound)
}

func cancelOnlyTarget(r *rig) {
	l := r.links(2, smallBuffers())
	recv, other := l[0].a.recv(0), l[1].a.recv(0)
	send, want := l[0].a.blockedSend(1)
	cancel := l[0].a.e.cancel(recv)
	r.done(cancel, recv)
	r.quiet()
	if send.done || other.done {
		r.Fatalf("others ended, too: %v, %v", send, other)
	}
	back := l[0].b.recv(len(want))
	r.done(send, back)
	r.same("bytes of the Send", back.data, want)
	want = payload(2, 1000)
	r.done(l[1].b.send(want))
	r.until("the other Recv's data", func() bool { return len(other.data) == len(want) })
}

func cancelSendOrFile(r *rig) {
	l := r.links(2, smallBuffers())
	send, _ := l[0].a.blockedSend(1)
	f, content := r.file(2, 4<<20)
	file := l[1].a.sendFile(f, 0, int64(len(content)))
	r.quiet()
	asFile, asSend := send.op, file.op
	asFile.Kind, asSend.Kind = transport.SendFile, transport.Send
	for _, op := range []transport.Op{asFile, asSend} {
		wrong := r.client().submit(cancelOf(&op))
		r.done(wrong)
		r.wantErr("Cancel of the other kind", wrong.err, transport.ErrNotFound)
	}
	if send.done || file.done {
		r.Fatalf("they ended: %v, %v", send, file)
	}
	for _, c := range []*call{send, file} {
		cancel := r.client().cancel(c)
		r.done(cancel, c)
		r.must("Cancel", cancel.err)
		r.wantErr("what it ended", c.err, transport.ErrCanceled)
	}
}

func cancelOneConnect(r *rig) {
	stuck := r.stuckConnects()
	first, second := stuck[0], stuck[1]
	cancel := r.client().cancel(first)
	r.done(cancel, first)
	r.must("Cancel", cancel.err)
	r.wantErr("the Connect", first.err, transport.ErrCanceled)
	if second.done {
		r.Fatalf("the other ended, too: %v", second)
	}
	again := r.client().cancel(first)
	r.done(again)
	r.wantErr("Cancel of a Connect that is over", again.err, transport.ErrNotFound)
	for _, con := range stuck[1:] {
		cancel = r.client().cancel(con)
		r.done(cancel, con)
	}
}

func cancelTwice(r *rig) {
	l := r.link()
	for range 10 {
		recv := l.b.recv(0)
		r.quiet()
		first, second := l.b.e.cancel(recv), l.b.e.cancel(recv)
		r.done(first, second, recv)
		r.wantErr("the Recv", recv.err, transport.ErrCanceled)
		if first.err != nil && second.err != nil {
			r.Fatalf("neither Cancel found the Recv that they cancelled: %v, %v", first.err, second.err)
		}
	}
}

func cancelRacesFIN(r *rig) {
	for i := range 60 {
		l := r.link()
		recv := l.b.recv(0)
		want := payload(uint64(i), 1+i*100)
		send := l.a.send(want)
		for range i % 3 {
			r.turn()
		}
		fin := l.a.closeWrite()
		if i%2 == 0 {
			l.a.e.wait(0)
		}
		cancel := l.b.e.cancel(recv)
		r.done(send, fin, cancel, recv)
		r.settled(cancel, recv)
		r.wantErrIn("the Recv", recv.err, io.EOF, transport.ErrCanceled)
		rest := l.b.recv(0)
		r.done(rest)
		r.wantErr("the end of the next Recv", rest.err, io.EOF)
		if send.err == nil {
			r.same("bytes of both Recvs", append(recv.data, rest.data...), want)
		}
		r.done(l.a.close(), l.b.close())
	}
}

func cancelRacesSend(r *rig) {
	l := r.tightLink()
	recv := l.b.recv(0)
	for i := range 60 {
		p := payload(uint64(i), 1+i*3000)
		send := l.a.send(p)
		for range i % 4 {
			r.turn()
		}
		cancel := l.a.e.cancel(send)
		r.done(cancel, send)
		r.settled(cancel, send)
		if send.err != nil {
			r.wantErr("the Send", send.err, transport.ErrCanceled)
			// How much went out is known as a lower bound only, so the stream is of no use any more.
			r.done(l.a.close(), recv)
			if recv.n < send.n {
				r.Fatalf("the Send told of %d bytes, the peer got %d", send.n, recv.n)
			}
			l = r.tightLink()
			recv = l.b.recv(0)
			continue
		}
		r.until("the bytes", func() bool { return len(recv.data) == len(p) })
		r.same("bytes", recv.data, p)
		recv.data, recv.n = nil, 0
	}
}

func cancelRacesClose(r *rig) {
	for i := range 40 {
		l := r.tightLink()
		recv, send := l.b.recv(0), l.b.send(payload(1, 200_000))
		for range i % 3 {
			r.turn()
		}
		cancels := []*call{l.b.e.cancel(recv), l.b.e.cancel(send)}
		closing := l.b.close()
		cancels = append(cancels, l.b.e.cancel(recv), l.b.e.cancel(send))
		r.done(append(cancels, recv, send, closing)...)
		r.must("Close", closing.err)
		r.wantErr("the Recv", recv.err, transport.ErrCanceled)
		if closing.endAt < recv.endAt || closing.endAt < send.endAt {
			r.Fatalf("the Close completed before the operations of its socket")
		}
		r.done(l.a.close())
	}
}
