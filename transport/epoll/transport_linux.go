package epoll

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/inbox"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

const (
	// eventsPerPoll is how many ready sockets one epoll_wait reports at most.
	eventsPerPoll = 256
	// defaultBatch is how many completions one Wait hands out when the caller's slice does not say.
	defaultBatch = 256
	// wakeData is the eventfd's user data: no handle, since no slot has that number.
	wakeData = ^uint64(0)
)

// Transport carries the operations of one event loop on epoll. It belongs to the goroutine that opened it; only Wake is
// for others.
type Transport struct {
	// Set in Open, then immutable.
	cfg   Config
	clock sys.Clock
	pool  *buffer.Pool

	wake inbox.Waker // any goroutine

	// Loop goroutine only.
	epoll      sys.Epoll
	sockets    table
	connecting map[transport.Token]*socket // by the Connect's token
	blocks     blocks
	dirty      []uint32 // slots whose interest may differ from what epoll has
	resuming   []uint32 // slots whose Send used up its turn
	queue      inbox.Queue[transport.Completion]
	closed     bool

	// One Wait.
	out      []transport.Completion // what it hands out
	before   int                    // len(out) when it began
	room     int                    // how many more it may hand out; 0 outside Wait
	passed   bool                   // the last one handed out completions without looking at any socket
	now      time.Duration
	nowKnown bool

	// The events of the last epoll_wait; events[nextEvent:eventCount] are not yet handled.
	nextEvent, eventCount int
	events                [eventsPerPoll]sys.EpollEvent

	vector   sys.Vector
	peer     sys.Sockaddr
	stats    transport.Stats
	load     transport.LoadGauge
	counters Counters
}

// Open opens a transport.
func Open(cfg Config) (*Transport, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Transport{cfg: cfg, clock: sys.NewClock(), pool: buffer.NewPool(cfg.Pool), connecting: map[transport.Token]*socket{}}
	t.load.Set(0, eventsPerPoll)
	t.blocks = blocks{pool: t.pool, size: cfg.ReceiveBlockBytes, maxHot: 2 * cfg.ReceivesPerWait}
	t.epoll, err = sys.OpenEpoll()
	if err != nil {
		return nil, fmt.Errorf("epoll: create: %w", err)
	}
	if err = t.wake.Open(); err != nil {
		t.epoll.Close()
		return nil, fmt.Errorf("epoll: eventfd: %w", err)
	}
	// Edge-triggered, so that nobody has to read it: each write is reported once (epoll(7)).
	if errno := t.epoll.Add(t.wake.FD(), sys.EpollIn|sys.EpollEdge, wakeData); errno != 0 {
		t.wake.Close()
		t.epoll.Close()
		return nil, fmt.Errorf("epoll: add eventfd: %w", errno)
	}
	return t, nil
}

// Listen opens or adopts a listening socket.
func (t *Transport) Listen(cfg transport.ListenConfig) (transport.Handle, error) {
	if t.closed {
		return 0, transport.ErrClosed
	}
	options := sys.SocketOptions(cfg.Socket)
	var l *sys.Listener
	var err error
	if cfg.Listener != nil {
		l, err = sys.Adopt(cfg.Listener, &options)
	} else {
		l, err = sys.Listen(&sys.ListenOptions{
			Network: cfg.Network, Address: cfg.Address, Backlog: cfg.Backlog, ReusePort: cfg.ReusePort,
			Control: cfg.Control, Socket: options,
		})
	}
	if err != nil {
		return 0, fmt.Errorf("epoll: listen on %s %q: %w", cfg.Network, cfg.Address, err)
	}
	flags := flagListener
	if l.Shared {
		flags |= flagShared
	}
	s := t.sockets.add(l.FD, flags)
	if s == nil {
		_ = l.Close()
		return 0, fmt.Errorf("epoll: listen on %s %q: %w", cfg.Network, cfg.Address, errTooMany)
	}
	s.more = &setup{listener: l, options: options}
	return s.handle(), nil
}

// Wake ends the Wait that runs now, or the next one. Any goroutine.
func (t *Transport) Wake() error { return t.wake.Wake() }

