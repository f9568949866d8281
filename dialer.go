package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// DefaultFallbackDelay is how long a Dial waits for one address before it tries the next beside it: the connection attempt
// delay of RFC 8305, 5.
const DefaultFallbackDelay = 250 * time.Millisecond

// Dialer connects channels from any goroutine. The zero value works: it has loops of its own, which the first Dial starts
// and Close ends; with Server set it uses the loops of that server instead. Set its fields before the first call and leave
// them alone afterwards. It must not be copied after the first call.
//
// A handler that wants to connect uses Context.Dial, which stays on its loop.
type Dialer struct {
	// Server, when set, is the server whose loops are used; it is started when it was not. The server's Shutdown and Close
	// then end what was dialed, and Transport, Loops and Logger are the server's.
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
	// Control, when set, runs between socket(2) and connect(2), as in net.Dialer, but on a loop: it must not wait for the
	// dialer.
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

// Dial connects to address and answers a Ref to the end of the new channel's pipeline: what it writes passes all
// handlers. init, when not nil, fills the pipeline, on the channel's loop. Dial answers when init has succeeded, before
// anything was received; a failing init fails the Dial.
//
// network and address are as in Server.Listen, with a host; without one it is the local machine. A name is resolved on
// the caller's goroutine, and its addresses are tried in turn, both families alternating, each next one when the last has
// failed or FallbackDelay has passed; the first connection wins (RFC 8305).
//
// When ctx is done before, Dial answers its error; afterwards ctx means nothing to the channel. Other errors:
// ErrDialerClosed, ErrServerClosed, ErrConfig, the resolver's, and of several addresses' errors the first. On a loop's
// thread: pipeline.ErrWouldDeadlock.
func (d *Dialer) Dial(ctx context.Context, network, address string, init func(*pipeline.Pipeline) error) (pipeline.Ref, error) {
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
	addresses, err := d.resolve(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("weir: dial %s %s: %w", network, address, err)
	}
	r := newRace(e.nextAgent(), d, network, addresses, init)
	ref, err := r.run(ctx, ended)
	if err != nil {
		return nil, fmt.Errorf("weir: dial %s %s: %w", network, address, err)
	}
	return ref, nil
}

// Shutdown ends a Dialer with loops of its own as Server.Shutdown ends a server. Where the loops are a server's it
// only makes further Dials answer ErrDialerClosed.
func (d *Dialer) Shutdown(ctx context.Context) error {
	e, err := d.end("shutdown")
	if e == nil || err != nil {
		return err
	}
	return e.shutdown(ctx)
}

// Close resets the channels of a Dialer with loops of its own and ends the loops. Where the loops are a server's it
// only makes further Dials answer ErrDialerClosed.
func (d *Dialer) Close() error {
	e, err := d.end("close")
	if e == nil || err != nil {
		return err
	}
	e.stop()
	<-e.done
	return e.err
}

// Stats answers the counters of a Dialer with loops of its own, as Server.Stats does.
func (d *Dialer) Stats(ctx context.Context) (Stats, error) {
	d.mu.Lock()
	e := d.engine
	d.mu.Unlock()
	if e == nil {
		return Stats{}, nil
	}
	return e.stats(ctx)
}

// start answers the engine, and what is closed when the Dialer ends.
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
	case d.Loops < 0 || d.Timeout < 0:
		return fmt.Errorf("%w: negative: Loops %d, Timeout %v", ErrConfig, d.Loops, d.Timeout)
	case d.Server != nil && (d.Loops != 0 || d.Transport != "" || d.Logger != nil):
		return fmt.Errorf("%w: Dialer.Server is set, and so are Loops %d, Transport %q or Logger", ErrConfig, d.Loops, d.Transport)
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

// race is one Dial: the attempts to connect to the addresses of a name, all on one loop.
type race struct {
	// Set in newRace, then immutable.
	agent     *agent
	dialer    *Dialer
	network   string
	addresses []string
	init      func(*pipeline.Pipeline) error
	outcomes  chan outcome // room for everything that can be said

	// Loop goroutine only.
	over    bool // somebody has won, or the caller has given up
	cancels []func()
	winner  *channel.Channel
}

// outcome is how an attempt ended.
type outcome struct {
	ref   pipeline.Ref
	err   error
	final bool // it was connected: there is no use in other attempts
}

func newRace(a *agent, d *Dialer, network string, addresses []string, init func(*pipeline.Pipeline) error) *race {
	return &race{
		agent: a, dialer: d, network: network, addresses: addresses, init: init,
		outcomes: make(chan outcome, len(addresses)),
	}
}

// run starts the attempts and waits for the first success. Caller's goroutine.
func (r *race) run(ctx context.Context, ended <-chan struct{}) (pipeline.Ref, error) {
	delay := r.dialer.FallbackDelay
	if delay == 0 {
		delay = DefaultFallbackDelay
	}
	var first error
	next, running := 0, 0
	start := func() (timeout <-chan time.Time, stop func() bool) {
		address := r.addresses[next]
		r.agent.do(func() { r.attempt(address) })
		next++
		running++
		if delay < 0 || next == len(r.addresses) {
			return nil, func() bool { return true }
		}
		t := time.NewTimer(delay)
		return t.C, t.Stop
	}
	timeout, stop := start()
	defer func() { stop() }()
	for {
		select {
		case o := <-r.outcomes:
			switch {
			case errors.Is(o.err, transport.ErrCanceled), errors.Is(o.err, loop.ErrStopped): // not by us: the loop ends
				return nil, r.stopped()
			case o.err == nil, o.final:
				return o.ref, o.err
			case first == nil:
				first = o.err
			}
			if running--; next == len(r.addresses) {
				if running == 0 {
					return nil, first
				}
				continue
			}
			stop()
			timeout, stop = start()
		case <-timeout:
			timeout, stop = start()
		case <-ctx.Done():
			return r.giveUp(ctx.Err())
		case <-ended:
			return r.giveUp(ErrDialerClosed)
		case <-r.agent.loop.Done():
			return r.giveUp(r.stopped())
		}
	}
}

// giveUp ends the attempts, unless one of them has just succeeded.
func (r *race) giveUp(why error) (pipeline.Ref, error) {
	for {
		select {
		case o := <-r.outcomes:
			if o.err == nil {
				return o.ref, nil
			}
			continue
		default:
		}
		r.agent.do(func() {
			r.over = true
			for _, cancel := range r.cancels {
				cancel()
			}
			if r.winner != nil {
				r.winner.Abort(why)
			}
		})
		return nil, why
	}
}

// stopped is why the loops are gone.
func (r *race) stopped() error {
	if r.dialer.Server != nil {
		return ErrServerClosed
	}
	return ErrDialerClosed
}

// attempt tries one address. Loop goroutine.
func (r *race) attempt(address string) {
	switch {
	case r.over:
		return
	case r.agent.gone || r.agent.drain.begun:
		r.outcomes <- outcome{err: r.stopped(), final: true}
		return
	}
	told := false
	tell := func(o outcome) {
		if !told {
			told = true
			r.outcomes <- o
		}
	}
	var ref pipeline.Ref
	d := r.dialer
	cfg := d.Channel
	cfg.Init = func(p *pipeline.Pipeline) error {
		if r.init != nil {
			if err := r.init(p); err != nil {
				tell(outcome{err: fmt.Errorf("init: %w", err), final: true})
				return err
			}
		}
		tell(outcome{ref: ref})
		return nil
	}
	cfg.Dialed = r.agent.dialedHook(d.Channel.Dialed)
	left := r.agent.closedHook(d.Channel.Closed, fromDial)
	cfg.Closed = func(c *channel.Channel) {
		err := c.Cause() // of a panic in init, or of the loop's end
		if err == nil {
			err = pipeline.ErrClosed
		}
		tell(outcome{err: err, final: true})
		left(c)
	}
	dc := &transport.DialConfig{
		Network: r.network, Address: address, LocalAddress: d.LocalAddress, Control: guarded(d.Control, r.agent.loop.Logger()), Socket: d.Socket,
	}
	cancel := channel.Dial(r.agent.loop, dc, &cfg, func(c *channel.Channel, err error) {
		if err != nil {
			if !r.over { // else nobody waits for this one, it may have been cancelled
				tell(outcome{err: err})
			}
			return
		}
		r.agent.joined(c, fromDial)
		if r.agent.drain.begun {
			c.Abort(r.stopped())
			return
		}
		ref = c.Ref(c.Pipeline().Tail())
		r.won(c)
	})
	r.cancels = append(r.cancels, cancel)
}

// won ends the other attempts. Loop goroutine.
func (r *race) won(c *channel.Channel) {
	r.over = true
	r.winner = c
	for _, cancel := range r.cancels {
		cancel()
	}
	r.cancels = nil
}
