package transporttest

import (
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/weirnet/weir/transport"
)

func endClaims() []claim {
	return []claim{
		{name: "data sent before FIN is delivered before EOF", run: dataBeforeFIN},
		{name: "data sent before Close is delivered before EOF", run: dataBeforeClose},
		{name: "a Recv that is armed after FIN came gets the data, then EOF", run: recvAfterFIN},
		{name: "a Recv after EOF answers EOF again", run: recvAfterEOF},
		{name: "after CloseWrite a socket still receives", run: receiveAfterCloseWrite},
		{name: "after the peer's FIN a socket still sends", run: sendAfterFIN},
		{name: "each direction ends by itself", run: directionsEnd},
		{name: "CloseWrite comes after what was sent before", run: closeWriteInOrder},
		{name: "a second CloseWrite completes and does no harm", run: closeWriteTwice},
		{name: "Send after CloseWrite fails with EPIPE", run: sendAfterCloseWrite},
		{name: "data received before a reset is delivered before ECONNRESET", run: dataBeforeReset},
		{name: "a reset ends an armed Recv with ECONNRESET", run: resetEndsRecv},
		{name: "a reset ends an armed Recv and a blocked Send, and one of them tells of it", run: resetEndsBoth},
		{name: "Send to a peer that is gone fails in the end", run: sendToNobody},
		{name: "WatchClose completes on FIN", run: watchFIN},
		{name: "WatchClose completes on a reset", run: watchReset},
		{name: "WatchClose completes when the peer finished before", run: watchLate},
		{name: "WatchClose does not complete while the peer only sends", run: watchOnlyData},
		{name: "WatchClose consumes nothing, and data stays readable after the peer closed", run: watchConsumesNothing},
		{name: "WatchClose after EOF completes only on a reset", run: watchAfterEOFReset},
		{name: "WatchClose after EOF completes when both directions are closed", run: watchAfterEOFClosed},
		{name: "a second WatchClose on a socket that has one completes with ErrBusy", run: watchBusy},
		{name: "a socket that nobody receives on does not spin, whatever the peer does", run: pausedDoesNotSpin},
		{name: "a socket that has delivered EOF does not spin", run: finishedDoesNotSpin},
	}
}

// spins fails the test when e's Wait keeps returning although there is nothing to do.
func (r *rig) spins(e *end, when string) {
	r.Helper()
	r.quiet()
	const length, nap, most = 50 * time.Millisecond, 10 * time.Millisecond, 40
	start, completions := e.tr.Now(), 0
	for turns := 1; e.tr.Now() < start+length; turns++ {
		completions += e.wait(nap)
		if turns > most {
			r.Fatalf("%s: Wait returned %d times in %v, with %d completions", when, turns, e.tr.Now()-start,
				completions)
		}
	}
}

func dataBeforeFIN(r *rig) {
	for _, n := range []int{1, 1000, 64 << 10, 1 << 20} {
		l := r.link()
		want := payload(uint64(n), n)
		recv := l.b.recv(0)
		send := l.a.send(want)
		r.done(send)
		r.done(l.a.closeWrite(), recv)
		r.wantErr("the end of the Recv", recv.err, io.EOF)
		r.same("bytes before EOF", recv.data, want)
	}
}

func dataBeforeClose(r *rig) {
	for _, n := range []int{1, 1000, 100 << 10} {
		l := r.link()
		want := payload(uint64(n), n)
		recv := l.b.recv(0)
		send := l.a.send(want)
		r.done(send)
		r.done(l.a.close(), recv)
		r.wantErr("the end of the Recv", recv.err, io.EOF)
		r.same("bytes before EOF", recv.data, want)
	}
}

