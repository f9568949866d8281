package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// Server accepts connections and serves each with a pipeline, on a number of event loops. Set its fields before the
// first call and leave them alone afterwards; only Init has to be set. Any goroutine may call its methods. Those that
// wait for loops return pipeline.ErrWouldDeadlock on a loop's thread, that is in a handler.
//
// A server is used once: after Shutdown or Close it does not start again. It must not be copied after the first call.
type Server struct {
	// Init fills the pipeline of each accepted connection. It runs on the connection's loop. When it fails or panics,
	// that connection is closed.
	Init func(*pipeline.Pipeline) error

	// Transport is the transport to use. Empty means Auto.
	Transport Kind
	// Loops is the number of event loops, at most MaxLoops. Zero means one per processor: the smaller of GOMAXPROCS and
	// runtime.NumCPU.
	Loops int
	// Pin binds each loop's thread to one of the processors that the process may use, in turn (sched_setaffinity(2)).
	// Where that cannot be done, starting fails.
	Pin bool

	// Channel configures the channels, accepted and dialed ones. Its Init must be nil.
	Channel channel.Config
	// Socket holds the options of the TCP sockets of accepted connections.
	Socket transport.SocketConfig
	// Backlog is the length of the kernel's queue of connections that wait to be accepted. Zero means 4096; the
	// kernel caps it at net.core.somaxconn.
	Backlog int
	// SharePort lets several servers of one user listen on the same TCP address (SO_REUSEPORT): the kernel gives each
	// its share of the connections. All of them have to set it. Without it Listen fails where anybody listens
	// already. What it cannot keep away is a process of the same user that asks for sharing while this server listens
	// with several loops, which share the port, too.
	SharePort bool
	// Control, when set, runs between socket(2) and bind(2) of each listener that the server opens, as in
	// net.ListenConfig, but on a loop: it must not wait for the server.
	Control func(network, address string, c syscall.RawConn) error
	// Accept is how connections come to the loops. Empty means AcceptReusePort.
	Accept Accept
	// SteerByCPU makes the kernel choose, with AcceptReusePort on TCP, the loop of the processor that handles a
	// connection's first packet, instead of one by a hash: with Pin, and a network card whose queues are spread over the
	// processors, a connection then stays on one. It is meant for the lifetime of the server: it goes by the order of
	// the listeners, which changes when one of them closes. Listening fails with more loops than processors.
	SteerByCPU bool
	// Place, when set, says with AcceptHandoff which of the loops, from 0, a connection of peer goes to: PlaceByAddress,
	// or one of your own, which runs on the accepting loop. A result out of range, and a loop that is stuck or takes no
	// more, leave it to the usual way: the less loaded of two loops chosen at random. peer is not valid for a Unix
	// socket.
	Place func(peer netip.AddrPort, loops int) int
	// Admit, when set, is asked for each connection before anything is made of it, on the loop that has accepted it; the
	// method of an admission.Ledger, or your own. It must not wait. One that is refused costs a few system calls and no
	// memory. Its panic resets the connection. What a Ticket stands for is given back when the channel has ended,
	// whatever way.
	Admit func(admission.Arrival) admission.Verdict
	// MaxConnections is how many accepted connections may be open at a time. When there are as many, the listeners
	// pause: connections wait in the kernel's queue, which takes Backlog of them for each listener, until others
	// close. Nobody is turned away, but by Shutdown those that still wait. Stats.Limited counts it. Zero means no
	// limit.
	MaxConnections int
	// MaxPendingBytes is how much the channels on the server's loops may have pending in all (Context.Pending). When
	// there is more, accepted channels stop reading, each after one more read, until half of it is left; nothing is
	// dropped or aborted. What was dialed counts, and reads on. It bounds what reading causes, not what timers and
	// other goroutines write. Peers that take nothing can hold all of it: Channel.MaxPendingBytes bounds each. Zero
	// counts nothing.
	MaxPendingBytes int
	// AcceptBackoff is how long a listener pauses after an error such as EMFILE; it doubles up to 1 s. Zero means 50
	// ms.
	AcceptBackoff time.Duration
	// AcceptError, when set, gets each error of accepting, on a loop. Accepting goes on after any of them.
	AcceptError func(error)

	// Logger gets what has no other way to be told: panics, failing Inits, a transport that falls back. Nil means
	// slog.Default.
	Logger *slog.Logger
	// LogClosed says which ends of connections are logged: none, those with a cause, or all, at a bounded rate.
	LogClosed LogClosed
	// MaxTasks is how many tasks of Loop.Execute may wait on each loop. Zero means 65536.
	MaxTasks int
	// WatchdogAfter is how long one turn of a loop may last before it is logged. Zero means 1 s; negative: never.
	WatchdogAfter time.Duration

	mu sync.Mutex
	// guarded by mu
	engine  *engine // nil until needed
	closed  bool    // Shutdown or Close was called
	addrs   []net.Addr
	adopted []net.Listener // closed when accepting ends
	done    chan struct{}  // made when needed, closed when all has stopped
}

