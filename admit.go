package weir

import (
	"net"
	"runtime/debug"
	"time"

	"github.com/weirnet/weir/admission"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/transport"
)

// admit says what becomes of a connection: first by Server.MaxConnections, then by Server.Admit. Only what passes has
// taken anything. Loop goroutine.
func (w *worker) admit(s *Server, listener net.Addr, cp *transport.Completion) (sc channel.Screening) {
	if !w.takeConnection() {
		return channel.Screening{Outcome: channel.Hold}
	}
	if s.Admit == nil {
		return sc
	}
	v := w.ask(s, listener, cp)
	if v.Action == admission.Wait && v.RetryAfter == 0 {
		// Whoever gives back wakes those loops that wait: from here on this one, too.
		w.full.Store(true)
		v = w.ask(s, listener, cp)
	}
	if v.Action == admission.Serve {
		if v.Ticket != nil {
			sc.Ticket = v.Ticket
		}
		return sc
	}
	if v.Ticket != nil {
		v.Ticket.Release()
	}
	switch v.Action {
	case admission.Busy:
		sc = channel.Screening{Outcome: channel.Dismiss, Words: v.Words}
	case admission.Wait:
		w.full.Store(true)
		w.retryAccepting(v.RetryAfter)
		sc.Outcome = channel.Hold
	default:
		sc.Outcome = channel.Reset
	}
	w.limit.giveBack()
	w.wakeAcceptors(w)
	if sc.Outcome != channel.Hold {
		w.refused.Add(1)
	}
	return sc
}

// ask calls Server.Admit. Its panic is a refusal: nothing is known of the connection.
func (w *worker) ask(s *Server, listener net.Addr, cp *transport.Completion) (v admission.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			w.loop.Logger().Error("weir: Admit panicked, connection refused", "panic", p, "stack", string(debug.Stack()))
			v = admission.Verdict{Action: admission.Reset, Reason: admission.Other}
		}
	}()
	e := w.engine.serving()
	return s.Admit(admission.Arrival{
		Peer: cp.Addr, Unix: cp.Unix, Listener: listener, Loop: w.number(), Open: e.openAccepted(),
	})
}

// number tells the loops that accept apart: the front's is behind those that serve.
func (w *worker) number() int {
	if b := w.engine.backend; b != nil {
		return len(b.workers)
	}
	return w.index
}

// serving is the engine whose loops serve what e accepts.
func (e *engine) serving() *engine {
	if e.backend != nil {
		return e.backend
	}
	return e
}

// openAccepted is how many accepted connections there are.
func (e *engine) openAccepted() (n int64) {
	for _, w := range e.workers {
		n += w.openAccepted.Load()
	}
	return n
}

// retryAccepting asks again for what was held, after a while. Without a hint it is a second: what this server waits for
// may be another's that shares the budgets. Loop goroutine.
func (w *worker) retryAccepting(after time.Duration) {
	if after <= 0 {
		after = admission.DefaultRetryAfter
	}
	if w.retry == nil {
		w.retry = w.loop.NewTimer(w, func() {
			w.full.Store(false)
			w.resumeAccepting()
		})
	}
	w.retry.Reset(after)
}

// keepTicket remembers what a channel has taken of Server.Admit's budgets. Loop goroutine.
func (w *worker) keepTicket(c *channel.Channel, ticket any) {
	if t, ok := ticket.(*admission.Ticket); ok {
		if w.tickets == nil {
			w.tickets = map[*channel.Channel]*admission.Ticket{}
		}
		w.tickets[c] = t
	}
}

// releaseTicket gives it back. Loop goroutine.
func (w *worker) releaseTicket(c *channel.Channel) {
	if t := w.tickets[c]; t != nil {
		delete(w.tickets, c)
		t.Release()
	}
}

// notAdmitted gives back what a connection had taken that does not become a channel. Any goroutine.
func (w *worker) notAdmitted(ticket any) {
	if t, ok := ticket.(*admission.Ticket); ok {
		t.Release()
	}
	w.giveBack()
}
