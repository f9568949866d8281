package transporttest

import (
	"io"
	"syscall"

	"github.com/weirnet/weir/transport"
)

func handOverClaims() []claim {
	return []claim{
		{name: "a socket that is handed over loses nothing that comes before, meanwhile and after", run: handOverStream},
		{name: "a socket that is handed over is stale where it was", run: handOverStale},
		{name: "HandOver refuses listeners and sockets that are in use, and these go on", run: handOverRefused},
		{name: "a socket that nobody takes over is reset", run: handOverAbandoned},
		{name: "a socket that is dismissed sends its last words and FIN, also when it has bytes unread", run: handOverDismissed},
		{name: "TakeOver closes what it refuses", run: takeOverRefused},
	}
}

// handOver moves a socket from its transport to another.
func (r *rig) handOver(s sock, to *end) sock {
	r.Helper()
	socket := s.letGo()
	h, err := to.tr.TakeOver(socket)
	r.must("TakeOver", err)
	if to.handles[h] {
		r.Fatalf("TakeOver returned handle %#x, which is in use", uint64(h))
	}
	to.handles[h] = true
	return sock{to, h}
}

// letGo hands a socket over to whoever takes it.
func (s sock) letGo() transport.Socket {
	s.e.r.Helper()
	socket, err := s.e.tr.HandOver(s.h)
	s.e.r.must("HandOver", err)
	delete(s.e.handles, s.h)
	return socket
}

func handOverStream(r *rig) {
	want := payload(1, 3<<10)
	for _, before := range []bool{false, true} {
		l := r.link()
		if before {
			r.done(l.a.send(want[:1<<10]))
			r.quiet()
		}
		socket := l.b.letGo()
		if !before {
			r.done(l.a.send(want[:1<<10]))
		}
		r.done(l.a.send(want[1<<10 : 2<<10]))
		h, err := r.client().tr.TakeOver(socket)
		r.must("TakeOver", err)
		r.client().handles[h] = true
		moved := sock{r.client(), h}
		if got, want := r.local(moved.e, h).Port(), r.local(l.a.e, l.a.h).Port(); got == want {
			r.Fatalf("the two ends of a connection are bound to the same port %d", got)
		}
		recv := moved.recv(0)
		r.done(l.a.send(want[2<<10:]))
		r.done(l.a.closeWrite(), recv)
		r.wantErr("the Recv", recv.err, io.EOF)
		r.same("what was received", recv.data, want)
		back := l.a.recv(0)
		r.done(moved.send(want))
		r.done(moved.close(), back)
		r.same("what was sent back", back.data, want)
	}
}

func handOverStale(r *rig) {
	l := r.link()
	open := r.server().tr.Stats().Open
	moved := r.handOver(l.b, r.client())
	if got := r.server().tr.Stats().Open; got != open-1 {
		r.Errorf("%d open, want %d", got, open-1)
	}
	if _, err := r.server().tr.HandOver(l.b.h); err == nil {
		r.Fatalf("a stale Handle was handed over")
	} else {
		r.wantErr("HandOver again", err, transport.ErrStale)
	}
	r.wantStale(r.server(), l.b.h)
	again := r.link()
	if again.b.h == l.b.h {
		r.Fatalf("the Handle %#x names another socket now", uint64(l.b.h))
	}
	r.handOver(r.handOver(moved, r.server()), r.client())
}

func handOverRefused(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	_, err := r.server().tr.HandOver(h)
	r.wantErr("HandOver of a listener", err, transport.ErrNotSupported)
	l := r.linksTo(r.client(), r.server(), h, 1, transport.SocketConfig{})[0]
	recv, watch := l.b.recv(0), l.a.watch()
	r.quiet()
	for _, s := range []sock{l.a, l.b} {
		_, err := s.e.tr.HandOver(s.h)
		r.wantErr("HandOver of a socket with an operation", err, transport.ErrBusy)
	}
	r.done(l.a.send([]byte("goes on")))
	r.done(l.a.closeWrite(), recv)
	r.same("what was received", recv.data, []byte("goes on"))
	r.done(l.b.close(), watch)
}

func handOverAbandoned(r *rig) {
	l := r.link()
	recv := l.a.recv(0)
	l.b.letGo().Close()
	r.done(recv)
	r.wantErr("the peer's Recv", recv.err, syscall.ECONNRESET)
}

func handOverDismissed(r *rig) {
	words := []byte("busy, come back in a second")
	for _, asked := range []int{0, 1, 5000} {
		l := r.link()
		if asked > 0 {
			r.done(l.a.send(payload(3, asked)))
			r.quiet()
		}
		recv := l.a.recv(0)
		l.b.letGo().Dismiss(words)
		r.done(recv)
		r.wantErr("the peer's Recv", recv.err, io.EOF)
		r.same("the last words", recv.data, words)
	}
}

// foreign is a Socket of no transport.
type foreign struct{ closed int }

func (f *foreign) Close()         { f.closed++ }
func (f *foreign) Dismiss([]byte) { f.closed++ }

func takeOverRefused(r *rig) {
	f := &foreign{}
	_, err := r.server().tr.TakeOver(f)
	r.wantErr("TakeOver of a foreign Socket", err, transport.ErrNotSupported)
	if f.closed != 1 {
		r.Fatalf("a Socket that was refused was closed %d times", f.closed)
	}
	l := r.link()
	recv, socket := l.a.recv(0), l.b.letGo()
	server := r.server()
	r.must("Close", server.tr.Close())
	server.forget()
	r.balanced(server)
	r.ends = r.ends[1:]
	_, err = server.tr.TakeOver(socket)
	r.wantErr("TakeOver after Close", err, transport.ErrClosed)
	r.done(recv)
	r.wantErrIn("the peer's Recv", recv.err, syscall.ECONNRESET, io.EOF)
}
