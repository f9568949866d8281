package sim

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// Transport is a transport.Transport on a World. It belongs to the World's goroutine, Wake excepted.
type Transport struct {
	w    *World
	id   int
	pool *buffer.Pool

	slots []slot
	// free slots, the last one is used first: a stale Handle meets a successor soon
	free     []int
	connects map[transport.Token]*operation // in progress

	settled []queued      // completions of sends with NoWait
	tellBy  time.Duration // when they end a Wait that waits for something else
	queue   []queued      // those that are ready, from head on
	head    int
	late    []*queued // those held back

	blocks int           // free receive blocks
	filled map[*byte]int // bytes that were received into lent blocks, see Config.Scrub
	lent   int           // lent ones
	spare  [][]byte      // memory of free blocks
	parked []*endpoint

	stats  transport.Stats
	load   transport.LoadGauge
	now    time.Duration
	closed bool

	// What the world knows of the loop that this transport belongs to: until when it sleeps, whether it has waited
	// since it last got something to do, and the version of the world at which it let others go first.
	deadline time.Duration
	idle     bool
	seen     uint64
	woken    atomic.Bool
	shut     atomic.Bool // closed, for Wake
}

// slot is where a Handle points to.
type slot struct {
	generation uint32
	closing    bool
	e          *endpoint
	l          *listener
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ buffer.Lender       = (*Transport)(nil)
)

// Submit starts an operation. It panics on a Kind that there is not.
func (t *Transport) Submit(op transport.Op) {
	if op.Kind == transport.KindNone || op.Kind > transport.Cancel {
		panic(fmt.Sprintf("sim: Submit of %v", op.Kind))
	}
	if t.closed {
		return
	}
	if t.w.cfg.Trace != nil {
		t.w.trace(t, 0, "submit %s on %#x, token %#x", kindName(op.Kind), uint64(op.Handle), uint64(op.Token))
	}
	switch op.Kind {
	case transport.Cancel:
		t.cancelTarget(op)
	case transport.Connect:
		if t.w.cfg.Answer != nil {
			t.ask(op)
			return
		}
		t.connect(op)
	default:
		s := t.lookup(op.Handle)
		switch {
		case s == nil:
			t.fail(&op, nil, transport.ErrStale)
		case s.l != nil:
			s.l.submit(op, s)
		default:
			s.e.submit(op, s)
		}
	}
}

// Wait hands out completions, see World for how time passes.
func (t *Transport) Wait(dst []transport.Completion, timeout time.Duration) ([]transport.Completion, error) {
	if t.closed {
		return dst, transport.ErrClosed
	}
	w := t.w
	w.runTo(w.now + w.cfg.TurnTime)
	t.unpark()
	t.idle = false
	if t.woken.Swap(false) {
		t.stats.Wakes++
		timeout = 0
	}
	if !t.ready() {
		t.stats.Waits++
		switch {
		case timeout == 0:
		case w.chance(w.cfg.Faults.EarlyReturn):
			w.trace(t, 0, "wait returns early")
		default:
			t.sleep(timeout)
		}
	}
	if !t.idle || timeout == 0 || t.ready() {
		dst = t.handOut(dst) // otherwise it goes on sleeping
	}
	waiting := len(t.settled) + len(t.queue) - t.head
	t.stats.WaitingPeak = max(t.stats.WaitingPeak, waiting)
	t.load.Set(waiting, w.cfg.Batch)
	t.now = w.now
	if !t.idle {
		t.deadline = never // it has something to do now, and then says anew how long it sleeps
		w.version.Add(1)
	}
	return dst, w.violation
}

// sleep lets time pass until there is something to hand out, timeout has passed, or another transport has something to
// do. It leaves idle true when it ended for the latter only.
func (t *Transport) sleep(timeout time.Duration) {
	w := t.w
	t.deadline = never
	if timeout > 0 && timeout < never-t.now {
		// Counted from what this loop knows as now: others may have let time pass since, and a timer for which it
		// computed the timeout must not be late by that.
		t.deadline = t.now + timeout
		if t.deadline <= w.now {
			return
		}
	}
	if len(t.settled) > 0 {
		t.deadline = min(t.deadline, t.tellBy)
	}
	for {
		t.idle = true
		if w.othersBusy(t) {
			return
		}
		next := t.deadline
		if w.events.len() > 0 {
			next = min(next, w.events.next())
		}
		for _, o := range w.transports {
			if o != t && !o.closed {
				next = min(next, o.deadline)
			}
		}
		if next == never {
			if !w.someBusy(t) {
				w.idle++
				w.trace(t, 0, "idle: nothing will ever happen")
			}
			return
		}
		w.runTo(next)
		t.unpark()
		if t.woken.Swap(false) {
			t.stats.Wakes++
			t.idle = false
			return
		}
		if t.ready() || w.now >= t.deadline {
			t.idle = false
			return
		}
	}
}

