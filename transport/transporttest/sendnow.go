package transporttest

import (
	"github.com/weirnet/weir/transport"
)

func sendNowClaims() []claim {
	can := func(f Features) bool { return f.SendNow }
	return []claim{
		{
			name:  "a transport without SendNow answers ErrNotNow and sends nothing",
			needs: func(f Features) bool { return !f.SendNow }, run: sendNowNot,
		},
		{name: "SendNow sends what there is room for, without a completion", needs: can, run: sendNowAtOnce},
		{
			name: "SendNow of several Bufs sends them in order and leaves them as they were", needs: can,
			run: sendNowPieces,
		},
		{name: "SendNow that finds too little room says how much went out", needs: can, run: sendNowPart},
		{name: "SendNow while a Send is in progress is ErrBusy and leaves it alone", needs: can, run: sendNowBusy},
		{name: "SendNow on a Handle that is closed is ErrStale", needs: can, run: sendNowStale},
		{name: "SendNow to a peer that reset the connection fails", needs: can, run: sendNowBroken},
	}
}

// sendsNow sends p with SendNow in pieces of some size.
func (s sock) sendsNow(p []byte, piece int) (int, error) {
	bufs := s.pieces(p, piece)
	n, err := s.e.tr.SendNow(s.h, bufs)
	left := 0
	for _, b := range bufs {
		left += b.Len()
		b.Release()
	}
	if left != len(p) {
		s.e.r.Fatalf("SendNow of %d bytes left its Bufs with %d", len(p), left)
	}
	return n, err
}

func sendNowNot(r *rig) {
	l := r.link()
	n, err := l.a.sendsNow(payload(1, 100), 100)
	r.wantErr("SendNow", err, transport.ErrNotNow)
	if n != 0 {
		r.Fatalf("and yet %d bytes", n)
	}
	want := payload(2, 10)
	recv := l.b.recv(len(want))
	r.done(l.a.send(want), recv)
	r.same("bytes", recv.data, want)
}

func sendNowAtOnce(r *rig) {
	l := r.link()
	recv := l.b.recv(0)
	var all []byte
	for i := range 50 {
		before := l.a.e.completions
		want := payload(uint64(i), 1+i*20)
		n, err := l.a.sendsNow(want, 64<<10)
		if n < len(want) {
			r.wantErr("SendNow of a part", err, transport.ErrWouldBlock)
		} else {
			r.must("SendNow", err)
		}
		all = append(all, want[:n]...)
		r.until("the bytes", func() bool { return len(recv.data) == len(all) })
		if l.a.e.completions != before {
			r.Fatalf("a completion for SendNow")
		}
	}
	r.same("bytes", recv.data, all)
	if len(all) == 0 {
		r.Fatalf("nothing went out, although there was room")
	}
}

func sendNowPieces(r *rig) {
	l := r.link()
	recv := l.b.recv(0)
	var all []byte
	most := 0
	for i := range 20 {
		want := payload(uint64(i), 1000)
		n, _ := l.a.sendsNow(want, 7)
		most = max(most, n)
		all = append(all, want[:n]...)
		r.until("the bytes", func() bool { return len(recv.data) == len(all) })
	}
	r.same("bytes", recv.data, all)
	if most <= 7 {
		r.Fatalf("no more than %d bytes went out at a time", most)
	}
}

func sendNowPart(r *rig) {
	l := r.tightLink()
	want := payload(1, 8<<20)
	first, err := l.a.sendsNow(want, 64<<10)
	r.wantErr("SendNow", err, transport.ErrWouldBlock)
	if first == 0 || first == len(want) {
		r.Fatalf("%d of %d bytes went out at once", first, len(want))
	}
	recv := l.b.recv(len(want))
	rest := l.a.send(want[first:])
	r.done(rest, recv)
	r.must("Send of the rest", rest.err)
	r.same("bytes", recv.data, want)
}

func sendNowBusy(r *rig) {
	l := r.tightLink()
	first, want := l.a.blockedSend(1)
	n, err := l.a.sendsNow(payload(2, 10), 10)
	r.wantErr("SendNow", err, transport.ErrBusy)
	recv := l.b.recv(len(want) + n)
	r.done(first, recv)
	r.same("bytes of the Send", recv.data, want)
}

func sendNowStale(r *rig) {
	l := r.link()
	r.done(l.a.close())
	if n, err := l.a.sendsNow(payload(1, 10), 10); n != 0 {
		r.Fatalf("%d bytes went out, %v", n, err)
	} else {
		r.wantErr("SendNow", err, transport.ErrStale)
	}
}

func sendNowBroken(r *rig) {
	l := r.link()
	r.done(l.b.reset())
	watch := l.a.watch()
	r.done(watch)
	if n, err := l.a.sendsNow(payload(1, 10), 10); err == nil || n != 0 {
		r.Fatalf("%d bytes went out, %v", n, err)
	}
}