// ListenAndServe listens on address and serves until Shutdown or Close; then, when the last channel is closed and the
// loops have ended, it returns ErrServerClosed. (Unlike net/http's it does not return while Shutdown is still at work.)
//
// Other errors: those of Listen, before anything is served, and that of a loop that has failed, after everything was
// closed. When listening fails, the loops stay for another try, until Close.
func (s *Server) ListenAndServe(network, address string) error {
	if _, err := s.Listen(network, address); err != nil {
		return err
	}
	return s.Wait()
}

// Serve accepts connections of l, a TCP or Unix listener, beside those of other listeners, until Shutdown or Close;
// then it returns ErrServerClosed, as ListenAndServe does. l must give access to its descriptor (syscall.Conn), as
// those of package net do; the transport duplicates it.
//
// As with net/http, Serve closes l: when Shutdown or Close is called, and whenever it returns. Closing l does not end
// Serve. Backlog and Control do not apply to l, Socket does.
//
// It is one socket for all loops: see AcceptReusePort on how its connections come to them.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	conn, ok := l.(syscall.Conn)
	if !ok {
		return fmt.Errorf("weir: serve %T: it has no descriptor (syscall.Conn): %w", l, transport.ErrNotSupported)
	}
	e, err := s.begin("serve")
	if err != nil {
		return err
	}
	cfg := transport.ListenConfig{
		Network: l.Addr().Network(), Address: l.Addr().String(), Listener: conn, Socket: s.Socket,
	}
	if err := s.adopt(e, cfg); err != nil {
		return err
	}
	if err := s.opened(l.Addr(), l); err != nil {
		return err
	}
	return s.Wait()
}

// adopt accepts connections of a listener that is there already.
func (s *Server) adopt(e *engine, cfg transport.ListenConfig) error {
	if s.Accept.way(len(e.workers), true) == AcceptHandoff {
		front, err := e.startFront(s)
		if err != nil {
			return listenError(cfg, err)
		}
		return s.listenOn([]*worker{front}, cfg, nil)
	}
	cfg.Shared = len(e.workers) > 1
	m := s.newMutex(e)
	if err := s.listenOn(e.workers, cfg, m); err != nil {
		return err
	}
	e.watchMutex(m)
	return nil
}

// Wait waits until the server has stopped: ErrServerClosed after Shutdown or Close, else the error of the loop that
// failed or is stuck.
func (s *Server) Wait() error {
	s.mu.Lock()
	e, done := s.engine, s.doneLocked()
	s.mu.Unlock()
	if e != nil && e.onThread() {
		return errOnLoop("wait", "wait on another goroutine")
	}
	<-done
	s.mu.Lock()
	e = s.engine
	s.mu.Unlock()
	if e != nil && e.err != nil {
		return fmt.Errorf("weir: serve: %w", e.err)
	}
	return ErrServerClosed
}

// Shutdown stops the server without losing what is under way. It stops listening, after accepting what the kernel has
// already connected; then it asks every channel to finish: its ShutdownHandlers, or where there are none it closes
// the channel in an orderly way, which sends what is queued. Channels that a Dialer or a handler has connected on the
// server's loops follow when the accepted ones are gone. It returns nil when all have closed.
//
// When ctx is done before, what is left is aborted and the error of ctx is returned. Any call may be concurrent with
// others and with Close: each returns once the loops have ended. A second Shutdown, or one before the server was
// started, returns nil. In a handler, call it on a new goroutine.
//
// A handler that does not return holds its own loop only. Two seconds after the loops were told to stop, Shutdown,
// Close and Wait return all the same. Their error wraps loop.ErrStuck and names the loop, the handler and the
// channel; that loop is left behind and ends when the handler returns.
//
// A connection that the kernel completes at the very moment the listener is closed is reset; there is no way to
// refuse connections and keep accepting them. (Linux can hand them to another process that listens on the port:
// net.ipv4.tcp_migrate_req.)
func (s *Server) Shutdown(ctx context.Context) error {
	e, err := s.end("shutdown")
	if e == nil || err != nil {
		return err
	}
	return e.shutdown(ctx)
}

// Close stops the server at once: connections are reset, what is queued is lost. It returns when the loops have ended,
// with the error of a loop that had failed or, as Shutdown does, of one that is stuck.
func (s *Server) Close() error {
	e, err := s.end("close")
	if e == nil || err != nil {
		return err
	}
	e.stop()
	<-e.done
	return e.err
}