// othersBusy reports whether a transport other than t has got something to do since t last gave way.
func (w *World) othersBusy(t *Transport) bool {
	for _, o := range w.transports {
		if o != t && !o.closed && o.deadline <= w.now {
			o.deadline, o.idle = never, false // its time has come; it will say anew how long it sleeps
			w.version.Add(1)
		}
	}
	version := w.version.Load()
	if t.seen == version {
		return false
	}
	t.seen = version
	return w.someBusy(t)
}

// someBusy reports whether a transport other than t has something to do.
func (w *World) someBusy(t *Transport) bool {
	for _, o := range w.transports {
		if o != t && !o.closed && (!o.idle || o.ready() || o.woken.Load()) {
			return true
		}
	}
	return false
}

// ready reports whether there is something to hand out that ends a Wait.
func (t *Transport) ready() bool {
	return t.head < len(t.queue) || len(t.settled) > 0 && t.w.now >= t.tellBy
}

// handOut moves completions into dst.
func (t *Transport) handOut(dst []transport.Completion) []transport.Completion {
	room := cap(dst) - len(dst)
	if room == 0 {
		room = t.w.cfg.Batch
	}
	room = min(room, t.w.cfg.Batch)
	for len(t.settled) > 0 && room > 0 {
		dst = t.give(dst, &t.settled[0])
		t.settled = t.settled[1:]
		room--
	}
	n := min(room, len(t.queue)-t.head)
	if n > 1 && t.w.chance(t.w.cfg.Faults.ShortBatch) {
		n = t.w.some(n - 1)
	}
	for range n {
		q := &t.queue[t.head]
		if q.in != nil && q.c.Buf != nil {
			t.w.fail(q.in.hand(q.c.Buf.Bytes()))
		}
		dst = t.give(dst, q)
		*q = queued{}
		t.head++
	}
	if t.head == len(t.queue) {
		t.queue, t.head = t.queue[:0], 0
	}
	return dst
}

// give hands out one completion.
func (t *Transport) give(dst []transport.Completion, q *queued) []transport.Completion {
	t.stats.Completions++
	if t.w.cfg.Trace != nil {
		t.w.trace(t, q.id, "completion of token %#x: n %d, handle %#x, error %v, more %v",
			uint64(q.c.Token), q.c.N, uint64(q.c.Handle), q.c.Err, q.c.More)
	}
	return append(dst, q.c)
}

// Wake makes a Wait return at once. Any goroutine; what happens then depends on when it came, so a replay needs wakes
// from the World's own.
func (t *Transport) Wake() error {
	if t.shut.Load() {
		return transport.ErrClosed
	}
	if !t.woken.Swap(true) {
		t.w.version.Add(1)
	}
	return nil
}

// Now is the virtual time at which the last Wait returned.
func (t *Transport) Now() time.Duration { return t.now }

// Pool is the pool of received data.
func (t *Transport) Pool() *buffer.Pool { return t.pool }

// LocalAddr returns a *net.TCPAddr or *net.UnixAddr, nil for a stale Handle.
func (t *Transport) LocalAddr(h transport.Handle) net.Addr {
	s := t.lookup(h)
	switch {
	case s == nil:
		return nil
	case s.l != nil:
		return s.l.addr.net()
	default:
		return s.e.local.net()
	}
}

// Acked is what has arrived at the peer: its kernel acknowledges that, whether or not anybody reads it.
func (t *Transport) Acked(h transport.Handle) (mark uint64, left int, err error) {
	s := t.lookup(h)
	if s == nil || s.e == nil {
		return 0, 0, fmt.Errorf("sim: Acked of handle %#x: %w", uint64(h), transport.ErrStale)
	}
	out := s.e.out
	return uint64(out.arrived), int(out.written - out.arrived), nil
}

// Control returns ErrNotSupported: there are no descriptors.
func (t *Transport) Control(h transport.Handle, _ func(fd uintptr) error) error {
	if t.lookup(h) == nil {
		return fmt.Errorf("sim: Control of handle %#x: %w", uint64(h), transport.ErrStale)
	}
	return fmt.Errorf("sim: Control: %w", transport.ErrNotSupported)
}

