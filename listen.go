package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// Listen listens on address, beside other listeners, and serves what connects; it returns the address, with the port
// that the kernel has chosen when it was 0. Errors of the configuration come before anything is started.
// ErrServerClosed after Shutdown or Close.
//
// network is "tcp", "tcp4", "tcp6" or "unix". The host is a literal address or a name, which stands for one of its
// addresses, as with net.Listen; without a host it is all addresses, on "tcp" those of IPv4 and IPv6.
//
// Accept says how the connections come to the loops. A port on which anybody listens is refused, unless SharePort is
// set, but not before a second: it may be a server that was killed just now.
func (s *Server) Listen(network, address string) (net.Addr, error) {
	e, err := s.begin("listen")
	if err != nil {
		return nil, err
	}
	literal, err := listenAddress(network, address)
	if err != nil {
		return nil, fmt.Errorf("weir: listen %s %s: %w", network, address, err)
	}
	cfg := transport.ListenConfig{
		Network: network, Address: literal, Backlog: s.Backlog,
		Control: guarded(s.Control, s.logger()), Socket: s.Socket,
	}
	var addr net.Addr
	switch s.Accept.way(len(e.workers), network == "unix") {
	case AcceptReusePort:
		addr, err = s.listenEach(e, cfg)
	case AcceptHandoff:
		addr, err = s.listenFront(e, cfg)
	default:
		addr, err = s.listenShared(e, cfg)
	}
	if err != nil {
		return nil, err
	}
	if err := s.opened(addr, nil); err != nil {
		return nil, err
	}
	return addr, nil
}

// listenEach opens a listener per loop. With port 0 the first one chooses the port of all.
//
// The first one has the port to itself until it listens, so that the kernel refuses it when anybody else does: of
// several servers that begin at once, one gets the port. Only then the others may join it.
func (s *Server) listenEach(e *engine, cfg transport.ListenConfig) (net.Addr, error) {
	cfg.ReusePort = s.SharePort
	var socket sharedSocket
	defer socket.close()
	ln, addr, err := s.listenFirst(e.workers[0], socket.kept(cfg), nil)
	if err != nil {
		return nil, err
	}
	if err = socket.sharePort(); err == nil {
		if tcp, ok := addr.(*net.TCPAddr); ok {
			host, _, _ := net.SplitHostPort(cfg.Address)
			cfg.Address = net.JoinHostPort(host, strconv.Itoa(tcp.Port))
		}
		cfg.ReusePort = true
		err = s.listenOn(e.workers[1:], cfg, nil)
	}
	if err == nil && s.SteerByCPU {
		err = socket.steer(len(e.workers))
	}
	if err != nil {
		e.workers[0].do(func() { e.workers[0].closeListener(ln) })
		return nil, err
	}
	return addr, nil
}

// listenFront opens a listener on a loop that accepts for all.
func (s *Server) listenFront(e *engine, cfg transport.ListenConfig) (net.Addr, error) {
	cfg.ReusePort = s.SharePort && cfg.Network != "unix"
	front, err := e.startFront(s)
	if err != nil {
		return nil, listenError(cfg, err)
	}
	_, addr, err := s.listenFirst(front, cfg, nil)
	return addr, err
}

// listenShared opens one listener, which all loops but the first adopt.
func (s *Server) listenShared(e *engine, cfg transport.ListenConfig) (net.Addr, error) {
	cfg.ReusePort = s.SharePort && cfg.Network != "unix"
	if len(e.workers) == 1 {
		_, addr, err := s.listenFirst(e.workers[0], cfg, nil)
		return addr, err
	}
	var socket sharedSocket
	defer socket.close()
	cfg.Shared = true
	m := s.newMutex(e)
	ln, addr, err := s.listenFirst(e.workers[0], socket.kept(cfg), m)
	if err != nil {
		return nil, err
	}
	cfg.Control, cfg.Listener = nil, &socket
	if err := s.listenOn(e.workers[1:], cfg, m); err != nil {
		e.workers[0].do(func() { e.workers[0].closeListener(ln) })
		return nil, err
	}
	e.watchMutex(m)
	return addr, nil
}

