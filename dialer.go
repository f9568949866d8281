package weir

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// DefaultFallbackDelay is how long a Dial waits for one address before it tries the next beside it: the connection
// attempt delay of RFC 8305, 5.
const DefaultFallbackDelay = 250 * time.Millisecond

// Dialer connects channels from any goroutine. The zero value works: it has loops of its own, which the first Dial
// starts and Close ends; with Server set it uses the loops of that server instead. Set its fields before the first
// call and leave them alone afterwards. It must not be copied after the first call.
//
// A handler that wants to connect uses Context.Dial, which stays on its loop.
type Dialer struct {
	// Server, when set, is the server whose loops are used; it is started when it was not. The server's Shutdown and
	// Close then end what was dialed, and Transport, Loops and Logger are the server's.
	Server *Server

	// Transport and Loops are those of the Dialer's own loops, as in Server. Loops: zero means one.
	Transport Kind
	Loops     int
	// Logger is the own loops' logger. Nil means slog.Default.
	Logger *slog.Logger

	// Channel configures the channels. Its Init must be nil: each Dial has its own.
	Channel channel.Config
	// Socket holds the options of the TCP sockets.
	Socket transport.SocketConfig
	// LocalAddress is what to connect from, when not empty: a literal address and a port, which may be 0.
	LocalAddress string
	// Control, when set, runs between socket(2) and connect(2), as in net.Dialer, but on a loop: it must not wait for
	// the dialer.
	Control func(network, address string, c syscall.RawConn) error

	// Timeout bounds each Dial, beside its context. Zero means no bound of its own; the kernel gives up after minutes.
	Timeout time.Duration
	// FallbackDelay is how long one address of a name may take before the next is tried beside it. Zero means 250 ms;
	// negative: only when it has failed.
	FallbackDelay time.Duration
	// Resolver resolves names. Nil means net.DefaultResolver.
	Resolver *net.Resolver

	mu sync.Mutex
	// guarded by mu
	engine *engine       // the own loops; nil until needed
	closed bool          // Close or Shutdown was called
	ended  chan struct{} // made when needed, closed by Close and Shutdown: Dials under way give up
}

// Dial connects to address and returns a Ref to the end of the new channel's pipeline: what it writes passes all
// handlers. init, when not nil, fills the pipeline, on the channel's loop. Dial returns when init has succeeded, before
// anything was received; a failing init fails the Dial.
//
// network and address are as in Server.Listen, with a host; without one it is the local machine. A name is resolved
// on the caller's goroutine, and its addresses are tried in turn, both families alternating, each next one when the
// last has failed or FallbackDelay has passed; the first connection wins (RFC 8305).
//
// When ctx is done before, Dial returns its error; afterwards ctx means nothing to the channel. Other errors:
// ErrDialerClosed, ErrServerClosed, ErrConfig, the resolver's, and of several addresses' errors the first. On a loop's
// thread: pipeline.ErrWouldDeadlock.
func (d *Dialer) Dial(
	ctx context.Context, network, address string, init func(*pipeline.Pipeline) error,
) (pipeline.Ref, error) {
	e, ended, err := d.start()
	if err != nil {
		return nil, fmt.Errorf("weir: dial %s %s: %w", network, address, err)
	}
	if e.onThread() {
		return nil, errOnLoop("dial", "use Context.Dial")
	}
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	until := ending{dialer: d, ended: ended, engine: e}
	addresses, err := d.resolve(ctx, until, network, address)
	if err != nil {
		return nil, fmt.Errorf("weir: dial %s %s: %w", network, address, err)
	}
	attempts := newHappyEyeballs(e.nextWorker(), d, network, addresses, init)
	ref, err := attempts.run(ctx, until)
	if err != nil {
		return nil, fmt.Errorf("weir: dial %s %s: %w", network, address, err)
	}
	return ref, nil
}

// ending is what ends a Dial beside its context.
type ending struct {
	dialer *Dialer
	ended  <-chan struct{} // by Close or Shutdown of the Dialer
	engine *engine         // by the end of the loops
}

// stopped is why the loops are gone.
func (u ending) stopped() error {
	if u.dialer.Server != nil {
		return ErrServerClosed
	}
	return ErrDialerClosed
}

// why is what has ended the Dial, when the loops have stopped: the Dialer, too, or only they.
func (u ending) why() error {
	select {
	case <-u.ended:
		return ErrDialerClosed
	default:
		return u.stopped()
	}
}

// Shutdown ends a Dialer with loops of its own as Server.Shutdown ends a server. Where the loops are a server's it
// only makes further Dials return ErrDialerClosed.
func (d *Dialer) Shutdown(ctx context.Context) error {
	e, err := d.end("shutdown")
	if e == nil || err != nil {
		return err
	}
	return e.shutdown(ctx)
}

// Close resets the channels of a Dialer with loops of its own and ends the loops, as Server.Close does. Dials under way
// return ErrDialerClosed, also while they wait for a resolver. Where the loops are a server's it
// only makes further Dials return ErrDialerClosed.
func (d *Dialer) Close() error {
	e, err := d.end("close")
	if e == nil || err != nil {
		return err
	}
	e.stop()
	<-e.done
	return e.err
}

// Stats returns the counters of a Dialer with loops of its own, as Server.Stats does.
func (d *Dialer) Stats(ctx context.Context) (Stats, error) {
	d.mu.Lock()
	e := d.engine
	d.mu.Unlock()
	if e == nil {
		return Stats{}, nil
	}
	return e.stats(ctx)
}

// start returns the engine, and what is closed when the Dialer ends.
func (d *Dialer) start() (*engine, <-chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, nil, ErrDialerClosed
	}
	if d.ended == nil {
		if err := d.validate(); err != nil {
			return nil, nil, err
		}
		d.ended = make(chan struct{})
	}
	if d.Server != nil {
		e, err := d.Server.start()
		return e, d.ended, err
	}
	if d.engine != nil {
		return d.engine, d.ended, nil
	}
	cfg := engineConfig{loops: max(d.Loops, 1), kind: d.Transport, logger: d.Logger, openers: transports()}
	e, err := startEngine(cfg)
	if err != nil {
		return nil, nil, err
	}
	go e.join()
	d.engine = e
	return e, d.ended, nil
}

func (d *Dialer) validate() error {
	switch {
	case d.Channel.Init != nil:
		return fmt.Errorf("%w: Dialer.Channel.Init is set: give it to Dial", ErrConfig)
	case d.Loops < 0:
		return fmt.Errorf("%w: negative: Loops %d", ErrConfig, d.Loops)
	case d.Timeout < 0:
		return fmt.Errorf("%w: negative: Timeout %v", ErrConfig, d.Timeout)
	case d.Server != nil && (d.Loops != 0 || d.Transport != "" || d.Logger != nil):
		return fmt.Errorf("%w: Dialer.Server is set, and so are Loops %d, Transport %q or Logger",
			ErrConfig, d.Loops, d.Transport)
	}
	if err := d.Channel.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (d *Dialer) end(operation string) (*engine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.engine != nil && d.engine.onThread() {
		return nil, errOnLoop(operation, "call it on a new goroutine")
	}
	if !d.closed {
		d.closed = true
		if d.ended != nil {
			close(d.ended)
		}
	}
	return d.engine, nil
}
