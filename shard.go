package weir

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// writesPerTurn is how many writes one turn makes for broadcasts at most.
const writesPerTurn = 4096

// shard is the part of a Set on one loop: its members, and what they have yet to be given: a log that each member
// reads at its own pace.
//
//	queue ──▶ [ oldest … newest ] ──▶ members that are behind: ready to be written to, or parked until writable
//	(posted)     log, MaxBehindBytes
type shard struct {
	// Set in newShard, then immutable.
	set       *Set
	worker    *worker
	turnBytes int // taken in per turn: what was written has to be sent before members are judged
	maxBehind int64

	// Any goroutine.
	count  atomic.Int64
	kept   atomic.Int64 // bytes in log
	mu     sync.Mutex
	queue  []*broadcast // guarded by mu
	posted bool         // guarded by mu: run will come

	// Loop goroutine only.
	log     []entry
	oldest  uint64 // number of log[0]
	members []*member
	index   map[*pipeline.Context]*member // never iterated over: the order would differ from run to run
	behind  []*member                     // the members that are not current
	ready   []*member                     // those of them to be written to, in turn
	timer   *loop.Timer
}

// entry is a message of the log.
type entry struct {
	*broadcast
	buf    *buffer.Buf // owned: its bytes
	unread int         // members that have not passed it
}

// member is a channel of the set, and the handler that watches over it. Loop goroutine only.
type member struct {
	shard *shard
	ctx   *pipeline.Context
	name  string // of the handler, once added
	next  uint64 // number of the next message it gets
	at    int    // in shard.members
	atOff int    // in shard.behind, while it is behind
	state memberState
	gone  bool
}

type memberState uint8

const (
	current memberState = iota // has everything
	ready                      // in shard.ready
	parked                     // behind and not writable
)

var (
	_ pipeline.AddedHandler       = (*member)(nil)
	_ pipeline.RemovedHandler     = (*member)(nil)
	_ pipeline.WritabilityHandler = (*member)(nil)
)

func newShard(s *Set, w *worker, cfg *channel.Config) *shard {
	p := &shard{set: s, worker: w, turnBytes: cfg.WriteHighBytes / 2, maxBehind: int64(s.MaxBehindBytes)}
	if p.turnBytes == 0 {
		p.turnBytes = channel.DefaultWriteHighBytes / 2
	}
	if p.maxBehind == 0 {
		p.maxBehind = DefaultMaxBehindBytes
	}
	p.index = make(map[*pipeline.Context]*member)
	return p
}

// HandlerAdded remembers the name.
func (m *member) HandlerAdded(ctx *pipeline.Context) error {
	m.name = ctx.Name()
	return nil
}

// HandlerRemoved takes the member out: its channel is closed.
func (m *member) HandlerRemoved(*pipeline.Context) error {
	m.shard.remove(m)
	return nil
}

// ChannelWritabilityChanged passes the event on, and then gives a member that waited for it what it has yet to get. The
// event is sure to come after Writable was false, also when that was for less than a turn.
func (m *member) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	ctx.FireWritabilityChanged()
	if m.state == parked && !m.gone {
		m.shard.write(m, writesPerTurn)
		m.shard.settle(m)
	}
	return nil
}

// post puts b behind the others; false when the loop is gone. Any goroutine.
func (p *shard) post(b *broadcast) bool {
	p.mu.Lock()
	p.queue = append(p.queue, b)
	first := !p.posted
	p.posted = true
	p.mu.Unlock()
	return !first || p.worker.do(p.run)
}

// run takes in what was posted and writes it to the members that take it, some of it in each turn.
func (p *shard) run() {
	writes := writesPerTurn
	for taken := 0; ; {
		for len(p.ready) > 0 {
			if writes <= 0 {
				p.again()
				return
			}
			m := p.ready[0]
			p.ready[0] = nil
			p.ready = p.ready[1:]
			if !m.gone {
				writes -= p.guarded(m, writes)
			}
		}
		p.ready = nil
		if taken >= p.turnBytes {
			p.again()
			return
		}
		b := p.take()
		if b == nil {
			return
		}
		taken += len(b.bytes)
		p.append(b)
		b.taken()
	}
}

// schedule makes run come if it does not come anyway.
func (p *shard) schedule() {
	p.mu.Lock()
	first := !p.posted
	p.posted = true
	p.mu.Unlock()
	if first {
		p.again()
	}
}

// again makes run come in the next turn, when what was written is sent.
func (p *shard) again() {
	if p.timer == nil {
		p.timer = p.worker.loop.NewTimer(p.worker, p.run)
	}
	p.timer.Reset(0)
}

// take returns the next posted message. Without one it returns nil, and the next post makes run come.
func (p *shard) take() *broadcast {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 {
		b := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		return b
	}
	p.queue, p.posted = nil, false
	return nil
}

