package uring

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	abi "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/inbox"
	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/sys"
	"github.com/weirnet/weir/transport"
)

// errTooMany is unix.EMFILE with the reason: the transport has no number left for a socket.
var errTooMany = fmt.Errorf("uring: more than %d sockets: %w", maxSlots, unix.EMFILE)

const (
	bufferGroup = 0
	// leastEntries is how short a submission queue gets when nobody asked for a length and memory is short.
	leastEntries = 128
	rawWait      = 5 * time.Millisecond // how long Wait keeps its P, with Config.Raw
	// fileWorkers bounds the kernel's worker threads of a ring, which read files.
	fileWorkers = 8
	closeTries  = 200 // times closeTurn, for operations to end
	closeTurn   = 10 * time.Millisecond
	// closeTriesLossy is closeTries once completions were lost: some of those that are missing will never come.
	closeTriesLossy = 10
)

// Transport is transport.Transport on one io_uring. It belongs to the goroutine that opened it, which stays locked to
// its OS thread; only Wake is for others.
type Transport struct {
	// Set by Open, then immutable.
	ring     *ring.Ring
	blocks   *blocks
	arena    *ring.Arena
	pool     *buffer.Pool
	clock    sys.Clock
	raw      bool
	warn     func(text string)
	features Features
	wake     inbox.Waker

	// Loop goroutine only.
	slots       slots
	connecting  map[transport.Token]*slot         // by the Connect's token
	todo        inbox.Queue[work]                 // entries to make
	held        []work                            // entries to make when fewer completions wait
	hungry      inbox.Queue[work]                 // receives that wait for blocks
	sated       inbox.Queue[work]                 // and those that had some lately
	unsettled   []sent                            // skipped sends that are in the queue
	awaited     int                               // of them, those without NoWait
	events      inbox.Queue[event]                // completions of the ring that were not handed out
	done        inbox.Queue[transport.Completion] // completions that did not fit the batch they belong to
	out         []transport.Completion            // the batch that Wait is filling; nil outside of Wait
	outLimit    int                               // its length at most; 0 outside of Wait
	outstanding int                               // entries in the kernel, the ones without a slot included
	failed      error                             // what every Wait returns: completions were lost
	overflown   bool                              // so was the queue when it was last looked at
	credits     credits                           // set by Open
	gate        gate                              // as of this turn
	arms        int                               // accepts and receives that may be armed before the next enter
	accepting   int                               // accepts in the kernel
	urgent      int                               // sends that must end in the next Wait
	watched     stage                             // of the poll on wake's eventfd
	refused     int                               // receives in a row that found no block although there was one
	ringless    bool                              // the kernel refuses blocks for good, see refuse
	pipes       [][2]int                          // idle ones, empty
	now         time.Duration                     // valid while nowRead
	nowRead     bool
	closed      bool
	peer        sys.Sockaddr // scratch
	stats       transport.Stats
	gauge       transport.LoadGauge
	counters    Counters
}

// work is an entry that is to be made.
type work struct {
	slot uint32
	gen  uint32
	kind kind
	of   kind // kindCancel: of which operation
	paid bool // it was held, and has its place among those that may be armed
}

// sent is a skipped send that the kernel has not been seen to consume.
type sent struct {
	slot, gen uint32
	position  uint32 // behind its entry
	awaited   bool   // without NoWait: its completion must not wait for something else
}

// event is a completion of the ring.
type event struct {
	data   uint64
	result int32
	flags  uint32
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ buffer.Lender       = (*Transport)(nil)
)

// Open sets a ring up for the calling goroutine, which is locked to its OS thread. An error that wraps ErrUnavailable
// says why io_uring cannot be used here.
func Open(cfg Config) (*Transport, error) { return open(cfg, ring.Config{}) }

// Probe returns nil when io_uring can be used, or an error that wraps ErrUnavailable and says why not.
func Probe() error {
	runtime.LockOSThread() // a ring belongs to its thread
	defer runtime.UnlockOSThread()
	t, err := Open(Config{Entries: 8, Blocks: 1, BlockBytes: 256})
	if err != nil {
		return err
	}
	return t.Close()
}

