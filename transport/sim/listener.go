package sim

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/weirnet/weir/transport"
)

// defaultBacklog is transport.ListenConfig's.
const defaultBacklog = 4096

// listener is a listening socket with the connections that nobody has accepted yet.
type listener struct {
	w       *World
	t       *Transport
	h       transport.Handle
	src     source
	addr    address
	cfg     transport.ListenConfig
	backlog []*endpoint
	accept  *operation
	closed  bool
}

// Listen opens a listener. It returns ErrNotSupported for a Control hook or a Listener to adopt: there are no
// descriptors.
func (t *Transport) Listen(cfg transport.ListenConfig) (transport.Handle, error) {
	h, err := t.listen(cfg)
	if err != nil {
		return 0, fmt.Errorf("sim: listen on %s %q: %w", cfg.Network, cfg.Address, err)
	}
	return h, nil
}

func (t *Transport) listen(cfg transport.ListenConfig) (transport.Handle, error) {
	if t.closed {
		return 0, transport.ErrClosed
	}
	if cfg.Control != nil || cfg.Listener != nil {
		return 0, transport.ErrNotSupported
	}
	addr, err := parseAddress(cfg.Network, cfg.Address)
	if err != nil {
		return 0, err
	}
	if err := t.full(); err != nil {
		return 0, err
	}
	if t.w.chance(t.w.cfg.Faults.ListenError) {
		return 0, syscall.EMFILE
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = defaultBacklog
	}
	l := &listener{w: t.w, t: t, src: t.w.source(), cfg: cfg, addr: addr}
	if err := t.w.bind(l); err != nil {
		return 0, err
	}
	l.h = t.attach(nil, l)
	t.w.trace(t, l.src.id, "listens on %v", l.addr)
	return l.h, nil
}

// bind puts l where connections find it, under a port of its own if it has none.
func (w *World) bind(l *listener) error {
	if l.addr.unix() {
		if w.paths[l.addr.path] != nil {
			return syscall.EADDRINUSE
		}
		w.paths[l.addr.path] = l
		return nil
	}
	if l.addr.ap.Port() == 0 {
		l.addr.ap = netip.AddrPortFrom(l.addr.ap.Addr(), w.port())
	}
	port := l.addr.ap.Port()
	for _, o := range w.ports[port] {
		if o.overlaps(l) && !(o.cfg.ReusePort && l.cfg.ReusePort) {
			return syscall.EADDRINUSE
		}
	}
	w.ports[port] = append(w.ports[port], l)
	return nil
}

// port returns the next port of Linux's default range for local ports that nobody listens on.
func (w *World) port() uint16 {
	for {
		w.nextPort++
		if w.nextPort > 60999 {
			w.nextPort = 32768
		}
		if len(w.ports[w.nextPort]) == 0 {
			return w.nextPort
		}
	}
}

// overlaps reports whether two listeners on one port have addresses in common.
func (l *listener) overlaps(o *listener) bool {
	a, b := l.addr.ap.Addr(), o.addr.ap.Addr()
	return a == b || a.IsUnspecified() && (a.Is6() || b.Is4()) || b.IsUnspecified() && (b.Is6() || a.Is4())
}

// find returns the listener that a connection to addr reaches, or nil. Of several on one address any may be meant.
func (w *World) find(addr address) *listener {
	if addr.unix() {
		return w.paths[addr.path]
	}
	var exact, wild []*listener
	for _, l := range w.ports[addr.ap.Port()] {
		a := l.addr.ap.Addr()
		switch {
		case a == addr.ap.Addr():
			exact = append(exact, l)
		case a.IsUnspecified() && a.Is4() == addr.ap.Addr().Is4(),
			a.IsUnspecified() && a.Is6() && l.cfg.Network == "tcp":
			wild = append(wild, l)
		}
	}
	if len(exact) == 0 {
		exact = wild
	}
	switch len(exact) {
	case 0:
		return nil
	case 1:
		return exact[0]
	}
	return exact[w.rng.IntN(len(exact))]
}

// submit starts an operation on a listener.
func (l *listener) submit(op transport.Op, s *slot) {
	switch op.Kind {
	case transport.Accept:
		if l.accept != nil {
			l.t.fail(&op, &l.src, transport.ErrBusy)
			return
		}
		if op.Limit < 0 {
			l.t.fail(&op, &l.src, syscall.EINVAL)
			return
		}
		l.accept = l.t.begin(op, &l.src, func(*operation) { l.accept = nil })
		l.take()
	case transport.Close:
		s.closing = true
		l.t.perhapsLater(func() { l.close(op) })
	default:
		l.t.fail(&op, &l.src, syscall.ENOTCONN)
	}
}

// take accepts what the backlog holds.
func (l *listener) take() {
	for l.accept != nil && len(l.backlog) > 0 {
		o := l.accept
		err := l.t.full()
		if err == nil && l.w.chance(l.w.cfg.Faults.AcceptError) {
			// See accept(2).
			errs := [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}
			err = errs[l.w.rng.IntN(len(errs))]
		}
		if err != nil {
			l.accept = nil
			l.w.trace(l.t, l.src.id, "accept fails: %v", err)
			o.finish(transport.Completion{Err: err}, nil)
			return
		}
		e := l.backlog[0]
		l.backlog = l.backlog[1:]
		e.t = l.t
		e.h = l.t.attach(e, nil)
		e.trace("accepted from %v", e.remote)
		c := transport.Completion{Handle: e.h, Addr: e.remote.ap, Unix: e.remote.unix()}
		if o.left == 1 {
			l.accept = nil
			o.finish(c, nil)
			return
		}
		o.left = max(0, o.left-1)
		o.report(c, nil)
	}
}

