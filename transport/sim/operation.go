package sim

import (
	"time"

	"github.com/weirnet/weir/transport"
)

// operation is one Submit that has not had its last completion.
type operation struct {
	op    transport.Op
	t     *Transport
	e     *endpoint
	src   *source // whose order its completions keep; nil: nobody's
	ended bool

	left       int   // Recv: bytes to the limit; Accept: connections, zero without limit
	piece      int   // Send: the Buf that is being sent,
	off        int   // and how much of it was
	sent       int64 // SendFile: bytes
	unreported int   // bytes of a send that no completion told of

	stop func(o *operation) // takes it off its socket
}

// source is something whose completions come in order.
type source struct {
	id      uint64
	last    time.Duration // when the latest of them comes
	pending int           // those held back
}

// queued is a completion with what its order and its check need.
type queued struct {
	c  transport.Completion
	id uint64  // of its source, zero: none
	in *stream // where its data comes from
}

// begin registers an operation.
func (t *Transport) begin(op transport.Op, src *source, stop func(*operation)) *operation {
	o := &operation{op: op, t: t, src: src, stop: stop, left: op.Limit}
	if op.Kind == transport.Connect {
		t.connects[op.Token] = o
	}
	return o
}

// report yields a completion; the operation goes on.
func (o *operation) report(c transport.Completion, in *stream) {
	c.Token, c.More = o.op.Token, true
	o.t.post(o.src, queued{c: c, in: in})
}

// finish yields the last completion.
func (o *operation) finish(c transport.Completion, in *stream) {
	o.forget()
	c.Token = o.op.Token
	o.t.post(o.src, queued{c: c, in: in})
}

// forget ends an operation without a completion.
func (o *operation) forget() {
	o.ended = true
	if o.op.Kind == transport.Connect {
		delete(o.t.connects, o.op.Token)
	}
}

// cancel ends an operation from outside. Bytes of a send that were taken are told with it.
func (o *operation) cancel() {
	o.stop(o)
	o.finish(transport.Completion{Err: transport.ErrCanceled, N: o.unreported}, nil)
}

// fail yields a single completion with an error for an operation that never began.
func (t *Transport) fail(op *transport.Op, src *source, err error) {
	t.w.trace(t, 0, "%s of token %#x fails: %v", kindName(op.Kind), uint64(op.Token), err)
	t.post(src, queued{c: transport.Completion{Token: op.Token, Err: err}})
}

// target returns the operation that a Cancel names, or nil.
func (t *Transport) target(op *transport.Op) *operation {
	if op.Target == transport.Connect {
		return t.connects[op.ConnectToken]
	}
	s := t.lookup(op.Handle)
	switch {
	case s == nil:
		return nil
	case s.l != nil && op.Target == transport.Accept:
		return s.l.accept
	case s.l != nil:
		return nil
	case op.Target == transport.Recv:
		return s.e.recv
	case op.Target == transport.WatchClose:
		return s.e.watch
	case s.e.send != nil && op.Target == s.e.send.op.Kind:
		return s.e.send
	}
	return nil
}

// cancelTarget carries out a Cancel. The operation is looked up at once, so that a later one of the same kind is safe,
// but may be ended late, and end by itself meanwhile.
func (t *Transport) cancelTarget(op transport.Op) {
	target := t.target(&op)
	if target == nil {
		t.fail(&op, nil, transport.ErrNotFound)
		return
	}
	t.perhapsLater(func() {
		if target.ended {
			t.fail(&op, nil, transport.ErrNotFound)
			return
		}
		t.w.trace(t, idOf(target.src), "%s is cancelled", kindName(target.op.Kind))
		target.cancel()
		t.post(nil, queued{c: transport.Completion{Token: op.Token}})
	})
}

// perhapsLater runs fn, at the rate of Faults.LateCancel only after a while.
func (t *Transport) perhapsLater(fn func()) {
	if !t.w.chance(t.w.cfg.Faults.LateCancel) {
		fn()
		return
	}
	t.w.at(t.w.delay(), func() {
		if !t.closed {
			fn()
		}
	})
}

// post puts a completion into the queue, or holds it back for a while. Those of one source keep their order.
func (t *Transport) post(src *source, q queued) {
	when := t.w.now
	if t.w.chance(t.w.cfg.Faults.Late) {
		when += t.w.delay()
	}
	if src == nil {
		src = &source{}
	}
	q.id = src.id
	when = max(when, src.last)
	src.last = when
	if when == t.w.now && src.pending == 0 {
		t.enqueue(q)
		return
	}
	src.pending++
	held := &q
	t.late = append(t.late, held)
	t.w.at(when-t.w.now, func() {
		src.pending--
		if t.closed {
			return
		}
		for i, p := range t.late {
			if p == held {
				t.late = append(t.late[:i], t.late[i+1:]...)
				break
			}
		}
		t.enqueue(q)
	})
}

// enqueue appends to the queue; at the rate of Faults.Reorder it moves before completions of other sources.
func (t *Transport) enqueue(q queued) {
	t.queue = append(t.queue, q)
	for i := len(t.queue) - 1; i > t.head; i-- {
		before := &t.queue[i-1]
		if before.id == q.id && q.id != 0 || !t.w.chance(t.w.cfg.Faults.Reorder) {
			break
		}
		t.queue[i], t.queue[i-1] = t.queue[i-1], t.queue[i]
	}
	t.w.version.Add(1)
}

func idOf(src *source) uint64 {
	if src == nil {
		return 0
	}
	return src.id
}

// kindName is for the trace.
func kindName(k transport.Kind) string {
	names := [...]string{
		"none", "recv", "send", "sendfile", "accept", "connect", "watchclose", "closewrite", "close", "cancel",
	}
	return names[k]
}