const (
	// inUsePatience is how long Listen tries a port that is in use. A process that was killed is gone before its rings
	// are: the kernel takes them apart a while later, and until then an accept that was armed keeps the listener.
	inUsePatience = time.Second
	inUsePause    = time.Millisecond // at first; it doubles
)

// listenFirst opens a listener on one loop. m is nil unless that takes turns with others.
func (s *Server) listenFirst(w *worker, cfg transport.ListenConfig, m *acceptMutex) (
	ln *channel.Listener, addr net.Addr, err error,
) {
	try := func() (err error) {
		if ln, err = w.listen(s, cfg, m); err == nil {
			addr = ln.Addr()
		}
		return err
	}
	err = w.call(context.Background(), try)
	if cfg.Network != "unix" && errors.Is(err, syscall.EADDRINUSE) {
		s.logger().Warn("weir: the address is in use, trying again", "address", cfg.Address, "for", inUsePatience)
		deadline := time.Now().Add(inUsePatience)
		for pause := inUsePause; errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(deadline); pause *= 2 {
			time.Sleep(min(pause, time.Until(deadline)))
			err = w.call(context.Background(), try)
		}
	}
	return ln, addr, listenError(cfg, err)
}

// listenOn opens a listener on each of the loops, or none. m is nil unless they take turns.
func (s *Server) listenOn(workers []*worker, cfg transport.ListenConfig, m *acceptMutex) error {
	listeners := make([]*channel.Listener, len(workers))
	for i, w := range workers {
		err := w.call(context.Background(), func() (err error) {
			listeners[i], err = w.listen(s, cfg, m)
			return err
		})
		if err == nil {
			continue
		}
		for j, b := range workers[:i] {
			b.do(func() { b.closeListener(listeners[j]) })
		}
		return listenError(cfg, err)
	}
	return nil
}

// listenError says what was listened on. A loop that goes away means that the server was closed, or will say why from
// Wait.
func listenError(cfg transport.ListenConfig, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrServerClosed), errors.Is(err, loop.ErrStopped):
		return fmt.Errorf("weir: listen %s %s: %w", cfg.Network, cfg.Address, ErrServerClosed)
	}
	return fmt.Errorf("weir: listen %s %s: %w", cfg.Network, cfg.Address, err)
}

// listen opens a listener. Loop goroutine.
func (w *worker) listen(s *Server, cfg transport.ListenConfig, m *acceptMutex) (*channel.Listener, error) {
	if w.gone || w.drain.begun {
		return nil, ErrServerClosed
	}
	chn := w.channelConfig(s)
	var addr net.Addr
	ln, err := channel.Listen(w.loop, channel.ListenerConfig{
		Transport: cfg, Channel: &chn, AcceptBackoff: s.AcceptBackoff,
		Batch: m.batch(), BatchDone: func() { m.turnDone(w) },
		Route: w.route, NotAdmitted: w.notAdmitted,
		Admit: func(cp *transport.Completion) channel.Screening { return w.admit(s, addr, cp) },
		Accepted: func(c *channel.Channel, ticket any) {
			w.keepTicket(c, ticket)
			w.added(c, fromAccept)
			m.accepted(w)
		},
		Error: func(err error) { w.acceptFailed(s, err) },
	})
	if err != nil {
		return nil, err
	}
	addr = ln.Addr()
	m.opened(w, ln)
	if w.suspended {
		ln.Pause()
	}
	w.listeners = append(w.listeners, ln)
	return ln, nil
}

// channelConfig is the configuration of accepted channels on the worker's loop.
func (w *worker) channelConfig(s *Server) channel.Config {
	chn := s.Channel
	chn.Init = s.Init
	chn.Closed = w.closedHook(s.Channel.Closed, fromAccept)
	chn.Dialed = w.dialedHook(s.Channel.Dialed)
	return chn
}

// acceptFailed counts an error of accepting and tells the user.
func (w *worker) acceptFailed(s *Server, err error) {
	w.acceptErrors.Add(1)
	if s.AcceptError != nil {
		s.AcceptError(err)
	}
}

