package channel

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// DefaultMaxWaiting is ReceiverConfig.MaxWaiting's.
const DefaultMaxWaiting = 1024

// receivesPerTurn is how many channels one turn makes of what was handed over.
const receivesPerTurn = 64

// maker makes channels of connected sockets. It belongs to its loop.
type maker struct {
	loop        *loop.Loop
	chn         *settings
	failed      func(error)         // nil: nobody asks
	notAdmitted func(ticket any)    // nil: nobody asks
	accepted    func(*Channel, any) // nil: nobody asks
}

// open makes a channel of an admitted socket and reports whether it could.
func (m *maker) open(cp *transport.Completion, ticket any) bool {
	c, err := newChannel(m.loop, cp, m.chn)
	if err != nil {
		refuse(m.loop, cp.Handle)
		m.fail(err, ticket)
		return false
	}
	c.start() // at the end of the turn; first, because accepted may panic
	if m.accepted != nil {
		m.accepted(c, ticket)
	}
	return true
}

// fail tells that an admitted socket does not become a channel.
func (m *maker) fail(err error, ticket any) {
	if m.notAdmitted != nil {
		m.notAdmitted(ticket)
	}
	if m.failed != nil {
		m.failed(err)
	}
}

// refuse resets a socket that nobody wants.
func refuse(l *loop.Loop, h transport.Handle) {
	if socket, err := l.Transport().HandOver(h); err == nil {
		socket.Close()
	}
}

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	// Channel configures the channels. Nil means the zero Config.
	Channel *Config
	// MaxWaiting is how many connections may be on their way to the loop. Zero means 1,024.
	MaxWaiting int
	// Room, when set, is called on the loop when one was refused for want of room, and half of MaxWaiting are left.
	Room func()
	// Error, NotAdmitted and Accepted are as in ListenerConfig; NotAdmitted may be called on any goroutine.
	Error       func(error)
	NotAdmitted func(ticket any)
	Accepted    func(c *Channel, ticket any)
}

// Receiver makes channels, on its loop, of connections that Listeners on other loops have accepted. A method that does
// not say otherwise belongs to the loop.
type Receiver struct {
	maker
	reg  loop.Registration
	node loop.Node
	most int64
	room func()

	waiting atomic.Int64 // reserved or in the queue
	refused atomic.Bool  // for want of room

	mu    sync.Mutex
	queue []arrival // guarded by mu
	ended bool      // guarded by mu
}

// arrival is an accepted connection on its way.
type arrival struct {
	socket transport.Socket
	addr   netip.AddrPort
	unix   bool
	ticket any
}

// NewReceiver returns a Receiver on the loop, whose goroutine calls it.
func NewReceiver(l *loop.Loop, cfg ReceiverConfig) (*Receiver, error) {
	if cfg.Channel == nil {
		cfg.Channel = &Config{}
	}
	if cfg.MaxWaiting < 0 {
		return nil, fmt.Errorf("channel: negative limit: MaxWaiting %d", cfg.MaxWaiting)
	}
	setDefault(&cfg.MaxWaiting, DefaultMaxWaiting)
	chn, err := cfg.Channel.settle()
	if err != nil {
		return nil, err
	}
	r := &Receiver{most: int64(cfg.MaxWaiting), room: cfg.Room, maker: maker{
		loop: l, chn: chn, failed: cfg.Error, notAdmitted: cfg.NotAdmitted, accepted: cfg.Accepted,
	}}
	if r.reg, err = l.Register(r); err != nil {
		return nil, fmt.Errorf("channel: register receiver: %w", err)
	}
	r.node.Init(r)
	return r, nil
}

// Waiting is how many connections are on their way to the loop. Any goroutine.
func (r *Receiver) Waiting() int { return int(r.waiting.Load()) }

// Full reports whether as many are as may be. Any goroutine.
func (r *Receiver) Full() bool { return r.waiting.Load() >= r.most }

// reserve takes a place; false: there is none, and Room will be called when there is. Any goroutine.
func (r *Receiver) reserve() bool {
	if r.waiting.Add(1) <= r.most {
		return true
	}
	r.refused.Store(true)
	r.giveUp()
	return false
}

// giveUp gives a place back. Any goroutine.
func (r *Receiver) giveUp() {
	r.waiting.Add(-1)
	r.loop.Post(&r.node) // which looks whether somebody waits for room
}

// give hands a connection over, into a place that was reserved. Any goroutine.
func (r *Receiver) give(a arrival) {
	r.mu.Lock()
	ended := r.ended
	if !ended {
		r.queue = append(r.queue, a)
	}
	r.mu.Unlock()
	switch {
	case ended:
		r.drop(a)
	case !r.loop.Post(&r.node): // it has gone since
		r.end()
	}
}

// drop closes a connection that cannot become a channel. Any goroutine.
func (r *Receiver) drop(a arrival) {
	r.waiting.Add(-1)
	a.socket.Close()
	if r.notAdmitted != nil {
		r.notAdmitted(a.ticket)
	}
}

// RunNode makes channels of what was handed over, some of it in each turn.
func (r *Receiver) RunNode(*loop.Node) {
	for range receivesPerTurn {
		a, ok := r.next()
		if !ok {
			return
		}
		h, err := r.loop.Transport().TakeOver(a.socket)
		if err != nil {
			r.fail(fmt.Errorf("channel: receive: %w", err), a.ticket)
			continue
		}
		r.open(&transport.Completion{Handle: h, Addr: a.addr, Unix: a.unix}, a.ticket)
	}
	r.loop.Post(&r.node)
}

// next takes a connection out of the queue.
func (r *Receiver) next() (a arrival, ok bool) {
	r.mu.Lock()
	if ok = len(r.queue) > 0; ok {
		a, r.queue[0] = r.queue[0], arrival{}
		r.queue = r.queue[1:]
	} else {
		r.queue = nil
	}
	r.mu.Unlock()
	if ok {
		r.waiting.Add(-1)
	}
	if r.room != nil && r.waiting.Load() <= r.most/2 && r.refused.Swap(false) {
		r.room()
	}
	return a, ok
}

// Close ends the Receiver: what is on its way is reset. The channels live on.
func (r *Receiver) Close() {
	if r.end() {
		r.loop.Unregister(r.reg)
	}
}

// end resets what is on its way. It reports whether it was the first to. Any goroutine.
func (r *Receiver) end() bool {
	r.mu.Lock()
	queue, first := r.queue, !r.ended
	r.queue, r.ended = nil, true
	r.mu.Unlock()
	for _, a := range queue {
		r.drop(a)
	}
	return first
}

// Complete is not used: a Receiver submits nothing.
func (r *Receiver) Complete(*transport.Completion) {}

// EndTurn is not used.
func (r *Receiver) EndTurn() {}

// Panicked logs a panic of one of the config's functions and goes on with the next connection.
func (r *Receiver) Panicked(v any, stack []byte) {
	r.loop.Logger().Error("weir: receiver callback panicked", "panic", v, "stack", string(stack))
	r.loop.Post(&r.node)
}

// Abort ends the Receiver because its loop goes away.
func (r *Receiver) Abort(error) { r.Close() }