// Now is the time since Open, read at most once per Wait.
func (t *Transport) Now() time.Duration {
	if !t.nowKnown {
		t.now, t.nowKnown = t.clock.Now(), true
	}
	return t.now
}

// Clock is the time since Open, read anew.
func (t *Transport) Clock() time.Duration { return t.clock.Now() }

// Pool is the loop's pool.
func (t *Transport) Pool() *buffer.Pool { return t.pool }

// LocalAddr returns the address h is bound to.
func (t *Transport) LocalAddr(h transport.Handle) net.Addr {
	s := t.sockets.lookup(h)
	if s == nil {
		return nil
	}
	return sys.LocalAddr(int(s.fd))
}

// Acked implements transport.Transport.
func (t *Transport) Acked(h transport.Handle) (mark uint64, left int, err error) {
	s := t.sockets.lookup(h)
	if s == nil {
		return 0, 0, transport.ErrStale
	}
	return sys.Acked(int(s.fd))
}

// Control runs fn with the descriptor behind h. The descriptor stays the transport's and non-blocking.
func (t *Transport) Control(h transport.Handle, fn func(fd uintptr) error) error {
	s := t.sockets.lookup(h)
	if s == nil {
		return transport.ErrStale
	}
	s.flags |= flagShared // fn may duplicate it
	return fn(uintptr(s.fd))
}

// HandOver implements transport.Transport.
func (t *Transport) HandOver(h transport.Handle) (transport.Socket, error) {
	s := t.sockets.lookup(h)
	switch {
	case s == nil:
		return nil, transport.ErrStale
	case s.is(flagListener):
		return nil, transport.ErrNotSupported
	case s.is(1<<operations - 1):
		return nil, transport.ErrBusy
	}
	if s.is(flagInEpoll) {
		t.leave(s)
	}
	fd := sys.Detached(s.fd)
	t.sockets.remove(s)
	return fd, nil
}

// TakeOver implements transport.Transport.
func (t *Transport) TakeOver(socket transport.Socket) (transport.Handle, error) {
	fd, ok := socket.(sys.Detached)
	switch {
	case !ok:
		socket.Close()
		return 0, fmt.Errorf("epoll: take over %T: %w", socket, transport.ErrNotSupported)
	case t.closed:
		fd.Close()
		return 0, transport.ErrClosed
	}
	s := t.sockets.add(int(fd), 0)
	if s == nil {
		fd.Close()
		return 0, fmt.Errorf("epoll: take over: %w", syscall.ENFILE)
	}
	return s.handle(), nil
}

// Stats returns counters since Open.
func (t *Transport) Stats() transport.Stats {
	stats := t.stats
	stats.Open = t.sockets.open
	load := t.load.Load()
	stats.Waiting, stats.WaitingEntries = load.Waiting, load.Entries
	return stats
}

// Load implements transport.Transport. Any goroutine.
func (t *Transport) Load() transport.Load { return t.load.Load() }

// Counters returns epoll's own counters since Open.
func (t *Transport) Counters() Counters {
	c := t.counters
	c.BlocksTaken, c.BlocksLeft, c.HotBlocks = t.blocks.takenEver, t.blocks.leftEver, len(t.blocks.hot)
	return c
}

// Close closes every socket and the transport; a second call does nothing.
func (t *Transport) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	for number := range t.sockets.used {
		if s := t.sockets.at(number); s.is(flagOpen) {
			for op := range operations {
				if s.has(op) {
					s.end(op)
				}
			}
			t.shut(s, false)
		}
	}
	for ; t.queue.Len() > 0; t.queue.Pop() {
		if b := t.queue.Peek().Buf; b != nil {
			b.Release()
		}
	}
	t.blocks.drop()
	t.dirty, t.resuming = nil, nil
	t.nextEvent, t.eventCount = 0, 0
	err := t.epoll.Close()
	if errno := t.wake.Close(); errno != 0 && err == nil {
		err = errno
	}
	if err != nil {
		return fmt.Errorf("epoll: close: %w", err)
	}
	return nil
}
