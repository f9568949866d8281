package sim

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/weirnet/weir/transport"
)

// connection is two endpoints and the streams between them.
type connection struct {
	id   int
	a, b *endpoint // a connected to b
}

// endpoint is one socket.
//
//	waiting in a listener's backlog → open → closing (its Handle is stale) → closed (it may still send what it holds)
//	                                    ↘ broken ↗
type endpoint struct {
	w      *World
	t      *Transport // nil while it waits in a backlog
	h      transport.Handle
	src    source
	local  address
	remote address
	in     *stream
	out    *stream

	recv  *operation
	send  *operation
	watch *operation

	broken     bool  // by a reset that came or went
	err        error // what broke it
	errTaken   bool  // a Send got err: the next ones get EPIPE
	eofInstead bool  // Recv reads EOF instead of err, see Faults.ErrorOnce
	eofRead    bool  // Recv has delivered io.EOF
	closed     bool
	parked     bool
	resting    bool // a receive waits for no reason, see Faults.NoBlock
	rested     bool
	pushing    bool // an event goes on with a send that was cut short
}

// newConnection returns two connected endpoints; neither has a slot yet.
func (w *World) newConnection(t *Transport, from, to address, client, server transport.SocketConfig) *connection {
	w.sweep()
	w.connSerial++
	c := &connection{id: w.connSerial}
	c.a = &endpoint{w: w, t: t, src: w.source(), local: from, remote: to}
	c.b = &endpoint{w: w, src: w.source(), local: to, remote: from}
	c.a.out = w.newStream(c.a, c.b, client.SendBufferBytes, server.ReceiveBufferBytes)
	c.b.out = w.newStream(c.b, c.a, server.SendBufferBytes, client.ReceiveBufferBytes)
	c.a.in, c.b.in = c.b.out, c.a.out
	w.conns = append(w.conns, c)
	return c
}

func (w *World) newStream(from, to *endpoint, send, receive int) *stream {
	if send == 0 {
		send = w.cfg.SendBufferBytes
	}
	if receive == 0 {
		receive = w.cfg.ReceiveBufferBytes
	}
	return &stream{w: w, from: from, to: to, sendRoom: send, receiveRoom: receive, credit: receive}
}

// sweep forgets connections that are over, now and then.
func (w *World) sweep() {
	if len(w.conns) < 1024 || len(w.conns)&1023 != 0 {
		return
	}
	left := w.conns[:0]
	for _, c := range w.conns {
		if !c.a.closed || !c.b.closed {
			left = append(left, c)
		}
	}
	clear(w.conns[len(left):])
	w.conns = left
}

func (c *connection) check() error { return errors.Join(c.a.out.check(), c.b.out.check()) }

// submit starts an operation on an open socket.
func (e *endpoint) submit(op transport.Op, s *slot) {
	switch op.Kind {
	case transport.Recv:
		if op.Limit <= 0 {
			e.t.fail(&op, &e.src, syscall.EINVAL)
		} else if e.start(op, &e.recv, stopRecv) {
			e.receive()
		}
	case transport.Send, transport.SendFile:
		e.startSend(op)
	case transport.WatchClose:
		if e.start(op, &e.watch, stopWatch) {
			e.look()
		}
	case transport.CloseWrite:
		e.closeWrite(op)
	case transport.Close:
		s.closing = true
		e.t.perhapsLater(func() { e.close(op) })
	default:
		e.t.fail(&op, &e.src, syscall.EINVAL) // accept(2) on what does not listen
	}
}

// start makes op the socket's operation of its kind unless there is one.
func (e *endpoint) start(op transport.Op, where **operation, stop func(*operation)) bool {
	if *where != nil {
		e.t.fail(&op, &e.src, transport.ErrBusy)
		return false
	}
	o := e.t.begin(op, &e.src, stop)
	o.e = e
	*where = o
	return true
}

func stopRecv(o *operation) {
	o.e.recv = nil
	o.t.leavePark(o.e)
}

func stopSend(o *operation)  { o.e.send = nil }
func stopWatch(o *operation) { o.e.watch = nil }

// receive delivers what has arrived to the armed Recv: data, then the end.
func (e *endpoint) receive() {
	f := &e.w.cfg.Faults
	for e.recv != nil && !e.resting && !e.parked {
		o := e.recv
		if e.in.unread() == 0 {
			e.receiveEnd(o)
			return
		}
		if !e.rested && e.w.chance(f.NoBlock) {
			e.rest()
			return
		}
		e.rested = false
		b := e.t.block()
		if b == nil {
			e.t.park(e)
			return
		}
		tail := b.Tail()
		most := o.left
		switch {
		case len(e.in.borders) > 0:
			most = len(tail) // a Peer's Write is not cut by the limit
		case e.w.chance(f.Overshoot):
			most += e.w.some(len(tail)) - 1
		}
		n := min(len(tail), e.in.joined(), most)
		if n > 1 && e.w.chance(f.ShortRead) {
			n = e.w.some(n - 1)
		}
		e.in.take(tail[:n])
		b.Extend(n)
		if e.w.cfg.Scrub {
			e.t.filled[&tail[0]] = n
		}
		e.t.stats.Received += uint64(n)
		o.left -= n
		e.trace("recv %d, %d left to the limit", n, o.left)
		c := transport.Completion{Buf: b, N: n}
		if o.left > 0 {
			o.report(c, e.in)
		} else {
			e.recv = nil
			o.finish(c, e.in)
		}
		if len(e.t.parked) > 0 && e.recv != nil && e.in.unread() > 0 {
			e.t.park(e) // others wait already: they get the next block
		}
	}
}

