package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// happyEyeballs is one Dial: the attempts to connect to the addresses of a name, all on one loop (RFC 8305).
type happyEyeballs struct {
	// Set in newHappyEyeballs, then immutable.
	worker    *worker
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

func newHappyEyeballs(
	w *worker, d *Dialer, network string, addresses []string, init func(*pipeline.Pipeline) error,
) *happyEyeballs {
	return &happyEyeballs{
		worker: w, dialer: d, network: network, addresses: addresses, init: init,
		outcomes: make(chan outcome, len(addresses)),
	}
}

// run starts the attempts and waits for the first success. Caller's goroutine.
func (h *happyEyeballs) run(ctx context.Context, until ending) (pipeline.Ref, error) {
	delay := h.dialer.FallbackDelay
	if delay == 0 {
		delay = DefaultFallbackDelay
	}
	var first error
	next, running := 0, 0
	start := func() (timeout <-chan time.Time, stop func() bool) {
		address := h.addresses[next]
		h.worker.do(func() { h.attempt(address) })
		next++
		running++
		if delay < 0 || next == len(h.addresses) {
			return nil, func() bool { return true }
		}
		t := time.NewTimer(delay)
		return t.C, t.Stop
	}
	timeout, stop := start()
	defer func() { stop() }()
	for {
		select {
		case o := <-h.outcomes:
			switch {
			case errors.Is(o.err, transport.ErrCanceled), errors.Is(o.err, loop.ErrStopped): // not by us: the loop ends
				return nil, h.stopped()
			case o.err == nil, o.final:
				return o.ref, o.err
			case first == nil:
				first = o.err
			}
			if running--; next == len(h.addresses) {
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
			return h.giveUp(ctx.Err())
		case <-until.ended:
			return h.giveUp(ErrDialerClosed)
		case <-h.worker.loop.Done():
			return h.giveUp(h.stopped())
		case <-until.engine.done: // the loop is stuck and left
			return h.giveUp(h.stopped())
		}
	}
}

// giveUp ends the attempts, unless one of them has just succeeded.
func (h *happyEyeballs) giveUp(why error) (pipeline.Ref, error) {
	for {
		select {
		case o := <-h.outcomes:
			if o.err == nil {
				return o.ref, nil
			}
			continue
		default:
		}
		h.worker.do(func() {
			h.over = true
			for _, cancel := range h.cancels {
				cancel()
			}
			if h.winner != nil {
				h.winner.Abort(why)
			}
		})
		return nil, why
	}
}

// stopped is why the loops are gone.
func (h *happyEyeballs) stopped() error { return ending{dialer: h.dialer}.stopped() }

// attempt tries one address. Loop goroutine.
func (h *happyEyeballs) attempt(address string) {
	switch {
	case h.over:
		return
	case h.worker.gone || h.worker.drain.begun:
		h.outcomes <- outcome{err: h.stopped(), final: true}
		return
	}
	told := false
	tell := func(o outcome) {
		if !told {
			told = true
			h.outcomes <- o
		}
	}
	var ref pipeline.Ref
	d := h.dialer
	cfg := d.Channel
	cfg.Init = func(p *pipeline.Pipeline) error {
		if h.init != nil {
			if err := h.init(p); err != nil {
				tell(outcome{err: fmt.Errorf("init: %w", err), final: true})
				return err
			}
		}
		tell(outcome{ref: ref})
		return nil
	}
	cfg.Dialed = h.worker.dialedHook(d.Channel.Dialed)
	removed := h.worker.closedHook(d.Channel.Closed, fromDial)
	cfg.Closed = func(c *channel.Channel) {
		err := c.Cause() // of a panic in init, or of the loop's end
		if err == nil {
			err = pipeline.ErrClosed
		}
		tell(outcome{err: err, final: true})
		removed(c)
	}
	dc := &transport.DialConfig{
		Network: h.network, Address: address, LocalAddress: d.LocalAddress,
		Control: guarded(d.Control, h.worker.loop.Logger()), Socket: d.Socket,
	}
	cancel := channel.Dial(h.worker.loop, dc, &cfg, func(c *channel.Channel, err error) {
		if err != nil {
			if !h.over { // else nobody waits for this one, it may have been cancelled
				tell(outcome{err: err})
			}
			return
		}
		h.worker.added(c, fromDial)
		if h.worker.drain.begun {
			c.Abort(h.stopped())
			return
		}
		ref = c.Ref()
		h.won(c)
	})
	h.cancels = append(h.cancels, cancel)
}

// won ends the other attempts. Loop goroutine.
func (h *happyEyeballs) won(c *channel.Channel) {
	h.over = true
	h.winner = c
	for _, cancel := range h.cancels {
		cancel()
	}
	h.cancels = nil
}
