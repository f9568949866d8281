package transporttest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"github.com/weirnet/weir/transport"
)

func addressClaims() []claim {
	return []claim{
		{name: "a listener with port 0 knows the port it got", run: addressOfListener},
		{name: "both sides of a connection agree on their addresses", run: addressesAgree},
		{name: "a listener without a host, or on the unspecified address, serves every address", run: addressEvery},
		{name: "LocalAddress is bound to before connecting", run: addressLocal},
		{name: "IPv6 works as IPv4 does", run: addressIPv6, needs: needsIPv6},
		{name: "Unix sockets work as TCP does and have no peer address", run: addressUnix, needs: needsUnix},
		{name: "Connect where nobody listens fails with ECONNREFUSED", run: connectRefused},
		{name: "Connect to a path where nobody listens fails", run: connectNoPath, needs: needsUnix},
		{name: "Connect to a Unix listener whose queue is full fails at once", run: connectFull, needs: func(f Features) bool { return f.Unix && f.Control }},
		{name: "Connect to what cannot be connected to, or from there, fails and opens nothing", run: connectNowhere},
		{name: "many Connects at once each end once", run: connectMany},
	}
}

func addressOfListener(r *rig) {
	h := r.server().listenOn(transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0"})
	addr := r.local(r.server(), h)
	if addr.Port() == 0 || addr.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		r.Fatalf("LocalAddr answered %v", addr)
	}
}

func addressesAgree(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	acc := r.server().accept(h)
	con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
	r.done(con)
	r.until("the connection", func() bool { return len(acc.conns) == 1 })
	listening := r.local(r.server(), h)
	if local := r.local(r.server(), acc.conns[0]); local != listening {
		r.Fatalf("the accepted socket is bound to %v, its listener to %v", local, listening)
	}
	if local := r.local(r.client(), con.handle()); local != acc.addrs[0] {
		r.Fatalf("the connecting socket is bound to %v, Accept said %v", local, acc.addrs[0])
	}
}

func addressEvery(r *rig) {
	four, six := "127.0.0.1", "[::1]"
	for _, tc := range []struct{ network, address, from string }{
		{"tcp", ":0", four},
		{"tcp4", ":0", four},
		{"tcp", "0.0.0.0:0", four},
		{"tcp", ":0", six},
		{"tcp6", ":0", six},
		{"tcp", "[::]:0", four},
	} {
		if (tc.from == six || tc.address == "[::]:0") && !r.f.Features.IPv6 {
			continue
		}
		h := r.server().listenOn(transport.ListenConfig{Network: tc.network, Address: tc.address})
		port := r.local(r.server(), h).Port()
		acc := r.server().accept(h)
		con := r.client().connect(&transport.DialConfig{Network: "tcp", Address: fmt.Sprintf("%s:%d", tc.from, port)})
		r.done(con)
		r.must("Connect", con.err)
		r.until("the connection", func() bool { return len(acc.conns) == 1 })
		if local := r.local(r.client(), con.handle()); local != acc.addrs[0] {
			r.Fatalf("the connecting socket is bound to %v, Accept said %v", local, acc.addrs[0])
		}
	}
}

func addressLocal(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	acc := r.server().accept(h)
	for i, withPort := range []bool{false, true} {
		dial := r.server().dialConfig(h, transport.SocketConfig{})
		dial.LocalAddress = "127.0.0.2:0"
		if withPort { // one that was free a moment ago
			free := r.client().listenOn(transport.ListenConfig{Network: "tcp", Address: dial.LocalAddress})
			dial.LocalAddress = r.local(r.client(), free).String()
			r.done(r.client().close(free))
		}
		con := r.client().connect(dial)
		r.done(con)
		r.must("Connect", con.err)
		r.until("the connection", func() bool { return len(acc.conns) == i+1 })
		from := acc.addrs[i]
		if from.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 2}) || withPort && from.String() != dial.LocalAddress {
			r.Fatalf("the connection comes from %v, not %v", from, dial.LocalAddress)
		}
	}
}