// receiveEnd ends a Recv for which nothing more will arrive.
func (e *endpoint) receiveEnd(o *operation) {
	var err error
	switch {
	case e.in.finArrived || e.eofInstead:
		e.eofRead = true
		err = io.EOF
	case e.broken:
		err = e.err
	default:
		return
	}
	e.recv = nil
	e.trace("recv ends: %v", err)
	o.finish(transport.Completion{Err: err}, nil)
}

// rest lets a receive wait for a while.
func (e *endpoint) rest() {
	e.resting = true
	e.trace("recv rests")
	e.w.at(e.w.delay(), func() {
		e.resting, e.rested = false, true
		if !e.closed && !e.t.closed {
			e.receive()
		}
	})
}

// look completes the armed WatchClose when there is nothing more to watch for.
func (e *endpoint) look() {
	// After EOF was read, only what ends the connection as a whole counts.
	over := e.broken || e.in.finArrived && (!e.eofRead || e.out.finQueued)
	if e.watch == nil || !over {
		return
	}
	o := e.watch
	e.watch = nil
	e.trace("the watch ends")
	o.finish(transport.Completion{}, nil)
}

// finished hears that the peer has finished sending.
func (e *endpoint) finished() {
	if e.closed {
		return
	}
	e.receive()
	e.look()
}

// resetArrived breaks the connection. What arrived before stays readable, as in Linux.
func (e *endpoint) resetArrived() {
	if e.broken {
		return
	}
	e.trace("reset arrives")
	e.broken = true
	e.err = syscall.ECONNRESET
	if e.in.finArrived {
		e.err = syscall.EPIPE // Linux's tcp_reset in state CLOSE_WAIT
	}
	e.out.drop()
	if e.closed {
		return
	}
	if e.send != nil && !e.in.finArrived {
		e.eofInstead = e.w.chance(e.w.cfg.Faults.ErrorOnce)
	}
	e.push()
	e.receive()
	e.look()
}

// sendReset breaks the connection from this side: what was not sent is lost, what travels comes before the reset.
func (e *endpoint) sendReset() {
	if e.broken {
		return
	}
	e.trace("sends a reset")
	e.broken = true
	e.err = syscall.ECONNRESET
	peer := e.out.to
	e.out.drop()
	e.out.arrive(peer.resetArrived)
}

// closeWrite sends FIN after what was sent.
func (e *endpoint) closeWrite(op transport.Op) {
	if e.broken {
		e.t.fail(&op, &e.src, syscall.ENOTCONN)
		return
	}
	e.trace("closes for writing")
	e.out.finQueued = true
	e.out.transmit()
	e.push() // a blocked send fails now
	e.look()
	e.t.post(&e.src, queued{c: transport.Completion{Token: op.Token}})
}

// close ends the operations, the socket, and then the Close itself.
func (e *endpoint) close(op transport.Op) {
	for _, o := range [...]*operation{e.recv, e.send, e.watch} {
		if o != nil {
			o.cancel()
		}
	}
	e.shut(op.Reset)
	e.t.detach(e.h)
	e.t.post(&e.src, queued{c: transport.Completion{Token: op.Token}})
}

// shut closes the socket. As in Linux (tcp_close; RFC 2525, 2.17) data that nobody read makes it a reset.
func (e *endpoint) shut(reset bool) {
	e.closed = true
	e.trace("closes, %d bytes unread", e.in.unread())
	switch {
	case e.broken:
	case reset || e.in.unread() > 0:
		e.sendReset()
	default:
		e.out.finQueued = true
		e.out.transmit()
	}
}

// Close implements transport.Socket: nobody takes it over.
func (e *endpoint) Close() { e.shut(true) }

// Dismiss implements transport.Socket.
func (e *endpoint) Dismiss(words []byte) {
	if n := min(len(words), e.out.room()); n > 0 && !e.broken {
		e.out.write(words[:n])
	}
	for n := e.in.unread(); n > 0; n = e.in.unread() {
		e.in.take(make([]byte, e.in.joined()))
	}
	e.shut(false)
}

func (e *endpoint) name() string {
	return fmt.Sprintf("socket %d (%v, peer %v)", e.src.id, e.local, e.remote)
}

func (e *endpoint) trace(format string, args ...any) {
	if e.w.cfg.Trace != nil {
		e.w.trace(e.t, e.src.id, format, args...)
	}
}