func (l *listener) close(op transport.Op) {
	if l.accept != nil {
		l.accept.cancel()
	}
	l.shut()
	l.t.detach(l.h)
	l.t.post(&l.src, queued{c: transport.Completion{Token: op.Token}})
}

// shut closes the listener; who waits in its backlog is reset.
func (l *listener) shut() {
	l.closed = true
	l.w.trace(l.t, l.src.id, "closes, %d in the backlog", len(l.backlog))
	for _, e := range l.backlog {
		e.closed = true
		e.sendReset()
	}
	l.backlog = nil
	if l.addr.unix() {
		delete(l.w.paths, l.addr.path)
		return
	}
	port := l.addr.ap.Port()
	var left []*listener
	for _, o := range l.w.ports[port] {
		if o != l {
			left = append(left, o)
		}
	}
	if len(left) == 0 {
		delete(l.w.ports, port)
		return
	}
	l.w.ports[port] = left
}

// dial is a Connect that is under way.
type dial struct {
	t       *Transport
	src     source
	o       *operation
	cfg     *transport.DialConfig
	from    address
	to      address
	started time.Duration
	again   time.Duration // until the next attempt
}

// connect starts a Connect.
func (t *Transport) connect(op transport.Op) {
	d := &dial{t: t, src: t.w.source(), cfg: op.Dial, started: t.w.now, again: time.Second}
	if err := d.prepare(); err != nil {
		t.fail(&op, &d.src, err)
		return
	}
	d.o = t.begin(op, &d.src, func(*operation) {})
	t.w.trace(t, d.src.id, "connects from %v to %v", d.from, d.to)
	f := &t.w.cfg.Faults
	switch {
	case t.w.chance(f.ConnectRefused):
		d.after(2*t.w.travel(), func() { d.fail(syscall.ECONNREFUSED) })
	case t.w.chance(f.ConnectUnanswered):
		d.after(t.w.cfg.ConnectTimeout, func() { d.fail(syscall.ETIMEDOUT) })
	default:
		d.after(t.w.travel(), d.knock)
	}
}

// prepare finds the two addresses.
func (d *dial) prepare() (err error) {
	if d.cfg == nil {
		return syscall.EINVAL
	}
	if d.cfg.Control != nil {
		return transport.ErrNotSupported
	}
	if d.to, err = parseAddress(d.cfg.Network, d.cfg.Address); err != nil {
		return err
	}
	if err := d.t.full(); err != nil {
		return err
	}
	if d.to.unix() {
		d.from = address{network: "unix"}
		return nil
	}
	d.to = d.to.reachable()
	d.from = address{network: "tcp", ap: netip.AddrPortFrom(d.to.ap.Addr(), 0)}
	if d.cfg.LocalAddress != "" {
		if d.from, err = parseAddress(d.cfg.Network, d.cfg.LocalAddress); err != nil {
			return err
		}
		d.from = d.from.reachable()
	}
	if d.from.ap.Port() == 0 {
		d.from.ap = netip.AddrPortFrom(d.from.ap.Addr(), d.t.w.port())
	}
	return nil
}

// knock arrives at the listener.
func (d *dial) knock() {
	w := d.t.w
	l := w.find(d.to)
	if l == nil {
		d.after(w.travel(), func() { d.fail(syscall.ECONNREFUSED) })
		return
	}
	if len(l.backlog) > l.cfg.Backlog {
		// Linux drops the SYN, and it is sent again after 1, 3, 7, … seconds (tcp(7), tcp_abort_on_overflow).
		w.trace(l.t, l.src.id, "backlog full")
		if w.now+d.again-d.started >= w.cfg.ConnectTimeout {
			d.after(d.started+w.cfg.ConnectTimeout-w.now, func() { d.fail(syscall.ETIMEDOUT) })
			return
		}
		d.after(d.again, d.knock)
		d.again *= 2
		return
	}
	c := w.newConnection(d.t, d.from, d.to, d.cfg.Socket, l.cfg.Socket)
	c.b.out.last = w.now + w.travel() // what the server sends comes after its answer
	w.at(c.b.out.last-w.now, func() { d.answered(c.a) })
	l.backlog = append(l.backlog, c.b)
	l.take()
}

// answered ends the Connect: with a connection, unless nobody wants it any more.
func (d *dial) answered(e *endpoint) {
	if d.t.closed || d.o.ended {
		e.closed = true
		e.sendReset()
		return
	}
	if err := d.t.full(); err != nil {
		e.closed = true
		e.sendReset()
		d.fail(err)
		return
	}
	e.h = d.t.attach(e, nil)
	e.trace("connected to %v", e.remote)
	d.o.finish(transport.Completion{Handle: e.h, Addr: e.remote.ap, Unix: e.remote.unix()}, nil)
}

func (d *dial) fail(err error) {
	d.t.w.trace(d.t, d.src.id, "connect fails: %v", err)
	d.o.finish(transport.Completion{Err: err}, nil)
}

// after runs fn in a while, if the Connect still goes on then.
func (d *dial) after(wait time.Duration, fn func()) {
	d.t.w.at(wait, func() {
		if !d.t.closed && !d.o.ended {
			fn()
		}
	})
}
