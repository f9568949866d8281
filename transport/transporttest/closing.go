package transporttest

import (
	"errors"
	"io"
	"syscall"

	"github.com/weirnet/weir/transport"
)

func closeClaims() []claim {
	return []claim{
		{
			name: "Close completes after the last completions of all other operations, which are cancelled",
			run:  closeIsLast,
		},
		{name: "Close with an armed Recv sends FIN to the peer", run: closeSendsFIN},
		{name: "Close with an armed WatchClose ends it and sends FIN", run: closeWithWatch},
		{name: "after Close with an armed Recv the socket takes no more data", run: closeStopsReceiving},
		{name: "Close works in the same turn as what it ends", run: closeAtOnce},
		{name: "Close with Reset gives the peer ECONNRESET", run: closeReset},
		{name: "Close with Reset ends a blocked Send and does not wait for it", run: closeResetBlocked},
		{name: "operations on a Handle from its Close on complete with ErrStale", run: closeMakesStale},
		{name: "Submit of KindNone panics and does no harm", run: kindNonePanics},
		{name: "operations on Handles that never were complete with ErrStale", run: zeroIsStale},
		{name: "operations that do not fit their Handle, or make no sense, fail", run: doesNotFit},
		{
			name: "an operation on a stale Handle does not touch the one that has its place now",
			run:  staleMissesSuccessor,
		},
		{name: "Handles do not come back, open and close as often as you like", run: handlesDoNotRepeat},
		{name: "many connections can be closed at once", run: closeMany},
		{name: "Stats add up", run: statsAddUp},
		{name: "closing a transport with everything in flight neither panics nor leaks", run: closeTransport},
		{name: "closing a transport ends its connections for the peer", run: closeTransportTellsPeer},
	}
}

func closeIsLast(r *rig) {
	l := r.tightLink()
	send, _ := l.b.blockedSend(1)
	recv := l.b.recv(0)
	r.quiet()
	closing := l.b.close()
	r.done(recv, send, closing)
	r.must("Close", closing.err)
	r.wantErr("the Recv", recv.err, transport.ErrCanceled)
	r.wantErr("the Send", send.err, transport.ErrCanceled)
	if closing.endAt < recv.endAt || closing.endAt < send.endAt {
		r.Fatalf("Close completed at %d, Recv at %d, Send at %d", closing.endAt, recv.endAt, send.endAt)
	}
}

func closeSendsFIN(r *rig) {
	for range 10 {
		l := r.link()
		armed, recv := l.b.recv(0), l.a.recv(0)
		r.quiet()
		r.done(l.b.close(), armed, recv)
		r.wantErr("the closed side's Recv", armed.err, transport.ErrCanceled)
		r.wantErr("the peer's Recv", recv.err, io.EOF)
		r.done(l.a.close())
	}
}

func closeWithWatch(r *rig) {
	l := r.link()
	watch, recv := l.b.watch(), l.a.recv(0)
	r.quiet()
	closing := l.b.close()
	r.done(closing, watch, recv)
	r.wantErr("the WatchClose", watch.err, transport.ErrCanceled)
	r.wantErr("the peer's Recv", recv.err, io.EOF)
	if closing.endAt < watch.endAt {
		r.Fatalf("Close completed before the WatchClose")
	}
}

func closeStopsReceiving(r *rig) {
	l := r.link()
	armed := l.b.recv(0)
	r.quiet()
	r.done(l.b.close(), armed)
	received := l.b.e.tr.Stats().Received
	var send *call
	r.until("an error of the peer's Send", func() bool {
		if send == nil || send.done && send.err == nil {
			send = l.a.send(payload(1, 1000))
		}
		return send.done && send.err != nil
	})
	r.wantErrIn("the peer's Send", send.err, syscall.ECONNRESET, syscall.EPIPE)
	if n := l.b.e.tr.Stats().Received - received; n != 0 {
		r.Fatalf("%d bytes were received after Close", n)
	}
}

func closeAtOnce(r *rig) {
	for i := range 20 {
		l := r.link()
		want := payload(1, 1+i*1000)
		peer := l.a.recv(0)
		recv, send := l.b.recv(0), l.b.send(want)
		closing := l.b.close()
		r.done(recv, send, closing, peer)
		r.wantErr("the Recv", recv.err, transport.ErrCanceled)
		r.wantErr("the peer's Recv", peer.err, io.EOF)
		r.prefix("what went out", peer.data, want)
		if send.err == nil {
			r.same("what a Send that succeeded sent", peer.data, want)
		} else {
			r.wantErr("the Send", send.err, transport.ErrCanceled)
		}
		if closing.endAt < recv.endAt || closing.endAt < send.endAt {
			r.Fatalf("the Close completed before the operations of its socket")
		}
		r.done(l.a.close())
	}
}