// append puts b into the log for all who are members now, and lets those who are too far behind miss the oldest.
func (p *shard) append(b *broadcast) {
	if len(p.members) == 0 {
		return
	}
	p.log = append(p.log, entry{broadcast: b, buf: buffer.Wrap(b.bytes), unread: len(p.members)})
	p.kept.Add(int64(len(b.bytes)))
	for len(p.log) > 1 && p.kept.Load() > p.maxBehind {
		p.evict()
	}
	for _, m := range p.members {
		if m.state == current {
			m.atOff = len(p.behind)
			p.behind = append(p.behind, m)
			m.state = ready
			p.ready = append(p.ready, m)
		}
	}
}

// evict drops the oldest message. Who has not got it misses it.
func (p *shard) evict() {
	victims := make([]*member, 0, p.log[0].unread)
	for _, m := range p.behind {
		if m.next == p.oldest {
			m.next++
			victims = append(victims, m)
		}
	}
	p.log[0].unread = 0
	p.trim()
	p.set.missed.Add(uint64(len(victims)))
	if p.set.Slow == nil {
		return
	}
	for _, m := range victims {
		if !m.gone {
			p.slow(m)
		}
	}
}

// slow calls the user's Slow; a panic is the member's.
func (p *shard) slow(m *member) {
	defer p.rescue(m)
	p.set.Slow(m.ctx)
}

// guarded writes to a member outside its own callbacks: a panic of its handlers closes its channel and nothing else.
func (p *shard) guarded(m *member, writes int) (done int) {
	defer p.rescue(m)
	done = p.write(m, writes)
	p.settle(m)
	return done
}

// rescue is deferred around what a member's handlers do.
func (p *shard) rescue(m *member) {
	if v := recover(); v != nil {
		p.worker.loop.Logger().Error("weir: handler panicked in a broadcast, channel closed",
			"panic", v, "channel", m.ctx.ID(), "stack", string(debug.Stack()))
		p.remove(m)
		m.ctx.Abort(fmt.Errorf("%w: in a broadcast: %v", channel.ErrPanic, v))
	}
}

// write gives m what it has yet to get, while it is writable, and returns how many writes that was.
func (p *shard) write(m *member, most int) (writes int) {
	for !m.gone && m.next < p.oldest+uint64(len(p.log)) && writes < most && m.ctx.Writable() {
		e := p.log[m.next-p.oldest]
		if e.hasExcept && m.ctx.ID() == e.except {
			p.pass(m)
			continue
		}
		writes++
		buf := e.buf.RetainForTurn() // the log may let go of it
		p.pass(m)
		err := m.ctx.Write(buf)
		buf.Release()
		if err != nil && m.ctx.Open() {
			m.ctx.FireError(err)
		}
	}
	return writes
}

// settle puts a member that was written to where it belongs.
func (p *shard) settle(m *member) {
	switch {
	case m.gone:
	case !m.ctx.Open():
		p.remove(m)
	case m.next == p.oldest+uint64(len(p.log)):
		p.caughtUp(m)
	case m.ctx.Writable():
		m.state = ready
		p.ready = append(p.ready, m)
		p.schedule()
	default:
		m.state = parked
	}
}

// pass moves m behind its next message.
func (p *shard) pass(m *member) {
	p.log[m.next-p.oldest].unread--
	m.next++
	p.trim()
}

// trim drops the oldest messages that all have passed.
func (p *shard) trim() {
	for len(p.log) > 0 && p.log[0].unread == 0 {
		p.kept.Add(-int64(len(p.log[0].bytes)))
		p.log[0].buf.Release()
		p.log[0] = entry{}
		p.log = p.log[1:]
		p.oldest++
	}
	if len(p.log) == 0 {
		p.log = nil
	}
}

func (p *shard) add(m *member) {
	m.at = len(p.members)
	m.next = p.oldest + uint64(len(p.log))
	p.members = append(p.members, m)
	p.index[m.ctx] = m
	p.count.Add(1)
}

func (p *shard) remove(m *member) {
	if m.gone {
		return
	}
	m.gone = true
	delete(p.index, m.ctx)
	p.count.Add(-1)
	for i := m.next; i < p.oldest+uint64(len(p.log)); i++ {
		p.log[i-p.oldest].unread--
	}
	if m.state != current {
		p.caughtUp(m)
	}
	last := len(p.members) - 1
	p.members[m.at] = p.members[last]
	p.members[m.at].at = m.at
	p.members[last] = nil
	p.members = p.members[:last]
	p.trim()
}

// caughtUp takes m from those that are behind.
func (p *shard) caughtUp(m *member) {
	m.state = current
	last := len(p.behind) - 1
	p.behind[m.atOff] = p.behind[last]
	p.behind[m.atOff].atOff = m.atOff
	p.behind[last] = nil
	p.behind = p.behind[:last]
}
