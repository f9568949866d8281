package weir

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"

	"github.com/weirnet/weir/channel"
)

// maxHandedOver is how many connections may be on their way to a loop. A loop that does not take them is stuck: the
// others get what comes.
const maxHandedOver = 128

// startFront returns the worker of the loop that accepts for the others, and starts it when it is first needed, as an
// engine of its own, whose connections go to e's workers. It runs no handler that could hold it up.
func (e *engine) startFront(s *Server) (*worker, error) {
	for _, w := range e.workers {
		if err := w.call(context.Background(), func() error { return w.receive(s) }); err != nil {
			return nil, err
		}
	}
	e.frontMu.Lock()
	defer e.frontMu.Unlock()
	if f := e.front.Load(); f != nil {
		return f.workers[0], nil
	}
	if e.draining {
		return nil, ErrServerClosed
	}
	cfg := e.cfg
	cfg.loops, cfg.backend, cfg.pin = 1, e, false
	f, err := startEngine(cfg)
	if err != nil {
		return nil, err
	}
	r := router{to: e.workers, place: s.Place, rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	front := f.workers[0]
	front.route = r.route
	front.suspended = e.paused // it has no listener yet
	e.front.Store(f)
	go f.join()
	select {
	case <-e.stopped: // it may have looked before there was a front
		f.stop()
	default:
	}
	return front, nil
}

// drainFront ends accepting for the others, which then have everything that was accepted. It waits.
func (e *engine) drainFront() {
	e.frontMu.Lock()
	e.draining = true
	f := e.front.Load()
	e.frontMu.Unlock()
	if f != nil && f.each((*worker).drainAccepted) {
		f.drained.Store(true)
	}
}

// joinFront waits for the front's end, once the engine has been stopped.
func (e *engine) joinFront() {
	e.frontMu.Lock()
	e.draining = true
	f := e.front.Load()
	e.frontMu.Unlock()
	if f != nil {
		f.stop()
		<-f.done
		e.err = errors.Join(e.err, f.err)
	}
}

// acceptors calls fn for each worker that may accept on behalf of e.
func (e *engine) acceptors(fn func(*worker)) {
	e = e.serving()
	for _, w := range e.workers {
		fn(w)
	}
	if f := e.front.Load(); f != nil {
		fn(f.workers[0])
	}
}

// receive makes the worker ready for connections that the front has accepted. Loop goroutine.
func (w *worker) receive(s *Server) (err error) {
	if w.gone || w.drain.begun {
		return ErrServerClosed
	}
	if w.receiver.Load() != nil {
		return nil
	}
	chn := w.channelConfig(s)
	r, err := channel.NewReceiver(w.loop, channel.ReceiverConfig{
		Channel: &chn, MaxWaiting: maxHandedOver,
		Room: func() {
			w.engine.acceptors(func(other *worker) { other.do(other.resumeAccepting) })
		},
		NotAdmitted: w.notAdmitted,
		Accepted: func(c *channel.Channel, ticket any) {
			w.keepTicket(c, ticket)
			w.added(c, fromAccept)
		},
		Error: func(err error) { w.acceptFailed(s, err) },
	})
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	w.receiver.Store(r)
	return nil
}

// load is how many connections a worker has, or will have. Any goroutine.
func (w *worker) load() int64 {
	n := w.openAccepted.Load()
	if r := w.receiver.Load(); r != nil {
		n += int64(r.Waiting())
	}
	return n
}

// router chooses the loops of connections. It belongs to the front's loop.
type router struct {
	to    []*worker
	place func(peer netip.AddrPort, loops int) int // nil: two choices
	rng   *rand.Rand
}

// route returns where a connection is to live.
func (r *router) route(peer netip.AddrPort) *channel.Receiver {
	if i := r.placed(peer); i >= 0 && i < len(r.to) && r.to[i].takes() {
		return r.to[i].receiver.Load()
	}
	a := r.rng.IntN(len(r.to))
	b := r.rng.IntN(len(r.to) - 1)
	if b >= a {
		b++
	}
	return r.lighter(r.to[a], r.to[b]).receiver.Load()
}

// placed asks Server.Place; below zero: it does not say.
func (r *router) placed(peer netip.AddrPort) (i int) {
	if r.place == nil {
		return -1
	}
	defer func() {
		if v := recover(); v != nil {
			r.to[0].loop.Logger().Error("weir: Place panicked", "panic", v, "stack", string(debug.Stack()))
			i = -1
		}
	}()
	return r.place(peer, len(r.to))
}

// lighter returns the one of two workers that has fewer connections and takes more; when one of the two takes none, the
// lightest of all that do, and when none does, of all.
func (r *router) lighter(a, b *worker) *worker {
	if a.takes() && b.takes() {
		if b.load() < a.load() {
			return b
		}
		return a
	}
	var best *worker
	for _, w := range r.to {
		switch {
		case best == nil || w.takes() && !best.takes():
			best = w
		case w.takes() == best.takes() && w.load() < best.load():
			best = w
		}
	}
	return best
}

// takes reports whether a connection is welcome: the loop goes on and has room for it.
func (w *worker) takes() bool { return !w.loop.Stuck() && !w.receiver.Load().Full() }