func addressIPv6(r *rig) {
	h := r.server().listenOn(transport.ListenConfig{Network: "tcp6", Address: "[::1]:0"})
	acc := r.server().accept(h)
	con := r.client().connect(r.server().dialConfig(h, transport.SocketConfig{}))
	r.done(con)
	r.must("Connect", con.err)
	r.until("the connection", func() bool { return len(acc.conns) == 1 })
	if addr := acc.addrs[0]; addr.Addr() != netip.IPv6Loopback() || addr != r.local(r.client(), con.handle()) {
		r.Fatalf("the connection comes from %v", addr)
	}
	a, b := sock{r.client(), con.handle()}, sock{r.server(), acc.conns[0]}
	r.runFlows(r.flow(a, b, 1, 100_000), r.flow(b, a, 2, 100_000))
}

// unixPath is a path for a socket, short enough for sun_path (unix(7): 108 bytes).
func (r *rig) unixPath() string {
	r.Helper()
	dir, err := os.MkdirTemp("", "weir")
	r.must("MkdirTemp", err)
	r.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func addressUnix(r *rig) {
	path := r.unixPath()
	h := r.server().listenOn(transport.ListenConfig{Network: "unix", Address: path})
	if addr, ok := r.server().tr.LocalAddr(h).(*net.UnixAddr); !ok || addr.Name != path {
		r.Fatalf("LocalAddr answered %v", r.server().tr.LocalAddr(h))
	}
	l := r.linksTo(r.client(), r.server(), h, 1, transport.SocketConfig{})[0]
	for _, e := range r.ends {
		for _, c := range e.order {
			if len(c.unix) > 0 && !c.unix[0] {
				r.Fatalf("%v does not say that the peer is a Unix socket", c)
			}
		}
	}
	if addr, ok := r.client().tr.LocalAddr(l.a.h).(*net.UnixAddr); !ok || addr == nil {
		r.Fatalf("LocalAddr of the connecting socket answered %v", r.client().tr.LocalAddr(l.a.h))
	}
	r.runFlows(r.flow(l.a, l.b, 1, 1<<20), r.flow(l.b, l.a, 2, 1<<20))
	recv := l.b.recv(0)
	watch := l.a.watch()
	r.done(l.a.closeWrite(), recv)
	r.done(l.b.close(), watch)
	r.done(r.server().close(h))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		r.Fatalf("the path does not go with its listener: %v", err)
	}
}

func connectRefused(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	r.done(r.server().close(h))
	for range 3 {
		con := r.client().connect(dial)
		r.done(con)
		r.wantErr("Connect", con.err, syscall.ECONNREFUSED)
	}
	if open := r.client().tr.Stats().Open; open != 0 {
		r.Fatalf("%d open after Connects that failed", open)
	}
}

func connectNoPath(r *rig) {
	con := r.client().connect(&transport.DialConfig{Network: "unix", Address: r.unixPath()})
	r.done(con)
	r.wantErrIn("Connect", con.err, syscall.ENOENT, syscall.ECONNREFUSED)
}

func connectFull(r *rig) {
	path := r.unixPath()
	r.server().listenOn(transport.ListenConfig{Network: "unix", Address: path, Backlog: 1})
	for range 10 {
		con := r.client().connect(&transport.DialConfig{Network: "unix", Address: path})
		r.done(con)
		if con.err != nil {
			r.wantErr("Connect", con.err, syscall.EAGAIN)
			return
		}
	}
	r.Fatalf("the queue took more than its backlog")
}

func connectNowhere(r *rig) {
	for _, dial := range []*transport.DialConfig{
		nil,
		{Network: "tcp", Address: ":80"},
		{Network: "tcp", Address: "127.0.0.1:0"},
		{Network: "tcp", Address: "localhost:1"},
		{Network: "tcp", Address: "127.0.0.1:1", LocalAddress: "[::1]:0"},
		{Network: "tcp", Address: "127.0.0.1:1", LocalAddress: "192.0.2.77:0"}, // nobody's address: TEST-NET-1
	} {
		con := r.client().connect(dial)
		r.done(con)
		if con.err == nil || len(con.conns) > 0 {
			r.Fatalf("Connect with %+v: %v", dial, con)
		}
	}
	if open := r.client().tr.Stats().Open; open != 0 {
		r.Fatalf("%d open after Connects that failed", open)
	}
}

func connectMany(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	acc := r.server().accept(h)
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	var cons []*call
	for range 200 {
		cons = append(cons, r.client().connect(dial))
	}
	r.done(cons...)
	for _, con := range cons {
		r.must("Connect", con.err)
		if len(con.conns) != 1 {
			r.Fatalf("%v yielded %d connections", con, len(con.conns))
		}
	}
	r.until("all connections", func() bool { return len(acc.conns) == len(cons) })
}