func closeReset(r *rig) {
	for _, armed := range []bool{false, true} {
		l := r.link()
		recv := l.a.recv(0)
		if armed {
			l.b.recv(0)
		}
		r.quiet()
		r.done(l.b.reset(), recv)
		r.wantErr("the peer's Recv", recv.err, syscall.ECONNRESET)
	}
}

func closeResetBlocked(r *rig) {
	l := r.tightLink()
	send, want := l.b.blockedSend(1)
	closing := l.b.reset()
	r.done(send, closing)
	r.wantErr("the Send", send.err, transport.ErrCanceled)
	r.must("Close", closing.err)
	recv := l.a.recv(0)
	r.done(recv)
	r.wantErr("the peer's Recv", recv.err, syscall.ECONNRESET)
	r.prefix("what had arrived", recv.data, want)
}

// staleOps submits one operation of each kind on h.
func (e *end) staleOps(h transport.Handle) []*call {
	s := sock{e, h}
	return []*call{
		s.recv(100), s.send(payload(1, 10)), s.sendNow(payload(1, 10)), s.send(nil), s.watch(), s.closeWrite(),
		s.close(),
		s.reset(), e.accept(h),
		e.submit(transport.Op{Kind: transport.SendFile, Handle: h, File: &transport.FileRange{}}),
	}
}

// wantStale fails the test unless h is stale in every respect.
func (r *rig) wantStale(e *end, h transport.Handle) {
	r.Helper()
	calls := e.staleOps(h)
	if addr := e.tr.LocalAddr(h); addr != nil {
		r.Fatalf("LocalAddr of a stale Handle answered %v", addr)
	}
	err := e.tr.Control(h, func(uintptr) error {
		r.Errorf("Control of a stale Handle ran its function")
		return nil
	})
	r.wantErr("Control of a stale Handle", err, transport.ErrStale)
	r.done(calls...)
	for _, c := range calls {
		r.wantErr(c.String(), c.err, transport.ErrStale)
	}
}

func closeMakesStale(r *rig) {
	l := r.link()
	l.b.recv(0)
	h := r.server().listen(transport.SocketConfig{})
	for range 3 {
		closing := l.b.close()
		r.wantStale(l.b.e, l.b.h)
		r.done(closing)
		r.wantStale(l.b.e, l.b.h)
	}
	closing := r.server().close(h)
	r.wantStale(r.server(), h)
	r.done(closing)
	r.wantStale(r.server(), h)
}

func zeroIsStale(r *rig) {
	r.link()
	for _, h := range []transport.Handle{0, 1, 1 << 32, 1<<32 - 1, 1<<64 - 1, 0xffff_0000_0000_0001} {
		if !r.server().handles[h] {
			r.wantStale(r.server(), h)
		}
	}
}

func doesNotFit(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	l := r.links(1, transport.SocketConfig{})[0]
	ops := []transport.Op{
		{Kind: transport.Accept, Handle: l.b.h},
		{Kind: transport.Recv, Handle: h, Limit: 1},
		{Kind: transport.WatchClose, Handle: h},
		{Kind: transport.CloseWrite, Handle: h},
		{Kind: transport.Recv, Handle: l.b.h},
		{Kind: transport.Recv, Handle: l.b.h, Limit: -1},
		{Kind: transport.Connect},
	}
	for _, op := range ops {
		c := r.server().submit(op)
		r.done(c)
		r.wantErrIn(c.String(), c.err, syscall.EINVAL, syscall.ENOTCONN)
	}
	r.runFlows(r.flow(l.a, l.b, 1, 1000), r.flow(l.b, l.a, 2, 1000))
}

func kindNonePanics(r *rig) {
	l := r.link()
	panicked := func() (yes bool) {
		defer func() { yes = recover() != nil }()
		l.a.e.tr.Submit(transport.Op{Handle: l.a.h, Token: 1})
		return false
	}
	if !panicked() {
		r.Fatalf("Submit of KindNone did not panic")
	}
	r.runFlows(r.flow(l.a, l.b, 1, 1000), r.flow(l.b, l.a, 2, 1000))
}

