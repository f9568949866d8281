package channel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// Bounds of the pause after a failed accept.
const (
	DefaultAcceptBackoff = 50 * time.Millisecond
	maxAcceptBackoff     = time.Second
)

// ListenerConfig configures a Listener.
type ListenerConfig struct {
	Transport transport.ListenConfig
	// Channel configures the channels of accepted connections. Nil means the zero Config.
	Channel *Config
	// AcceptBackoff is how long accepting pauses after an error such as EMFILE; it doubles with each further error, up
	// to 1 s. Zero means 50 ms.
	AcceptBackoff time.Duration
	// Batch, when above zero, is how many connections are accepted until the listener pauses by itself and calls
	// BatchDone, on the loop; Resume lets it accept as many again.
	Batch     int
	BatchDone func()
	// Error, when set, gets each error of accepting, on the loop. Accepting goes on after any of them.
	Error func(error)
	// Route, when set, says on the loop which Receiver is to make a channel of a connection, usually on another loop, and
	// gets the address as Completion has it. Nil: none can now, and the connection is held.
	Route func(peer netip.AddrPort) *Receiver
	// Admit, when set, is asked on the loop before a connection becomes a channel. While one is held, the listener stands
	// still, and Readmit asks again; the few connections that were accepted meanwhile wait for that, in their order.
	// NotAdmitted, when set, is called when a connection that has passed cannot become a channel; with Route that is the
	// Receiver's.
	Admit       func(cp *transport.Completion) Screening
	NotAdmitted func(ticket any)
	// Accepted, when set, is called on the loop for each new channel, before its Init, with the Ticket of its Screening;
	// with Route the Receiver's is.
	Accepted func(c *Channel, ticket any)
}

// Screening is what ListenerConfig.Admit says of a connection.
type Screening struct {
	Outcome Outcome
	Words   []byte // of Dismiss, only read during the call
	Ticket  any    // of Pass: for Accepted, or for NotAdmitted
}

// Outcome is what becomes of a connection.
type Outcome uint8

// The outcomes.
const (
	Pass    Outcome = iota // it becomes a channel
	Dismiss                // it is told Words and closed
	Reset                  // it is closed with RST
	Hold                   // it waits, and the listener with it, for Readmit
)

// Listener accepts connections on one loop. It belongs to the loop.
type Listener struct {
	maker
	cfg ListenerConfig
	reg loop.Registration
	hnd transport.Handle

	accepting bool
	paused    bool // by Pause
	full      bool // something is not admitted
	resting   bool // after an error, until the timer fires
	closing   bool
	closed    bool
	aborted   bool
	done      []func()
	backoff   time.Duration
	timer     *loop.Timer
	waiting   []transport.Completion // accepted, but not admitted

	// Accepted is the number of connections that became channels or were given to a Receiver. Loop goroutine only.
	Accepted uint64
}

// Listen opens a listener on the loop and starts accepting. It belongs to the loop's goroutine.
func Listen(l *loop.Loop, cfg ListenerConfig) (*Listener, error) {
	if cfg.AcceptBackoff == 0 {
		cfg.AcceptBackoff = DefaultAcceptBackoff
	}
	if cfg.Channel == nil {
		cfg.Channel = &Config{}
	}
	chn, err := cfg.Channel.settle()
	if err != nil {
		return nil, err
	}
	ln := &Listener{cfg: cfg, maker: maker{
		loop: l, chn: chn, failed: cfg.Error, notAdmitted: cfg.NotAdmitted, accepted: cfg.Accepted,
	}}
	reg, err := l.Register(ln)
	if err != nil {
		return nil, fmt.Errorf("channel: register listener: %w", err)
	}
	ln.reg = reg
	if ln.hnd, err = l.Transport().Listen(cfg.Transport); err != nil {
		l.Unregister(reg)
		return nil, err
	}
	ln.timer = l.NewTimer(ln, func() {
		ln.resting = false
		ln.accept()
	})
	ln.accept()
	return ln, nil
}

// Addr is the address that is listened on.
func (ln *Listener) Addr() net.Addr { return ln.loop.Transport().LocalAddr(ln.hnd) }

// Pause stops accepting; connections wait in the kernel's queue. Those that the kernel has accepted already still come.
func (ln *Listener) Pause() {
	if !ln.paused {
		ln.paused = true
		ln.stop()
	}
}

// stop takes back what the kernel was asked for.
func (ln *Listener) stop() {
	if ln.accepting {
		ln.loop.Submit(transport.Op{
			Kind: transport.Cancel, Token: ln.token(transport.Cancel),
			Handle: ln.hnd, Target: transport.Accept,
		})
	}
}

// Resume undoes Pause. The pause after an error goes on to its end.
func (ln *Listener) Resume() {
	ln.paused = false
	ln.Readmit()
}

// Readmit asks again for those that were accepted and not admitted, in their order; when all are, accepting goes on.
func (ln *Listener) Readmit() {
	for len(ln.waiting) > 0 && !ln.closing {
		cp := ln.waiting[0]
		to, s := ln.admit(&cp)
		if s.Outcome == Hold {
			return
		}
		ln.waiting = ln.waiting[1:]
		ln.settleWaiting(&cp, to, &s)
	}
	ln.full = false
	ln.accept()
}

// settleWaiting is settle, for Readmit. When Accepted panics, the rest of Readmit happens all the same.
func (ln *Listener) settleWaiting(cp *transport.Completion, to *Receiver, s *Screening) {
	settled := false
	defer func() {
		if !settled {
			ln.Readmit()
		}
	}()
	ln.settle(cp, to, s)
	settled = true
}