// Addrs are the addresses that are listened on, in the order in which listening began.
func (s *Server) Addrs() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.addrs)
}

// Group is the server's loops, nil before the first Listen, Serve or Dial. It is there to run tasks on them; the server
// starts and stops them.
func (s *Server) Group() *loop.Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engine == nil {
		return nil
	}
	return s.engine.group
}

// begin checks what serving needs and returns the engine.
func (s *Server) begin(operation string) (*engine, error) {
	if s.Init == nil {
		return nil, fmt.Errorf("%w: Server.Init is not set", ErrConfig)
	}
	e, err := s.start()
	if err != nil {
		return nil, err
	}
	if e.onThread() {
		return nil, errOnLoop(operation, "call it on another goroutine")
	}
	return e, nil
}

// start returns the engine and starts it when it is needed for the first time.
func (s *Server) start() (*engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrServerClosed
	}
	if s.engine != nil {
		return s.engine, nil
	}
	if err := s.validate(); err != nil {
		return nil, err
	}
	e, err := startEngine(engineConfig{
		loops: s.Loops, kind: s.Transport, maxTasks: s.MaxTasks, watchdogAfter: s.WatchdogAfter,
		logger: s.Logger, pin: s.Pin, openers: transports(),
		connections: s.MaxConnections, pendingBytes: s.MaxPendingBytes, logClosed: s.LogClosed,
	})
	if err != nil {
		return nil, err
	}
	s.engine = e
	done := s.doneLocked()
	go func() {
		e.join()
		s.closeAdopted()
		close(done)
	}()
	return e, nil
}

func (s *Server) validate() error {
	switch {
	case s.Channel.Init != nil:
		return fmt.Errorf("%w: Server.Channel.Init is set: the server uses Server.Init", ErrConfig)
	case s.LogClosed < LogClosedOff || s.LogClosed > LogClosedAll:
		return fmt.Errorf("%w: LogClosed %d", ErrConfig, s.LogClosed)
	case s.Place != nil && s.Accept != AcceptHandoff:
		return fmt.Errorf("%w: Place is set, Accept is %q and not %q", ErrConfig, s.Accept, AcceptHandoff)
	case s.SteerByCPU && s.Accept != "" && s.Accept != AcceptReusePort:
		return fmt.Errorf("%w: SteerByCPU is set, Accept is %q and not %q", ErrConfig, s.Accept, AcceptReusePort)
	case s.AcceptBackoff < 0:
		return fmt.Errorf("%w: negative: AcceptBackoff %v", ErrConfig, s.AcceptBackoff)
	}
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"Loops", int64(s.Loops)},
		{"Backlog", int64(s.Backlog)},
		{"MaxTasks", int64(s.MaxTasks)},
		{"MaxPendingBytes", int64(s.MaxPendingBytes)},
		{"MaxConnections", int64(s.MaxConnections)},
	} {
		if limit.value < 0 {
			return fmt.Errorf("%w: negative: %s %d", ErrConfig, limit.name, limit.value)
		}
	}
	if err := s.Accept.validate(); err != nil {
		return err
	}
	if err := s.Channel.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// end marks the server closed and returns the engine that is to be ended, nil when there is none.
func (s *Server) end(operation string) (*engine, error) {
	s.mu.Lock()
	e := s.engine
	if e != nil && e.onThread() {
		s.mu.Unlock()
		return nil, errOnLoop(operation, "call it on a new goroutine")
	}
	if !s.closed && e == nil {
		close(s.doneLocked())
	}
	s.closed = true
	s.mu.Unlock()
	// First of all, because the path of a Unix socket goes with it: nobody comes to the queue of a listener any more
	// that the loops are about to empty. Their own descriptors keep it open until then.
	s.closeAdopted()
	return e, nil
}

// doneLocked returns the channel that is closed when the server has stopped. The caller holds mu.
func (s *Server) doneLocked() chan struct{} {
	if s.done == nil {
		s.done = make(chan struct{})
	}
	return s.done
}

// opened keeps account of a new listener. l, when not nil, is to be closed when accepting ends.
func (s *Server) opened(addr net.Addr, l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // meanwhile; the workers close what they have opened, or have refused
		return ErrServerClosed
	}
	s.addrs = append(s.addrs, addr)
	if l != nil {
		s.adopted = append(s.adopted, l)
	}
	return nil
}

func (s *Server) closeAdopted() {
	s.mu.Lock()
	adopted := s.adopted
	s.adopted = nil
	s.mu.Unlock()
	for _, l := range adopted {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.logger().Warn("weir: closing a listener", "address", l.Addr(), "err", err)
		}
	}
}

func (s *Server) logger() *slog.Logger {
	if s.Logger != nil {
		return s.Logger
	}
	return slog.Default()
}