// HandOver implements transport.Transport.
func (t *Transport) HandOver(h transport.Handle) (transport.Socket, error) {
	s := t.lookup(h)
	switch {
	case s == nil:
		return nil, transport.ErrStale
	case s.e == nil:
		return nil, transport.ErrNotSupported
	case s.e.recv != nil || s.e.send != nil || s.e.watch != nil:
		return nil, transport.ErrBusy
	}
	e := s.e
	e.trace("is handed over")
	t.detach(h)
	e.t, e.h = nil, 0
	return e, nil
}

// TakeOver implements transport.Transport.
func (t *Transport) TakeOver(socket transport.Socket) (transport.Handle, error) {
	e, ok := socket.(*endpoint)
	var err error
	switch {
	case !ok || e.w != t.w:
		err = transport.ErrNotSupported
	case t.closed:
		err = transport.ErrClosed
	default:
		err = t.full()
	}
	if err != nil {
		socket.Close()
		return 0, fmt.Errorf("sim: take over: %w", err)
	}
	e.t = t
	e.h = t.attach(e, nil)
	e.trace("is taken over")
	return e.h, nil
}

// Stats returns the counters.
func (t *Transport) Stats() transport.Stats {
	stats, load := t.stats, t.load.Load()
	stats.Waiting, stats.WaitingEntries = load.Waiting, load.Entries
	return stats
}

// Load implements transport.Transport. Any goroutine.
func (t *Transport) Load() transport.Load { return t.load.Load() }

// Parked is the number of receives that wait for a block.
func (t *Transport) Parked() int { return len(t.parked) }

// Close closes everything, in the order of the slots, and drops what was not handed out.
func (t *Transport) Close() error {
	if t.closed {
		return transport.ErrClosed
	}
	t.w.trace(t, 0, "close")
	t.closed = true
	t.shut.Store(true)
	for i := range t.slots {
		s := &t.slots[i]
		switch {
		case s.e != nil:
			s.e.recv, s.e.send, s.e.watch = nil, nil, nil
			s.e.shut(false)
		case s.l != nil:
			s.l.shut()
		}
		*s = slot{generation: s.generation}
	}
	for _, q := range t.queue[t.head:] {
		if q.c.Buf != nil {
			q.c.Buf.Release()
		}
	}
	for _, q := range t.late {
		if q.c.Buf != nil {
			q.c.Buf.Release()
		}
	}
	t.settled, t.queue, t.head, t.late, t.parked = nil, nil, 0, nil, nil
	t.stats.Open = 0
	for _, mem := range t.spare {
		t.pool.PutBlock(mem)
	}
	t.spare = nil
	t.w.version.Add(1)
	return nil
}

// lookup returns the slot of a Handle that is not stale, or nil.
func (t *Transport) lookup(h transport.Handle) *slot {
	i, generation := uint64(h)>>32, uint32(h)
	if i >= uint64(len(t.slots)) {
		return nil
	}
	s := &t.slots[i]
	if s.generation != generation || s.closing || s.e == nil && s.l == nil {
		return nil
	}
	return s
}

// attach gives a socket or a listener a slot.
func (t *Transport) attach(e *endpoint, l *listener) transport.Handle {
	var i int
	if k := len(t.free); k > 0 {
		i = t.free[k-1]
		t.free = t.free[:k-1]
	} else {
		i = len(t.slots)
		t.slots = append(t.slots, slot{})
	}
	s := &t.slots[i]
	s.generation++
	s.closing, s.e, s.l = false, e, l
	t.stats.Open++
	return transport.Handle(uint64(i)<<32 | uint64(s.generation))
}

// detach frees the slot of h.
func (t *Transport) detach(h transport.Handle) {
	i := int(uint64(h) >> 32)
	t.slots[i] = slot{generation: t.slots[i].generation}
	t.free = append(t.free, i)
	t.stats.Open--
}

// full returns EMFILE when no more can be open.
func (t *Transport) full() error {
	if t.stats.Open >= t.w.cfg.MaxOpen {
		return syscall.EMFILE
	}
	return nil
}

func (t *Transport) check() error {
	if t.closed {
		return nil
	}
	open := 0
	for i := range t.slots {
		if s := &t.slots[i]; s.e != nil || s.l != nil {
			open++
		}
	}
	if open != t.stats.Open || t.blocks+t.lent != t.w.cfg.Blocks || t.blocks < 0 || t.lent < 0 {
		return fmt.Errorf("t%d: %d slots used, %d open; %d blocks free and %d lent of %d",
			t.id, open, t.stats.Open, t.blocks, t.lent, t.w.cfg.Blocks)
	}
	return nil
}