func recvAfterFIN(r *rig) {
	l := r.link()
	want := payload(1, 5000)
	r.done(l.a.send(want))
	r.done(l.a.close())
	r.quiet()
	recv := l.b.recv(0)
	r.done(recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	r.same("bytes before EOF", recv.data, want)
}

func recvAfterEOF(r *rig) {
	l := r.link()
	r.done(l.a.closeWrite())
	for range 3 {
		recv := l.b.recv(0)
		r.done(recv)
		r.wantErr("the end of the Recv", recv.err, io.EOF)
	}
}

func receiveAfterCloseWrite(r *rig) {
	l := r.link()
	recv := l.b.recv(0)
	r.done(l.b.closeWrite())
	r.done(l.a.recv(0))
	want := payload(1, 256<<10)
	r.done(l.a.send(want))
	r.done(l.a.closeWrite(), recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	r.same("bytes received after CloseWrite", recv.data, want)
}

func sendAfterFIN(r *rig) {
	l := r.link()
	r.done(l.a.closeWrite())
	eof := l.b.recv(0)
	r.done(eof)
	want := payload(1, 256<<10)
	recv := l.a.recv(0)
	r.done(l.b.send(want))
	r.done(l.b.close(), recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	r.same("bytes sent after FIN", recv.data, want)
}

func directionsEnd(r *rig) {
	l := r.link()
	atA, atB := l.a.recv(0), l.b.recv(0)
	r.done(l.a.closeWrite(), atB)
	r.wantErr("the end of the first direction", atB.err, io.EOF)
	if atA.done {
		r.Fatalf("the other direction ended, too: %v", atA)
	}
	r.done(l.b.closeWrite(), atA)
	r.wantErr("the end of the second direction", atA.err, io.EOF)
}

func closeWriteInOrder(r *rig) {
	l := r.link()
	want := payload(1, 10_000)
	recv := l.b.recv(0)
	for i := range 10 {
		r.done(l.a.send(want[i*1000 : (i+1)*1000]))
	}
	r.done(l.a.closeWrite(), recv)
	r.same("bytes before EOF", recv.data, want)
}

func closeWriteTwice(r *rig) {
	l := r.link()
	first := l.a.closeWrite()
	second := l.a.closeWrite()
	r.done(first, second)
	r.must("CloseWrite", first.err)
	want := payload(1, 1000)
	recv := l.a.recv(len(want))
	r.done(l.b.send(want), recv)
	r.same("bytes", recv.data, want)
}

func sendAfterCloseWrite(r *rig) {
	l := r.link()
	r.done(l.a.closeWrite())
	send := l.a.send(payload(1, 100))
	r.done(send)
	r.wantErr("Send", send.err, syscall.EPIPE)
}

func dataBeforeReset(r *rig) {
	l := r.link()
	want := payload(1, 1000)
	r.done(l.a.send(want))
	first := l.b.recv(1) // once a byte is there, all are: they travelled together, or the suite waits below
	r.done(first)
	r.quiet()
	r.done(l.a.reset())
	r.quiet()
	rest := l.b.recv(0)
	r.done(rest)
	r.wantErr("the end of the Recv", rest.err, syscall.ECONNRESET)
	r.same("bytes before the reset", append(first.data, rest.data...), want)
}

func resetEndsRecv(r *rig) {
	l := r.link()
	recv := l.b.recv(0)
	r.quiet()
	r.done(l.a.reset(), recv)
	r.wantErr("the end of the Recv", recv.err, syscall.ECONNRESET)
}

func resetEndsBoth(r *rig) {
	l := r.tightLink()
	send, _ := l.b.blockedSend(1)
	recv := l.b.recv(0)
	r.done(l.a.reset(), recv, send)
	broken := []error{syscall.ECONNRESET, syscall.EPIPE}
	r.wantErrIn("the end of the Send", send.err, broken...)
	// The kernel tells of the reset once; who asks second sees a connection that is over.
	r.wantErrIn("the end of the Recv", recv.err, syscall.ECONNRESET, io.EOF)
	if !errors.Is(recv.err, syscall.ECONNRESET) && !errors.Is(send.err, syscall.ECONNRESET) {
		r.Fatalf("nobody was told of the reset: %v, %v", recv, send)
	}
}

func sendToNobody(r *rig) {
	l := r.link()
	r.done(l.a.close())
	var send *call
	r.until("an error", func() bool {
		if send == nil || send.done && send.err == nil {
			send = l.b.send(payload(1, 1000))
		}
		return send.done && send.err != nil
	})
	r.wantErrIn("Send", send.err, syscall.EPIPE, syscall.ECONNRESET)
}

func watchFIN(r *rig) {
	l := r.link()
	watch := l.b.watch()
	r.quiet()
	if watch.done {
		r.Fatalf("the watch ended with nothing to see: %v", watch)
	}
	r.done(l.a.closeWrite(), watch)
	r.must("WatchClose", watch.err)
}

func watchReset(r *rig) {
	l := r.link()
	watch := l.b.watch()
	r.quiet()
	r.done(l.a.reset(), watch)
	r.must("WatchClose", watch.err)
	recv := l.b.recv(0)
	r.done(recv)
	r.wantErr("Recv afterwards", recv.err, syscall.ECONNRESET)
}

func watchLate(r *rig) {
	for _, end := range []func(sock) *call{sock.close, sock.closeWrite, sock.reset} {
		l := r.link()
		r.done(end(l.a))
		r.quiet()
		watch := l.b.watch()
		r.done(watch)
		r.must("WatchClose", watch.err)
	}
}

func watchOnlyData(r *rig) {
	l := r.link()
	watch := l.b.watch()
	want := payload(1, 2000)
	r.done(l.a.send(want))
	r.quiet()
	if watch.done {
		r.Fatalf("the watch ended because data came: %v", watch)
	}
	cancel := l.b.e.cancel(watch)
	r.done(cancel, watch)
	r.wantErr("the watch", watch.err, transport.ErrCanceled)
	recv := l.b.recv(len(want))
	r.done(recv)
	r.same("bytes", recv.data, want)
}

func watchConsumesNothing(r *rig) {
	for _, end := range []func(sock) *call{sock.close, sock.closeWrite} {
		l := r.link()
		watch := l.b.watch()
		want := payload(1, 10_000)
		r.done(l.a.send(want))
		r.done(end(l.a), watch)
		r.must("WatchClose", watch.err)
		r.quiet()
		recv := l.b.recv(0)
		r.done(recv)
		r.wantErr("the end of the Recv", recv.err, io.EOF)
		r.same("bytes received after the peer closed", recv.data, want)
	}
}

// eofRead returns a connection whose accepted side has read EOF.
func (r *rig) eofRead() link {
	r.Helper()
	l := r.link()
	recv := l.b.recv(0)
	r.done(l.a.closeWrite(), recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	return l
}

func watchAfterEOFReset(r *rig) {
	l := r.eofRead()
	watch := l.b.watch()
	r.quiet()
	if watch.done {
		r.Fatalf("the watch ended with nothing new to see: %v", watch)
	}
	r.spins(l.b.e, "watching after EOF")
	r.done(l.a.reset(), watch)
	r.must("WatchClose", watch.err)
}

func watchAfterEOFClosed(r *rig) {
	l := r.eofRead()
	watch := l.b.watch()
	r.quiet()
	if watch.done {
		r.Fatalf("the watch ended with nothing new to see: %v", watch)
	}
	r.done(l.b.closeWrite(), watch)
	r.must("WatchClose", watch.err)
}

func watchBusy(r *rig) {
	l := r.link()
	first := l.b.watch()
	second := l.b.watch()
	r.done(second)
	r.wantErr("second WatchClose", second.err, transport.ErrBusy)
	r.done(l.a.close(), first)
	r.must("first WatchClose", first.err)
}

func pausedDoesNotSpin(r *rig) {
	for _, end := range []func(sock) *call{sock.closeWrite, sock.close, sock.reset} {
		for _, watched := range []bool{false, true} {
			l := r.link()
			first := l.b.recv(1)
			r.done(l.a.send(payload(1, 1)), first)
			// Few enough bytes that FIN is not stuck behind them.
			r.done(l.a.send(payload(2, 2000)))
			var watch *call
			if watched {
				watch = l.b.watch()
			}
			r.spins(l.b.e, "data waits")
			r.done(end(l.a))
			if watched {
				r.done(watch)
			}
			r.spins(l.b.e, "the peer ended")
			r.done(l.b.close())
		}
	}
}

func finishedDoesNotSpin(r *rig) {
	l := r.eofRead()
	r.spins(l.b.e, "after EOF")
	r.done(l.a.reset())
	r.spins(l.b.e, "after EOF and a reset")
}
