// Package sim is the transport contract on a simulated network: the loops of a whole test, their sockets, their clock
// and their faults run in one goroutine and follow from one seed.
package sim

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/transport"
)

// never is later than every moment of a World.
const never = time.Duration(1<<63 - 1)

// World is one host with its network and its clock. It and its transports belong to one goroutine, Transport.Wake
// excepted.
//
// Time is virtual. It passes by Config.TurnTime with each Wait, and a Wait that finds nothing lets it jump to the next
// event of the world, to the end of its own timeout or to that of another transport's last Wait, whichever is first.
// What the event brings to other transports waits in their queues; the Wait then returns without completions, so that
// who drives the loops in turn gets to the one that has work. A Wait never jumps while another transport has something
// to do that it has not handed out yet.
type World struct {
	cfg    Config
	rng    *rand.Rand
	now    time.Duration
	events eventQueue

	transports []*Transport
	ports      map[uint16][]*listener // TCP; looked up only
	paths      map[string]*listener   // Unix; looked up only
	nextPort   uint16
	conns      []*connection // those with something left to check
	connSerial int
	sources    uint64

	idle      int
	violation error
	version   atomic.Uint64 // grows when a transport gets something to do
}

// NewWorld returns an empty world in which everything follows from seed. It panics when cfg.BlockBytes is not a size of
// buffer.Pool's blocks.
func NewWorld(seed uint64, cfg Config) *World {
	cfg = cfg.withDefaults()
	if n := cfg.BlockBytes; n < 256 || n > 1<<20 || n&(n-1) != 0 {
		panic(fmt.Sprintf("sim: BlockBytes is %d, not a power of two from 256 to 1 MiB", n))
	}
	return &World{
		cfg:      cfg,
		rng:      rand.New(rand.NewPCG(seed, 0x7765697273696d)),
		ports:    map[uint16][]*listener{},
		paths:    map[string]*listener{},
		nextPort: 32768,
	}
}

// Open opens one more transport. All transports of a world share its addresses, as the processes of a host do.
func (w *World) Open() *Transport {
	t := &Transport{
		w: w, id: len(w.transports), pool: buffer.NewPool(w.cfg.Pool), now: w.now, deadline: never,
		connects: map[transport.Token]*operation{}, blocks: w.cfg.Blocks, filled: map[*byte]int{},
	}
	t.load.Set(0, w.cfg.Batch)
	w.transports = append(w.transports, t)
	w.version.Add(1)
	w.trace(t, 0, "open")
	return t
}

// Now is the virtual time.
func (w *World) Now() time.Duration { return w.now }

// Idle counts the Waits without limit that found nothing anywhere that could ever end them: no event, no timeout of
// another transport, no completion. A driver that sees it grow is done, or has lost something.
func (w *World) Idle() int { return w.idle }

// Events is the number of events that are still to happen.
func (w *World) Events() int { return w.events.len() }

// Check returns the first violation of what the simulation itself must keep: that each byte handed out is the one that
// was sent at its place, and that bytes, blocks, sockets and operations are accounted for. Every Wait returns such a
// violation as its error, too, as far as it was noticed.
func (w *World) Check() error {
	for _, c := range w.conns {
		w.fail(c.check())
	}
	for _, t := range w.transports {
		w.fail(t.check())
	}
	return w.violation
}

func (w *World) fail(err error) {
	if err != nil && w.violation == nil {
		w.violation = fmt.Errorf("sim: at %v: %w", w.now, err)
		w.trace(nil, 0, "violation: %v", err)
	}
}

// at lets fn run d from now.
func (w *World) at(d time.Duration, fn func()) { w.events.push(w.now+max(d, 0), fn) }

// runTo lets time pass and the events happen that are due by then. Time that was later already stays.
func (w *World) runTo(when time.Duration) {
	for w.events.len() > 0 && w.events.next() <= when {
		e := w.events.pop()
		w.now = max(w.now, e.at)
		e.fn()
	}
	w.now = max(w.now, when)
}

// chance draws with the given rate; a rate of zero draws nothing, so that faults that are off change no seed.
func (w *World) chance(rate float64) bool { return rate > 0 && w.rng.Float64() < rate }

// some is a random number from 1 to n.
func (w *World) some(n int) int { return 1 + w.rng.IntN(n) }

// delay is a random time up to Faults.LateBy.
func (w *World) delay() time.Duration {
	return time.Duration(w.rng.Int64N(int64(w.cfg.Faults.LateBy)) + 1)
}

// travel is the time a segment takes.
func (w *World) travel() time.Duration {
	d := w.cfg.Latency
	if w.cfg.Jitter > 0 {
		d += time.Duration(w.rng.Int64N(int64(w.cfg.Jitter) + 1))
	}
	return d
}

func (w *World) source() source {
	w.sources++
	return source{id: w.sources}
}

// trace writes a line about the socket of a transport; t is nil for what belongs to none, id zero for no socket.
func (w *World) trace(t *Transport, id uint64, format string, args ...any) {
	if w.cfg.Trace == nil {
		return
	}
	who := "world"
	if t != nil {
		who = fmt.Sprintf("t%d", t.id)
	}
	if id != 0 {
		who += fmt.Sprintf(" s%d", id)
	}
	fmt.Fprintf(w.cfg.Trace, "%14v %-8s %s\n", w.now, who, fmt.Sprintf(format, args...))
}

// event is something that will happen. Those of one moment happen in the order in which they were planned.
type event struct {
	at  time.Duration
	seq uint64
	fn  func()
}

// eventQueue is a binary heap of events.
type eventQueue struct {
	heap []event
	seq  uint64
}

func (q *eventQueue) len() int { return len(q.heap) }

func (q *eventQueue) next() time.Duration { return q.heap[0].at }

func (q *eventQueue) push(at time.Duration, fn func()) {
	q.seq++
	q.heap = append(q.heap, event{at: at, seq: q.seq, fn: fn})
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.before(i, parent) {
			return
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *eventQueue) pop() event {
	top := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && q.before(child+1, child) {
			child++
		}
		if !q.before(child, i) {
			return top
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
}

func (q *eventQueue) before(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}
