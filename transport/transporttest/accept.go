package transporttest

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"

	"github.com/weirnet/weir/transport"
)

func acceptClaims() []claim {
	return []claim{
		{
			name: "1,000 connections are accepted, each under a Handle of its own and with its peer's address",
			run:  acceptMany,
		},
		{name: "connections that came before the Accept are accepted", run: acceptLater},
		{name: "a listener without an Accept accepts nothing and does not spin", run: acceptNothing},
		{name: "an Accept that is cancelled and submitted again loses no connection", run: acceptAgain},
		{name: "a second Accept on a listener that has one completes with ErrBusy", run: acceptBusy},
		{name: "a connection whose peer has sent and gone is still accepted and read", run: acceptGone},
		{name: "the address of a peer that has reset the connection is known", run: acceptReset},
		{name: "Connect says the address that it has connected to", run: connectAddress},
		{name: "accepted connections outlive their listener", run: acceptOutlives},
		{name: "closing a listener ends its Accept first and frees its port", run: acceptClosed},
		{name: "closing a listener ends the connections that nobody accepted", run: acceptAbandoned},
		{name: "Listen on an address in use fails with EADDRINUSE", run: listenInUse},
		{name: "listeners with ReusePort share an address and lose no connection", run: listenShared},
		{name: "Listen on what is no address fails and opens nothing", run: listenNowhere},
	}
}

func acceptMany(r *rig) {
	const total, batch = 1000, 50
	h := r.server().listen(transport.SocketConfig{})
	acc := r.server().accept(h)
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	peers := map[netip.AddrPort]int{}
	for made := 0; made < total; made += batch {
		cons := make([]*call, batch)
		for i := range cons {
			cons[i] = r.client().connect(dial)
		}
		r.done(cons...)
		for _, con := range cons {
			r.must("Connect", con.err)
			peers[r.local(r.client(), con.handle())]++
		}
	}
	r.until("all connections", func() bool { return len(acc.conns) >= total || acc.done })
	seen := map[transport.Handle]bool{}
	for i, conn := range acc.conns {
		if seen[conn] {
			r.Fatalf("Handle %#x was given twice", uint64(conn))
		}
		seen[conn] = true
		peers[acc.addrs[i]]--
		if local := r.local(r.server(), conn); local != r.local(r.server(), h) {
			r.Fatalf("an accepted socket says that it is bound to %v", local)
		}
	}
	wrong := 0
	for _, n := range peers {
		if n != 0 {
			wrong++
		}
	}
	if wrong > 0 {
		r.Errorf("%d addresses are only those of connecting sockets, or only what Accept said", wrong)
	}
	if len(acc.conns) != total || acc.done {
		r.Fatalf("%d connections accepted: %v", len(acc.conns), acc)
	}
}

