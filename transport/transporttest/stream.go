package transporttest

import (
	"math/rand/v2"

	"github.com/weirnet/weir/transport"
)

func streamClaims() []claim {
	return []claim{
		{
			name: "bytes arrive complete and in order, in pieces from 1 byte to 1 MiB and in both directions at once",
			run:  bothWays,
		},
		{name: "many connections do not mix their bytes", run: manyConnections},
		{name: "both ends of a connection may be on one transport", run: oneTransport},
		{name: "bytes that came before the Recv are received", run: receiveLater},
		{name: "a connection that floods keeps no other waiting", run: floodStarvesNobody},
		{name: "many small sends, one after the other, arrive in order", run: smallSends},
	}
}

// flow sends a payload in pieces of random size, one after the other, and counts what the other side gets.
type flow struct {
	from, to sock
	rng      *rand.Rand
	want     []byte
	sent     int
	sending  *call
	recv     *call
}

func (r *rig) flow(from, to sock, seed uint64, n int) *flow {
	return &flow{
		from: from, to: to, rng: rand.New(rand.NewPCG(seed, 1)), want: payload(seed, n), recv: to.recv(n),
	}
}

// step submits the next piece when the last one is sent, and reports whether all has arrived.
func (f *flow) step() bool {
	if f.sending == nil || f.sending.done {
		if f.sending != nil {
			f.from.e.r.must("Send", f.sending.err)
		}
		if f.sent < len(f.want) {
			n := min(1<<f.rng.IntN(21), len(f.want)-f.sent)
			n = 1 + f.rng.IntN(n)
			f.sending = f.from.sendPieces(f.want[f.sent:f.sent+n], 1+f.rng.IntN(64<<10))
			f.sent += n
		}
	}
	return f.recv.done && f.sending.done && f.sent == len(f.want)
}

// runFlows takes turns until all flows have arrived.
func (r *rig) runFlows(flows ...*flow) {
	r.Helper()
	r.until("all bytes", func() bool {
		over := true
		for _, f := range flows {
			over = f.step() && over
		}
		return over
	})
	for _, f := range flows {
		r.must("Recv", f.recv.err)
		r.same("bytes received", f.recv.data, f.want)
	}
}

func bothWays(r *rig) {
	l := r.link()
	r.runFlows(r.flow(l.a, l.b, 1, 4<<20), r.flow(l.b, l.a, 2, 4<<20))
	l = r.tightLink()
	r.runFlows(r.flow(l.a, l.b, 3, 1<<20), r.flow(l.b, l.a, 4, 1<<20))
}

func manyConnections(r *rig) {
	var flows []*flow
	for i, l := range r.links(32, transport.SocketConfig{}) {
		flows = append(flows, r.flow(l.a, l.b, uint64(2*i), 64<<10), r.flow(l.b, l.a, uint64(2*i+1), 64<<10))
	}
	r.runFlows(flows...)
}

func oneTransport(r *rig) {
	e := r.server()
	h := e.listen(transport.SocketConfig{})
	l := r.linksTo(e, e, h, 1, transport.SocketConfig{})[0]
	r.runFlows(r.flow(l.a, l.b, 1, 256<<10), r.flow(l.b, l.a, 2, 256<<10))
}

func receiveLater(r *rig) {
	l := r.link()
	want := payload(1, 1000)
	r.done(l.a.send(want))
	r.quiet()
	recv := l.b.recv(len(want))
	r.done(recv)
	r.same("bytes", recv.data, want)
}

func smallSends(r *rig) {
	l := r.link()
	want := payload(1, 2000)
	recv := l.b.recv(len(want))
	for i := range want {
		send := l.a.send(want[i : i+1])
		r.done(send)
		r.must("Send", send.err)
	}
	r.done(recv)
	r.same("bytes", recv.data, want)
}

func floodStarvesNobody(r *rig) {
	l := r.links(9, transport.SocketConfig{})
	drain := l[0].b.recv(0)
	drain.drop = true
	wave := payload(1, 512<<10)
	flood := l[0].a.send(wave)
	var flows []*flow
	for i, calm := range l[1:] {
		flows = append(flows, r.flow(calm.a, calm.b, uint64(i), 2000), r.flow(calm.b, calm.a, uint64(i), 2000))
	}
	over := 0
	r.until("the bytes of the calm connections", func() bool {
		if flood.done {
			flood = l[0].a.send(wave)
		}
		over = 0
		for _, f := range flows {
			if f.step() {
				over++
			}
		}
		return over == len(flows)
	})
	for _, f := range flows {
		r.same("bytes received", f.recv.data, f.want)
	}
}