// closedHook is the Closed hook of channels: the user's part, then the worker's.
func (w *worker) closedHook(users func(*channel.Channel), from origin) func(*channel.Channel) {
	return func(c *channel.Channel) {
		defer func() {
			w.logClosed(c, from)
			w.removed(c, from)
		}() // last: whoever waits for the channel's end waits for the user's part, too
		if users != nil {
			users(c)
		}
	}
}

// dialed is a hook of channel.Config: what it returns is the new channel's Closed.
type dialed = func(*channel.Channel) (closed func(*channel.Channel))

// dialedHook is the Dialed hook of channels: it keeps account of those that handlers connect, so that Shutdown waits
// for them, too, and calls the user's.
func (w *worker) dialedHook(users dialed) dialed {
	return func(c *channel.Channel) func(*channel.Channel) {
		w.added(c, fromDial)
		if w.drain.begun && w.drain.of == fromDial { // the others have been told
			w.drain.todo = append(w.drain.todo, c)
			w.drain.next(w.tellSome)
		}
		var closed func(*channel.Channel)
		if users != nil {
			closed = users(c)
		}
		return w.closedHook(closed, fromDial)
	}
}

// closeListener closes a listener whose siblings could not be opened. Loop goroutine.
func (w *worker) closeListener(ln *channel.Listener) {
	for i, other := range w.listeners {
		if other == ln {
			w.listeners = append(w.listeners[:i], w.listeners[i+1:]...)
			delete(w.mutexOf, ln)
			ln.Close(nil)
			return
		}
	}
}

// control is a hook that sets up a socket.
type control = func(network, address string, c syscall.RawConn) error

// guarded makes an error of a panic of the hook: it runs in the middle of the opening of a socket, which must be
// undone.
func guarded(hook control, logger *slog.Logger) control {
	if hook == nil {
		return nil
	}
	return func(network, address string, c syscall.RawConn) (err error) {
		defer func() {
			if v := recover(); v != nil {
				logger.Error("weir: Control panicked", "panic", v, "stack", string(debug.Stack()))
				err = fmt.Errorf("panicked: %v", v)
			}
		}()
		return hook(network, address, c)
	}
}

// listenAddress returns address with a literal host and a numeric port.
func listenAddress(network, address string) (string, error) {
	switch network {
	case "unix":
		return address, nil
	case "tcp", "tcp4", "tcp6":
	default:
		return "", net.UnknownNetworkError(network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	_, portErr := strconv.ParseUint(port, 10, 16)
	_, hostErr := netip.ParseAddr(host)
	if portErr == nil && (host == "" || hostErr == nil) {
		return address, nil
	}
	resolved, err := net.ResolveTCPAddr(network, address)
	if err != nil {
		return "", err
	}
	return resolved.String(), nil
}

// sharedSocket is a socket that several transports adopt, one after the other. It belongs to the goroutine that waits
// for them, and to the loop that it waits for.
type sharedSocket struct {
	fd   int
	open bool
}

var (
	_ syscall.Conn    = (*sharedSocket)(nil)
	_ syscall.RawConn = (*sharedSocket)(nil)
)

// kept returns a config whose listener's socket s keeps, too.
func (s *sharedSocket) kept(cfg transport.ListenConfig) transport.ListenConfig {
	hook := cfg.Control
	cfg.Control = func(network, address string, c syscall.RawConn) error {
		if err := s.dup(c); err != nil {
			return err
		}
		if hook != nil {
			return hook(network, address, c)
		}
		return nil
	}
	return cfg
}

// SyscallConn returns itself.
func (s *sharedSocket) SyscallConn() (syscall.RawConn, error) { return s, nil }

// Control runs f with the descriptor.
func (s *sharedSocket) Control(f func(fd uintptr)) error {
	f(uintptr(s.fd))
	return nil
}

// Read is not possible.
func (s *sharedSocket) Read(func(uintptr) bool) error { return transport.ErrNotSupported }

// Write is not possible.
func (s *sharedSocket) Write(func(uintptr) bool) error { return transport.ErrNotSupported }
