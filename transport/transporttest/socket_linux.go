package transporttest

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirnet/weir/transport"
)

func socketClaims() []claim {
	claims := []claim{
		{name: "Control runs its function with the socket's descriptor and answers its error", run: controlRuns},
		{name: "the Control hook of Listen runs between socket and bind", run: controlListen},
		{name: "the Control hook of Connect runs between socket and connect", run: controlConnect},
		{name: "an error of a Control hook fails Listen and Connect and leaves nothing open", run: controlFails},
		{name: "SocketConfig applies to connecting and to accepted sockets", run: socketConfig},
		{
			name: "an Accept without descriptors left fails with EMFILE, and a later one loses no connection",
			run:  acceptNoDescriptors,
		},
		{name: "Connect and Listen without descriptors left fail with EMFILE", run: connectNoDescriptors},
		{name: "an adopted listener is duplicated: the original stays its owner's", run: listenerAdopted},
	}
	for i := range claims {
		claims[i].needs = needsControl
	}
	return claims
}

// option reads a socket option.
func (s sock) option(level, name int) int {
	s.e.r.Helper()
	value := 0
	s.e.r.must("Control", s.e.tr.Control(s.h, func(fd uintptr) (err error) {
		value, err = syscall.GetsockoptInt(int(fd), level, name)
		return err
	}))
	return value
}

func controlRuns(r *rig) {
	l := r.link()
	if kind := l.a.option(syscall.SOL_SOCKET, syscall.SO_TYPE); kind != syscall.SOCK_STREAM {
		r.Fatalf("the descriptor is a socket of type %d", kind)
	}
	bad := errors.New("bad")
	r.wantErr("Control", l.a.e.tr.Control(l.a.h, func(uintptr) error { return bad }), bad)
}