// open is Open with a kernel to talk to and flags to do without, as rc says.
func open(cfg Config, rc ring.Config) (*Transport, error) {
	shrinks := cfg.Entries == 0 && cfg.CompletionEntries == 0
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	for {
		t, err := openWith(cfg, rc)
		// The kernel may count the queues against RLIMIT_MEMLOCK. Shorter ones cost system calls when they are full; a
		// fallback to another transport would cost more.
		if !shrinks || !errors.Is(err, unix.ENOMEM) || cfg.Entries <= leastEntries {
			return t, err
		}
		cfg.Entries, cfg.CompletionEntries = cfg.Entries/2, cfg.CompletionEntries/2
	}
}

func openWith(cfg Config, rc ring.Config) (*Transport, error) {
	t := &Transport{
		pool: buffer.NewPool(cfg.Pool), clock: sys.NewClock(), raw: cfg.Raw, warn: cfg.Warn,
		connecting: map[transport.Token]*slot{},
	}
	if err := t.set(cfg, rc); err != nil {
		t.free()
		if errors.Is(err, ring.ErrUnavailable) {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	return t, nil
}

// set acquires what a transport has.
func (t *Transport) set(cfg Config, rc ring.Config) (err error) {
	rc.Entries, rc.CQEntries = uint32(cfg.Entries), uint32(cfg.CompletionEntries)
	t.ring, err = ring.Open(rc)
	if err != nil {
		return err
	}
	t.credits = divide(len(t.ring.CQEs))
	t.gauge.Set(0, t.credits.entries)
	if err := t.operations(); err != nil {
		return err
	}
	t.ring.LimitWorkers(fileWorkers, fileWorkers)
	if t.arena, err = ring.NewArena(); err != nil {
		return err
	}
	if t.blocks, err = openBlocks(t.ring, t.pool, cfg.Blocks, cfg.BlockBytes, t.credits.blocks); err != nil {
		return err
	}
	if t.features, err = t.probe(); err != nil {
		return err
	}
	t.features &^= cfg.Without
	if err := t.wake.Open(); err != nil {
		return fmt.Errorf("uring: eventfd: %w", err)
	}
	t.armWake()
	return nil
}

// operations checks that the kernel has every operation that is used; one may be switched off by a restriction or be
// missing from an emulation.
func (t *Transport) operations() error {
	ops := t.ring.Probe()
	if ops == nil {
		return nil // it does not tell
	}
	for _, op := range []uint8{
		abi.IORING_OP_RECV, abi.IORING_OP_SEND, abi.IORING_OP_SENDMSG, abi.IORING_OP_ACCEPT, abi.IORING_OP_CONNECT,
		abi.IORING_OP_POLL_ADD, abi.IORING_OP_ASYNC_CANCEL, abi.IORING_OP_CLOSE, abi.IORING_OP_SPLICE,
		abi.IORING_OP_READ,
	} {
		if !ops.Has(op) {
			return fmt.Errorf("%w: this kernel lacks operation %d", ring.ErrUnavailable, op)
		}
	}
	return nil
}

// Features are what the transport uses.
func (t *Transport) Features() Features { return t.features }

// Pool implements transport.Transport.
func (t *Transport) Pool() *buffer.Pool { return t.pool }

// Now implements transport.Transport.
func (t *Transport) Now() time.Duration {
	if !t.nowRead {
		t.now, t.nowRead = t.clock.Now(), true
	}
	return t.now
}

// Clock is the time now, from the fixed point of Now, read anew.
func (t *Transport) Clock() time.Duration { return t.clock.Now() }

// Wake implements transport.Transport. Any goroutine.
func (t *Transport) Wake() error { return t.wake.Wake() }

// Listen implements transport.Transport.
func (t *Transport) Listen(cfg transport.ListenConfig) (transport.Handle, error) {
	if t.closed {
		return 0, transport.ErrClosed
	}
	l := &listener{options: sys.SocketOptions(cfg.Socket), most: maxAccepts}
	if cfg.Shared {
		l.most = 1
	}
	var err error
	if cfg.Listener != nil {
		if l.socket, err = sys.Adopt(cfg.Listener, &l.options); err != nil {
			return 0, fmt.Errorf("uring: listen: %w", err)
		}
	} else {
		l.socket, err = sys.Listen(&sys.ListenOptions{
			Network: cfg.Network, Address: cfg.Address, Backlog: cfg.Backlog, ReusePort: cfg.ReusePort,
			Control: cfg.Control, Socket: l.options,
		})
		if err != nil {
			return 0, fmt.Errorf("uring: listen %s %s: %w", cfg.Network, cfg.Address, err)
		}
	}
	s := t.slots.take(l.socket.FD, stateListening)
	if s == nil {
		_ = l.socket.Close()
		return 0, errTooMany
	}
	s.listener = l
	return s.handle(), nil
}

// LocalAddr implements transport.Transport.
func (t *Transport) LocalAddr(h transport.Handle) net.Addr {
	s := t.slots.find(h)
	if s == nil {
		return nil
	}
	return sys.LocalAddr(int(s.fd))
}

// Acked implements transport.Transport.
func (t *Transport) Acked(h transport.Handle) (mark uint64, left int, err error) {
	s := t.slots.find(h)
	if s == nil {
		return 0, 0, transport.ErrStale
	}
	return sys.Acked(int(s.fd))
}

// Control implements transport.Transport.
func (t *Transport) Control(h transport.Handle, fn func(fd uintptr) error) error {
	s := t.slots.find(h)
	if s == nil {
		return transport.ErrStale
	}
	return fn(uintptr(s.fd))
}

// HandOver implements transport.Transport.
func (t *Transport) HandOver(h transport.Handle) (transport.Socket, error) {
	s := t.slots.find(h)
	switch {
	case s == nil:
		return nil, transport.ErrStale
	case s.state == stateListening:
		return nil, transport.ErrNotSupported
	case s.kernel > 0 || s.recv.active() || s.send.active() || s.watch.active():
		return nil, transport.ErrBusy
	}
	fd := sys.Detached(s.fd)
	t.slots.give(s)
	return fd, nil
}

// TakeOver implements transport.Transport.
func (t *Transport) TakeOver(socket transport.Socket) (transport.Handle, error) {
	fd, ok := socket.(sys.Detached)
	switch {
	case !ok:
		socket.Close()
		return 0, fmt.Errorf("uring: take over %T: %w", socket, transport.ErrNotSupported)
	case t.closed:
		fd.Close()
		return 0, transport.ErrClosed
	}
	s := t.slots.take(int(fd), stateOpen)
	if s == nil {
		fd.Close()
		return 0, fmt.Errorf("uring: take over: %w", unix.ENFILE)
	}
	return s.handle(), nil
}

// Stats implements transport.Transport.
func (t *Transport) Stats() transport.Stats {
	st := t.stats
	st.ShortSends = t.counters.ShortSends
	st.Open = t.slots.open
	load := t.gauge.Load()
	st.Waiting, st.WaitingEntries = load.Waiting, load.Entries
	c := t.Counters()
	st.Overflows, st.Overflowed, st.Dropped = c.Overflows, c.Overflowed, c.Lost
	return st
}

// Load implements transport.Transport. Any goroutine.
func (t *Transport) Load() transport.Load { return t.gauge.Load() }

// Counters tell what the transport did.
func (t *Transport) Counters() Counters {
	c := t.counters
	if t.ring != nil {
		c.Enters = t.ring.Enters()
	}
	if t.ring != nil && !t.closed {
		c.Lost = uint64(t.ring.Dropped())
	}
	c.Parked = t.hungry.Len() + t.sated.Len()
	if t.blocks != nil {
		c.Blocks = t.blocks.window
	}
	return c
}

// Close implements transport.Transport. It first takes back from the kernel what is in flight, so that nobody writes
// into memory that is used for something else afterwards.
func (t *Transport) Close() error {
	if t.closed {
		return transport.ErrClosed
	}
	t.closed = true
	t.counters = t.Counters()
	t.wake.Close()
	err := t.quiesce()
	lost := t.ring.Dropped() > 0
	for i := range t.slots.len() {
		s := t.slots.at(i)
		if lost && s.closing == armed {
			// The kernel closes a descriptor as soon as it has cancelled what was on it, so it was the completion that
			// was lost. Closing the number once more could close another file.
			s.fd = -1
		}
		if s.state != stateFree {
			t.closeSlot(s)
		}
	}
	for t.done.Len() > 0 {
		if b := t.done.Peek().Buf; b != nil {
			b.Release()
		}
		t.done.Pop()
	}
	t.free()
	return err
}

// closeSlot closes the descriptors of a slot of which nothing is in the kernel.
func (t *Transport) closeSlot(s *slot) {
	if f := s.send.file; f != nil {
		f.drop(t)
	}
	if s.listener != nil {
		_ = s.listener.socket.Close()
	} else if s.fd >= 0 {
		_ = sys.Close(int(s.fd))
	}
	t.slots.give(s)
}

// quiesce cancels everything that is in the kernel and waits for its end, without handing it out.
func (t *Transport) quiesce() error {
	_ = t.ring.Submit() // makes room, and takes what was prepared before
	if e := t.entry(kindCancel, nil); e != nil {
		ring.CancelEverything(e)
	}
	tries := closeTries
	for i := 0; i < tries; i++ {
		t.discard()
		t.forgetSkipped()
		if t.outstanding == 0 {
			return nil
		}
		if t.ring.Dropped() > 0 {
			tries = closeTriesLossy
		}
		if err := t.ring.Wait(closeTurn, false); err != nil && !errors.Is(err, ring.ErrDropped) {
			return fmt.Errorf("uring: close: %w", err)
		}
	}
	if t.ring.Dropped() > 0 {
		t.outstanding = 0 // what is missing was lost, not left
		return nil
	}
	return fmt.Errorf("uring: close: %d operations did not end", t.outstanding)
}

// discard takes completions and frees what they bring.
func (t *Transport) discard() {
	t.drain(true)
	for ; t.events.Len() > 0; t.events.Pop() {
		e := t.events.Peek()
		if e.flags&ring.FlagMore == 0 {
			t.outstanding--
		}
		if e.flags&ring.FlagBuffer != 0 {
			t.blocks.forget(uint16(e.flags >> 16))
		}
		k := kind(e.data >> 56)
		s := t.slots.owner(e.data)
		switch {
		case k == kindAccept && e.result >= 0:
			_ = sys.Close(int(e.result))
		case k == kindClose && s != nil:
			s.fd = -1
		case k == kindSend && s != nil:
			s.send.skipped = false // has ended
		}
	}
}

// forgetSkipped counts the skipped sends that have ended without a completion.
func (t *Transport) forgetSkipped() {
	if t.ring.Pending() > 0 || t.ring.Overflown() {
		return
	}
	for i := range t.unsettled {
		u := &t.unsettled[i]
		if s := t.slots.at(u.slot); s.gen == u.gen && s.send.stage == armed && s.send.skipped {
			t.outstanding--
		}
	}
	t.unsettled, t.awaited = nil, 0
}

// free gives back what set acquired, as far as it came.
func (t *Transport) free() {
	t.closed = true
	for _, p := range t.pipes {
		closePipe(p)
	}
	t.pipes = nil
	if t.blocks != nil {
		t.blocks.close()
	}
	// What is still in the kernel refers to the arena: then it stays mapped.
	if t.arena != nil && t.outstanding == 0 {
		t.arena.Close()
	}
	if t.ring != nil {
		t.ring.Close()
	}
	t.wake.Close()
}

func closePipe(p [2]int) {
	_ = unix.Close(p[0])
	_ = unix.Close(p[1])
}