// local is the TCP address that h is bound to.
func (r *rig) local(e *end, h transport.Handle) netip.AddrPort {
	r.Helper()
	tcp, ok := e.tr.LocalAddr(h).(*net.TCPAddr)
	if !ok || tcp == nil {
		r.Fatalf("LocalAddr answered %v", e.tr.LocalAddr(h))
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func acceptLater(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	var cons []*call
	for range 20 {
		cons = append(cons, r.client().connect(dial))
	}
	r.done(cons...)
	acc := r.server().accept(h)
	r.until("all connections", func() bool { return len(acc.conns) == len(cons) })
}

// acceptReset has peers reset before the Accept, and while it is armed, for as long as it takes to be handed out.
func acceptReset(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	var acc *call
	peers := map[netip.AddrPort]bool{}
	for i := range 20 {
		if i == 10 {
			acc = r.server().accept(h)
			r.until("those that had reset before", func() bool { return len(acc.conns) == i || acc.done })
		}
		con := r.client().connect(dial)
		for !con.done {
			r.client().wait(shortWait)
		}
		r.must("Connect", con.err)
		peers[r.local(r.client(), con.handle())] = true
		reset := sock{r.client(), con.handle()}.reset()
		for !reset.done {
			r.client().wait(shortWait)
		}
	}
	r.until("all connections", func() bool { return len(acc.conns) == len(peers) || acc.done })
	for i, conn := range acc.conns {
		if !peers[acc.addrs[i]] {
			r.Fatalf("connection %d is of %v, which is none of the peers", i, acc.addrs[i])
		}
		delete(peers, acc.addrs[i])
		recv := sock{r.server(), conn}.recv(0)
		r.done(recv)
		r.wantErr("the Recv", recv.err, syscall.ECONNRESET)
	}
}

func connectAddress(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
	r.done(con)
	r.must("Connect", con.err)
	if want := r.local(r.server(), h); con.addrs[0] != want {
		r.Fatalf("Connect said %v, the listener is bound to %v", con.addrs[0], want)
	}
}

func acceptNothing(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
	r.done(con)
	r.spins(r.server(), "a connection waits in the backlog")
	if open := r.server().tr.Stats().Open; open != 1 {
		r.Fatalf("%d open, want the listener alone", open)
	}
}

func acceptAgain(r *rig) {
	const total = 200
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	var cons, accs []*call
	accepted := func() int {
		n := 0
		for _, acc := range accs {
			n += len(acc.conns)
		}
		return n
	}
	for i := range total {
		cons = append(cons, r.client().connect(dial))
		if i%3 > 0 {
			continue
		}
		acc := r.server().accept(h)
		accs = append(accs, acc)
		for range i % 5 {
			r.turn()
		}
		r.done(r.server().cancel(acc), acc)
		r.wantErr("the Accept", acc.err, transport.ErrCanceled)
	}
	accs = append(accs, r.server().accept(h))
	r.done(cons...)
	r.until("all connections", func() bool { return accepted() == total })
	for _, con := range cons {
		r.must("Connect", con.err)
	}
}

func acceptBusy(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	first := r.server().accept(h)
	second := r.server().accept(h)
	r.done(second)
	r.wantErr("second Accept", second.err, transport.ErrBusy)
	con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
	r.done(con)
	r.until("a connection of the first Accept", func() bool { return len(first.conns) == 1 })
}

func acceptGone(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
	r.done(con)
	a := sock{r.client(), con.handle()}
	want := payload(1, 1000)
	r.done(a.send(want))
	r.done(a.close())
	r.quiet()
	acc := r.server().accept(h)
	r.until("the connection", func() bool { return len(acc.conns) == 1 })
	recv := sock{r.server(), acc.conns[0]}.recv(0)
	r.done(recv)
	r.wantErr("the end of the Recv", recv.err, io.EOF)
	r.same("bytes", recv.data, want)
}

func acceptOutlives(r *rig) {
	l := r.link() // closes the listener
	r.quiet()
	r.runFlows(r.flow(l.a, l.b, 1, 100_000), r.flow(l.b, l.a, 2, 100_000))
}

func acceptClosed(r *rig) {
	for range 5 {
		cfg := r.address()
		h := r.server().listenOn(cfg)
		addr := r.local(r.server(), h)
		acc := r.server().accept(h)
		con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
		r.until("the connection", func() bool { return len(acc.conns) == 1 && con.done })
		r.done(r.client().close(con.handle()))
		closing := r.server().close(h)
		r.done(acc, closing)
		r.wantErr("the Accept", acc.err, transport.ErrCanceled)
		r.must("Close", closing.err)
		if acc.endAt > closing.endAt {
			r.Fatalf("Close completed before the Accept ended")
		}
		cfg.Address = addr.String()
		again := r.client().listenOn(cfg)
		r.done(r.client().close(again))
	}
}

func acceptAbandoned(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
	r.done(con)
	recv := sock{r.client(), con.handle()}.recv(0)
	r.done(r.server().close(h), recv)
	r.wantErrIn("the end of the Recv", recv.err, syscall.ECONNRESET, io.EOF)
}

func listenInUse(r *rig) {
	cfg := r.address()
	h := r.server().listenOn(cfg)
	cfg.Address = r.server().tr.LocalAddr(h).String()
	for _, e := range r.ends {
		if _, err := e.tr.Listen(cfg); !errors.Is(err, syscall.EADDRINUSE) {
			r.Fatalf("Listen: %v, want EADDRINUSE", err)
		}
	}
	if open := r.server().tr.Stats().Open; open != 1 {
		r.Fatalf("%d open after a Listen that failed", open)
	}
}

func listenShared(r *rig) {
	const total = 64
	cfg := r.address()
	cfg.ReusePort = true
	first := r.server().listenOn(cfg)
	cfg.Address = r.server().tr.LocalAddr(first).String()
	second := r.client().listenOn(cfg)
	accs := []*call{r.server().accept(first), r.client().accept(second)}
	dial := r.server().dialConfig(first, transport.SocketConfig{})
	var cons []*call
	for range total {
		cons = append(cons, r.client().connect(dial))
	}
	r.done(cons...)
	r.until("all connections", func() bool { return len(accs[0].conns)+len(accs[1].conns) == total })
	if len(accs[0].conns) == 0 || len(accs[1].conns) == 0 {
		r.Fatalf("one listener got all connections: %v, %v", accs[0], accs[1])
	}
}

func listenNowhere(r *rig) {
	e := r.server()
	for _, cfg := range []transport.ListenConfig{
		{},
		{Network: "tcp"},
		{Network: "tcp", Address: "127.0.0.1"},
		{Network: "tcp", Address: "127.0.0.1:65536"},
		{Network: "tcp", Address: "127.0.0.1:http-ish"},
		{Network: "tcp", Address: "name.invalid:80"},
		{Network: "tcp4", Address: "[::1]:0"},
		{Network: "tcp6", Address: "127.0.0.1:0"},
		{Network: "carrier-pigeon", Address: "127.0.0.1:0"},
		{Network: "unix"},
	} {
		if h, err := e.tr.Listen(cfg); err == nil || h != 0 {
			r.Fatalf("Listen on %q %q: handle %#x, error %v", cfg.Network, cfg.Address, uint64(h), err)
		}
		dial := &transport.DialConfig{Network: cfg.Network, Address: cfg.Address}
		con := e.connect(dial)
		r.done(con)
		if con.err == nil {
			r.Fatalf("Connect to %q %q succeeded", cfg.Network, cfg.Address)
		}
	}
	if open := e.tr.Stats().Open; open != 0 {
		r.Fatalf("%d open", open)
	}
}