func controlListen(r *rig) {
	cfg := r.address()
	ran := 0
	cfg.Control = func(network, address string, c syscall.RawConn) error {
		ran++
		if network != "tcp4" && network != "tcp" || address == "" {
			r.Errorf("Control of %q %q", network, address)
		}
		return c.Control(func(fd uintptr) {
			// Before bind(2) a socket has no port.
			if sa, err := syscall.Getsockname(int(fd)); err != nil || sa.(*syscall.SockaddrInet4).Port != 0 {
				r.Errorf("the socket is bound already: %v, %v", sa, err)
			}
			r.must("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PRIORITY, 3))
		})
	}
	h := r.server().listenOn(cfg)
	if ran != 1 {
		r.Fatalf("Control ran %d times", ran)
	}
	if n := (sock{r.server(), h}).option(syscall.SOL_SOCKET, syscall.SO_PRIORITY); n != 3 {
		r.Fatalf("what Control set is %d", n)
	}
}

func controlConnect(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	acc := r.server().accept(h)
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	ran := 0
	dial.Control = func(_, address string, c syscall.RawConn) error {
		ran++
		if address != dial.Address {
			r.Errorf("Control of %q, want %q", address, dial.Address)
		}
		return c.Control(func(fd uintptr) {
			if _, err := syscall.Getpeername(int(fd)); !errors.Is(err, syscall.ENOTCONN) {
				r.Errorf("the socket is connected already: %v", err)
			}
			r.must("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PRIORITY, 3))
		})
	}
	con := r.client().connect(dial)
	r.done(con)
	r.must("Connect", con.err)
	if n := (sock{r.client(), con.handle()}).option(syscall.SOL_SOCKET, syscall.SO_PRIORITY); n != 3 || ran != 1 {
		r.Fatalf("Control ran %d times, what it set is %d", ran, n)
	}
	r.until("the connection", func() bool { return len(acc.conns) == 1 })
}

func controlFails(r *rig) {
	bad := errors.New("bad")
	fail := func(string, string, syscall.RawConn) error { return bad }
	h := r.server().listen(transport.SocketConfig{})
	cfg := r.address()
	cfg.Control = fail
	_, err := r.server().tr.Listen(cfg)
	r.wantErr("Listen", err, bad)
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	dial.Control = fail
	con := r.client().connect(dial)
	r.done(con)
	r.wantErr("Connect", con.err, bad)
	if s, c := r.server().tr.Stats().Open, r.client().tr.Stats().Open; s != 1 || c != 0 {
		r.Fatalf("%d and %d open", s, c)
	}
}

func socketConfig(r *rig) {
	const tcp, sol = syscall.IPPROTO_TCP, syscall.SOL_SOCKET
	original, err := net.Listen("tcp", "127.0.0.1:0")
	r.must("net.Listen", err)
	defer original.Close()
	type option struct{ level, name, value int }
	for _, tc := range []struct {
		cfg  transport.SocketConfig
		want []option
	}{
		{transport.SocketConfig{}, []option{
			{tcp, syscall.TCP_NODELAY, 1},
			{sol, syscall.SO_KEEPALIVE, 1}, // as in package net
			{tcp, syscall.TCP_KEEPIDLE, 15},
			{tcp, syscall.TCP_KEEPINTVL, 15},
			{tcp, syscall.TCP_KEEPCNT, 9},
		}},
		{transport.SocketConfig{Delay: true, NoKeepAlive: true}, []option{
			{tcp, syscall.TCP_NODELAY, 0}, {sol, syscall.SO_KEEPALIVE, 0},
		}},
		{transport.SocketConfig{
			SendBufferBytes: 20_000, ReceiveBufferBytes: 30_000,
			KeepAlive: net.KeepAliveConfig{
				Enable: true, Idle: 1500 * time.Millisecond, Interval: 33 * time.Second,
				Count: 5,
			},
		}, []option{
			{sol, syscall.SO_SNDBUF, 40_000},
			{sol, syscall.SO_RCVBUF, 60_000}, // the kernel doubles them: socket(7)
			{sol, syscall.SO_KEEPALIVE, 1},
			{tcp, syscall.TCP_KEEPIDLE, 2},
			{tcp, syscall.TCP_KEEPINTVL, 33},
			{tcp, syscall.TCP_KEEPCNT, 5},
		}},
	} {
		for _, cfg := range []transport.ListenConfig{r.address(), {Listener: original.(*net.TCPListener)}} {
			cfg.Socket = tc.cfg
			l := r.linksTo(r.client(), r.server(), r.server().listenOn(cfg), 1, tc.cfg)[0]
			for _, s := range []sock{l.a, l.b} {
				for _, want := range tc.want {
					if got := s.option(want.level, want.name); got != want.value {
						r.Errorf("transport %d, adopted %v: an option is %d, want %+v", s.e.index, cfg.Listener != nil,
							got, want)
					}
				}
			}
		}
	}
}

func acceptNoDescriptors(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	acc := r.server().accept(h)
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	r.done(r.client().connect(dial))
	r.until("a connection", func() bool { return len(acc.conns) == 1 })
	r.done(r.server().cancel(acc), acc)
	r.done(r.client().connect(dial), r.client().connect(dial))

	restore := r.exhaustDescriptors()
	defer restore()
	for range 3 {
		acc = r.server().accept(h)
		r.done(acc)
		r.wantErr("Accept", acc.err, syscall.EMFILE)
	}
	r.spins(r.server(), "connections wait that cannot be accepted")
	restore()
	acc = r.server().accept(h)
	r.until("the connections that waited", func() bool { return len(acc.conns) == 2 })
}

func connectNoDescriptors(r *rig) {
	h := r.server().listen(transport.SocketConfig{})
	dial := r.server().dialConfig(h, transport.SocketConfig{})
	restore := r.exhaustDescriptors()
	defer func() { restore() }()
	con := r.client().connect(dial)
	r.done(con)
	r.wantErr("Connect", con.err, syscall.EMFILE)
	restore() // a transport may have opened and closed something on the way
	restore = r.exhaustDescriptors()
	_, err := r.client().tr.Listen(r.address())
	r.wantErr("Listen", err, syscall.EMFILE)
	restore()
	acc := r.server().accept(h)
	con = r.client().connect(dial)
	r.done(con)
	r.must("Connect afterwards", con.err)
	r.until("the connection", func() bool { return len(acc.conns) == 1 })
}

// exhaustDescriptors lowers RLIMIT_NOFILE to the lowest descriptor that is free (getrlimit(2)) and returns how to undo
// it, once or more often.
func (r *rig) exhaustDescriptors() (restore func()) {
	r.Helper()
	var old syscall.Rlimit
	r.must("getrlimit", syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	free, err := syscall.Dup(1)
	r.must("dup", err)
	r.must("close", syscall.Close(free))
	r.must("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(free), Max: old.Max}))
	return func() { r.must("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)) }
}

func listenerAdopted(r *rig) {
	original, err := net.Listen("tcp", "127.0.0.1:0")
	r.must("net.Listen", err)
	defer original.Close()
	h := r.server().listenOn(transport.ListenConfig{Listener: original.(*net.TCPListener)})
	if addr := r.server().tr.LocalAddr(h).String(); addr != original.Addr().String() {
		r.Fatalf("the adopted listener says %s, the original %s", addr, original.Addr())
	}
	l := r.linksTo(r.client(), r.server(), h, 1, transport.SocketConfig{})[0]
	r.runFlows(r.flow(l.a, l.b, 1, 1000))
	r.done(r.server().close(h))
	// The original still listens: a connection in its backlog is accepted by its owner.
	var accepted atomic.Bool
	over := make(chan struct{})
	go func() {
		defer close(over)
		if c, err := original.Accept(); err == nil {
			accepted.Store(true)
			c.Close()
		}
	}()
	con := r.client().connect(&transport.DialConfig{Network: "tcp", Address: original.Addr().String()})
	r.done(con)
	r.until("the owner's Accept", accepted.Load)
	<-over
}