// Close stops listening; done, when not nil, runs on the loop when the socket is closed. Accepted channels live on.
func (ln *Listener) Close(done func()) {
	if ln.closed {
		if done != nil {
			done()
		}
		return
	}
	if done != nil {
		ln.done = append(ln.done, done)
	}
	if ln.closing {
		return
	}
	ln.closing = true
	ln.timer.Stop()
	for _, cp := range ln.waiting {
		refuse(ln.loop, cp.Handle)
	}
	ln.waiting = nil
	ln.loop.Submit(transport.Op{Kind: transport.Close, Token: ln.token(transport.Close), Handle: ln.hnd})
}

// Complete handles a completion of the listener. It borrows cp until return.
func (ln *Listener) Complete(cp *transport.Completion) {
	switch cp.Token.Tag() {
	case uint8(transport.Accept):
		ln.completeAccept(cp)
	case uint8(transport.Close):
		ln.finish()
	}
}

func (ln *Listener) completeAccept(cp *transport.Completion) {
	if !cp.More {
		ln.accepting = false
		switch { // before the callbacks, which may panic
		case cp.Err == nil && cp.Handle != 0 && ln.cfg.Batch > 0:
			ln.paused = true
			if ln.cfg.BatchDone != nil {
				defer ln.cfg.BatchDone()
			}
		case cp.Err == nil || errors.Is(cp.Err, transport.ErrCanceled):
			ln.accept()
		}
	}
	if cp.Handle != 0 {
		ln.backoff = 0
		ln.take(cp)
	}
	if cp.More || ln.closing || cp.Err == nil || errors.Is(cp.Err, transport.ErrCanceled) {
		return
	}
	// Never die silently: whatever it is, tell and try again.
	if ln.backoff == 0 {
		ln.backoff = ln.cfg.AcceptBackoff
		ln.loop.Logger().Warn("weir: accept failed, pausing", "err", cp.Err, "listener", ln.Addr())
	} else {
		ln.backoff = min(2*ln.backoff, maxAcceptBackoff)
	}
	ln.resting = true
	ln.timer.Reset(ln.backoff)
	if ln.cfg.Error != nil {
		ln.cfg.Error(fmt.Errorf("channel: accept: %w", cp.Err))
	}
}

// take passes an accepted socket on, or keeps it until there is room.
func (ln *Listener) take(cp *transport.Completion) {
	if ln.closing {
		refuse(ln.loop, cp.Handle)
		return
	}
	if len(ln.waiting) == 0 {
		if to, s := ln.admit(cp); s.Outcome != Hold {
			ln.settle(cp, to, &s)
			return
		}
	}
	ln.waiting = append(ln.waiting, *cp)
	if !ln.full {
		ln.full = true
		ln.stop()
	}
}

// admit says what becomes of a socket and, where it passes, at which Receiver, with a place there; nil: here.
func (ln *Listener) admit(cp *transport.Completion) (to *Receiver, s Screening) {
	if ln.cfg.Route != nil {
		if to = ln.cfg.Route(cp.Addr); to == nil || !to.reserve() {
			return nil, Screening{Outcome: Hold}
		}
	}
	if ln.cfg.Admit != nil {
		s = ln.cfg.Admit(cp)
	}
	if s.Outcome != Pass && to != nil {
		to.giveUp()
	}
	return to, s
}

// settle does with a socket what admit has said.
func (ln *Listener) settle(cp *transport.Completion, to *Receiver, s *Screening) {
	if s.Outcome == Pass && to == nil {
		ln.Accepted++ // first, because the callback may panic
		if !ln.open(cp, s.Ticket) {
			ln.Accepted--
		}
		return
	}
	socket, err := ln.loop.Transport().HandOver(cp.Handle)
	switch {
	case err != nil && s.Outcome == Pass:
		to.giveUp()
		ln.fail(fmt.Errorf("channel: hand over: %w", err), s.Ticket)
	case err != nil: // it is gone
	case s.Outcome == Dismiss:
		socket.Dismiss(s.Words)
	case s.Outcome == Reset:
		socket.Close()
	default:
		ln.Accepted++
		to.give(arrival{socket: socket, addr: cp.Addr, unix: cp.Unix, ticket: s.Ticket})
	}
}

func (ln *Listener) accept() {
	if ln.accepting || ln.paused || ln.full || ln.resting || ln.closing {
		return
	}
	ln.accepting = true
	ln.loop.Submit(transport.Op{
		Kind: transport.Accept, Token: ln.token(transport.Accept), Handle: ln.hnd, Limit: ln.cfg.Batch,
	})
}

func (ln *Listener) finish() {
	ln.closed = true
	done := ln.done
	ln.done = nil
	ln.loop.Unregister(ln.reg)
	for _, fn := range done {
		fn()
	}
}

func (ln *Listener) token(k transport.Kind) transport.Token { return ln.reg.Token(uint8(k)) }

// RunNode is not used by listeners.
func (ln *Listener) RunNode(*loop.Node) {}

// EndTurn is not used by listeners.
func (ln *Listener) EndTurn() {}

// Panicked logs a panic of one of the config's functions; accepting goes on.
func (ln *Listener) Panicked(v any, stack []byte) {
	ln.loop.Logger().Error("weir: listener callback panicked", "panic", v, "stack", string(stack))
}

// Abort closes the listener because its loop goes away. The second call is the loop's last: no completion will come.
func (ln *Listener) Abort(error) {
	if !ln.aborted {
		ln.aborted = true
		ln.Close(nil)
		return
	}
	ln.finish()
}