func staleMissesSuccessor(r *rig) {
	old := r.link()
	r.done(old.b.close(), old.a.close())
	for _, l := range r.links(4, transport.SocketConfig{}) {
		recv := l.b.recv(0)
		r.wantStale(old.b.e, old.b.h)
		r.wantStale(old.a.e, old.a.h)
		want := payload(1, 1000)
		r.done(l.a.send(want))
		r.until("the bytes", func() bool { return len(recv.data) == len(want) || recv.done })
		r.same("the successor's bytes", recv.data, want)
	}
}

func handlesDoNotRepeat(r *rig) {
	seen := map[transport.Handle]bool{}
	h := r.server().listen(transport.SocketConfig{})
	for range 25 {
		for _, l := range r.linksTo(r.client(), r.server(), h, 20, transport.SocketConfig{}) {
			if seen[l.b.h] || l.b.h == 0 {
				r.Fatalf("Handle %#x came back", uint64(l.b.h))
			}
			seen[l.b.h] = true
			l.a.reset()
			l.b.reset()
		}
		r.quiet()
	}
}

func closeMany(r *rig) {
	var calls []*call
	for i, l := range r.links(200, transport.SocketConfig{}) {
		calls = append(calls, l.b.recv(0), l.b.send(payload(uint64(i), 100)), l.b.close())
	}
	r.done(calls...)
	for _, c := range calls {
		if c.op.Kind == transport.Close {
			r.must("Close", c.err)
		}
	}
}

func statsAddUp(r *rig) {
	before := []transport.Stats{r.ends[0].tr.Stats(), r.ends[1].tr.Stats()}
	counted := []int{r.ends[0].completions, r.ends[1].completions}
	l := r.link()
	r.runFlows(r.flow(l.a, l.b, 1, 300_000), r.flow(l.b, l.a, 2, 200_000))
	r.quiet()
	for i, e := range r.ends {
		s, b := e.tr.Stats(), before[i]
		sent, received := uint64(200_000), uint64(300_000)
		if i == 1 {
			sent, received = received, sent
		}
		if s.Sent-b.Sent != sent || s.Received-b.Received != received {
			r.Errorf("transport %d: sent %d, received %d", i, s.Sent-b.Sent, s.Received-b.Received)
		}
		if n := e.completions - counted[i]; s.Completions-b.Completions != uint64(n) {
			r.Errorf("transport %d: handed out %d completions, counted %d", i, n, s.Completions-b.Completions)
		}
		if s.Open != 1 {
			r.Errorf("transport %d: %d open, want 1", i, s.Open)
		}
		if s.Waits == 0 {
			r.Errorf("transport %d: no Wait entered the kernel", i)
		}
	}
}

func closeTransport(r *rig) {
	l := r.links(6, smallBuffers())
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	send, _ := l[0].b.blockedSend(1)
	for i := 1; i < 4; i++ {
		l[i].a.send(payload(2, 1<<20))
	}
	r.quiet()
	for i := range 4 {
		l[i].b.recv(0)
	}
	l[4].b.watch()
	l[4].a.close()
	l[5].b.close()
	r.server().accept(h)
	r.client().connect(dial)
	r.server().connect(dial)
	// One Wait that leaves completions with data behind.
	one := make([]transport.Completion, 0, 1)
	out, err := r.server().tr.Wait(one, shortWait)
	r.must("Wait", err)
	for i := range out {
		r.server().record(&out[i])
	}
	r.must("Close", r.server().tr.Close())
	r.server().forget()
	if err := r.server().tr.Wake(); !errors.Is(err, transport.ErrClosed) {
		r.Fatalf("Wake after Close: %v", err)
	}
	if !send.done {
		for _, b := range send.own {
			b.Release()
		}
	}
	r.balanced(r.server())
	r.ends = r.ends[1:]
}

func closeTransportTellsPeer(r *rig) {
	var recvs []*call
	for _, l := range r.links(10, transport.SocketConfig{}) {
		l.b.recv(0)
		recvs = append(recvs, l.a.recv(0))
	}
	r.quiet()
	r.must("Close", r.server().tr.Close())
	r.server().forget()
	r.balanced(r.server())
	r.ends = r.ends[1:]
	r.done(recvs...)
	for _, recv := range recvs {
		r.wantErrIn("the peer's Recv", recv.err, io.EOF, syscall.ECONNRESET)
	}
}
