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
	kept   atomic.Int64 // by the log
	mu     sync.Mutex
	queue  []*broadcast // guarded by mu
	posted bool         // guarded by mu: run will come
	ended  bool         // guarded by mu: the loop is gone, or nobody waits for it any more

	// Changed by the loop with mu held; the loop looks without, others with mu.
	members []*member
	byID    map[uint64]*member // never iterated over: the order would differ from run to run

	// Loop goroutine only.
	log    []entry
	oldest uint64    // number of log[0]
	behind []*member // the members that are not current
	ready  []*member // those of them to be written to, in turn
	timer  *loop.Timer
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
	ref   pipeline.Ref
	same  *member // the next one of the same channel, which may stand in a Set with several Contexts
	name  string  // of the handler, once added
	next  uint64  // number of the next message it gets
	at    int     // in shard.members
	atOff int     // in shard.behind, while it is behind
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
	sh := &shard{set: s, worker: w, turnBytes: cfg.WriteHighBytes / 2, maxBehind: int64(s.MaxBehindBytes)}
	if sh.turnBytes == 0 {
		sh.turnBytes = channel.DefaultWriteHighBytes / 2
	}
	if sh.maxBehind == 0 {
		sh.maxBehind = DefaultMaxBehindBytes
	}
	sh.byID = make(map[uint64]*member)
	w.atEnd(sh.end)
	return sh
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

// post puts b behind the others, unless there is nobody to get it; false when the loop is gone. Any goroutine.
func (sh *shard) post(b *broadcast) bool {
	sh.mu.Lock()
	if sh.ended || sh.count.Load() == 0 {
		defer sh.mu.Unlock()
		return !sh.ended
	}
	b.waiting.Add(1)
	sh.queue = append(sh.queue, b)
	first := !sh.posted
	sh.posted = true
	sh.mu.Unlock()
	return !first || sh.worker.do(sh.run) // where the loop has just gone, end gives b back
}

// end gives back what waits for the loop, which takes no more. Any goroutine.
func (sh *shard) end() {
	sh.mu.Lock()
	queue := sh.queue
	sh.queue, sh.ended = nil, true
	sh.mu.Unlock()
	for _, b := range queue {
		b.taken()
	}
}

// run takes in what was posted and writes it to the members that take it, some of it in each turn.
func (sh *shard) run() {
	writes := writesPerTurn
	for taken := 0; ; {
		for len(sh.ready) > 0 {
			if writes <= 0 {
				sh.again()
				return
			}
			m := sh.ready[0]
			sh.ready[0] = nil
			sh.ready = sh.ready[1:]
			if !m.gone {
				writes -= sh.guarded(m, writes)
			}
		}
		sh.ready = nil
		if taken >= sh.turnBytes {
			sh.again()
			return
		}
		b := sh.take()
		if b == nil {
			return
		}
		taken += len(b.bytes)
		sh.append(b)
		b.taken()
	}
}

// schedule makes run come if it does not come anyway.
func (sh *shard) schedule() {
	sh.mu.Lock()
	first := !sh.posted
	sh.posted = true
	sh.mu.Unlock()
	if first {
		sh.again()
	}
}

// again makes run come in the next turn, when what was written is sent.
func (sh *shard) again() {
	if sh.timer == nil {
		sh.timer = sh.worker.loop.NewTimer(sh.worker, sh.run)
	}
	sh.timer.Reset(0)
}

// take returns the next posted message. Without one it returns nil, and the next post makes run come.
func (sh *shard) take() *broadcast {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.queue) > 0 {
		b := sh.queue[0]
		sh.queue[0] = nil
		sh.queue = sh.queue[1:]
		return b
	}
	sh.queue, sh.posted = nil, false
	return nil
}

// append puts b into the log for all who are members now, and lets those who are too far behind miss the oldest.
func (sh *shard) append(b *broadcast) {
	if len(sh.members) == 0 {
		return
	}
	sh.log = append(sh.log, entry{broadcast: b, buf: buffer.Wrap(b.bytes), unread: len(sh.members)})
	sh.kept.Add(b.size())
	for len(sh.log) > 1 && sh.kept.Load() > sh.maxBehind {
		sh.evict()
	}
	for _, m := range sh.members {
		if m.state == current {
			m.atOff = len(sh.behind)
			sh.behind = append(sh.behind, m)
			m.state = ready
			sh.ready = append(sh.ready, m)
		}
	}
}

// evict drops the oldest message. Who has not got it misses it.
func (sh *shard) evict() {
	victims := make([]*member, 0, sh.log[0].unread)
	for _, m := range sh.behind {
		if m.next == sh.oldest {
			m.next++
			victims = append(victims, m)
		}
	}
	sh.log[0].unread = 0
	sh.trim()
	sh.set.missed.Add(uint64(len(victims)))
	if sh.set.Slow == nil {
		return
	}
	for _, m := range victims {
		if !m.gone {
			sh.slow(m)
		}
	}
}

// slow calls the user's Slow; a panic is the member's.
func (sh *shard) slow(m *member) {
	defer sh.rescue(m)
	sh.set.Slow(m.ctx)
}

// guarded writes to a member outside its own callbacks: a panic of its handlers closes its channel and nothing else.
func (sh *shard) guarded(m *member, writes int) (done int) {
	defer sh.rescue(m)
	done = sh.write(m, writes)
	sh.settle(m)
	return done
}

// rescue is deferred around what a member's handlers do.
func (sh *shard) rescue(m *member) {
	if v := recover(); v != nil {
		sh.worker.loop.Logger().Error("weir: handler panicked in a broadcast, channel closed",
			"panic", v, "channel", m.ctx.ID(), "stack", string(debug.Stack()))
		sh.remove(m)
		m.ctx.Abort(fmt.Errorf("%w: in a broadcast: %v", channel.ErrPanic, v))
	}
}

// write gives m what it has yet to get, while it is writable, and returns how many writes that was.
func (sh *shard) write(m *member, most int) (writes int) {
	for !m.gone && m.next < sh.oldest+uint64(len(sh.log)) && writes < most && m.ctx.Writable() {
		e := sh.log[m.next-sh.oldest]
		if e.hasExcept && m.ctx.ID() == e.except {
			sh.pass(m)
			continue
		}
		writes++
		buf := e.buf.RetainForTurn() // the log may let go of it
		sh.pass(m)
		err := m.ctx.Write(buf)
		buf.Release()
		if err != nil && m.ctx.Open() {
			m.ctx.FireError(err)
		}
	}
	return writes
}

// settle puts a member that was written to where it belongs.
func (sh *shard) settle(m *member) {
	switch {
	case m.gone:
	case !m.ctx.Open():
		sh.remove(m)
	case m.next == sh.oldest+uint64(len(sh.log)):
		sh.caughtUp(m)
	case m.ctx.Writable():
		m.state = ready
		sh.ready = append(sh.ready, m)
		sh.schedule()
	default:
		m.state = parked
	}
}

// pass moves m behind its next message.
func (sh *shard) pass(m *member) {
	sh.log[m.next-sh.oldest].unread--
	m.next++
	sh.trim()
}

// trim drops the oldest messages that all have passed.
func (sh *shard) trim() {
	for len(sh.log) > 0 && sh.log[0].unread == 0 {
		sh.kept.Add(-sh.log[0].size())
		sh.log[0].buf.Release()
		sh.log[0] = entry{}
		sh.log = sh.log[1:]
		sh.oldest++
	}
	if len(sh.log) == 0 {
		sh.log = nil
	}
}

func (sh *shard) add(m *member) {
	m.at = len(sh.members)
	m.next = sh.oldest + uint64(len(sh.log))
	id := m.ctx.ID()
	sh.mu.Lock()
	sh.members = append(sh.members, m)
	m.same, sh.byID[id] = sh.byID[id], m
	sh.mu.Unlock()
	sh.count.Add(1)
}

func (sh *shard) remove(m *member) {
	if m.gone {
		return
	}
	m.gone = true
	sh.count.Add(-1)
	for i := m.next; i < sh.oldest+uint64(len(sh.log)); i++ {
		sh.log[i-sh.oldest].unread--
	}
	if m.state != current {
		sh.caughtUp(m)
	}
	sh.mu.Lock()
	last := len(sh.members) - 1
	sh.members[m.at] = sh.members[last]
	sh.members[m.at].at = m.at
	sh.members[last] = nil
	sh.members = sh.members[:last]
	sh.forget(m)
	sh.mu.Unlock()
	sh.trim()
}

// find returns the member of a Context, nil when there is none. Loop goroutine.
func (sh *shard) find(ctx *pipeline.Context) *member {
	m := sh.byID[ctx.ID()]
	for m != nil && m.ctx != ctx {
		m = m.same
	}
	return m
}

// forget takes m out of byID. The caller holds mu.
func (sh *shard) forget(m *member) {
	id := m.ref.ID()
	if sh.byID[id] == m {
		if m.same == nil {
			delete(sh.byID, id)
		} else {
			sh.byID[id] = m.same
		}
		return
	}
	for other := sh.byID[id]; other != nil; other = other.same {
		if other.same == m {
			other.same = m.same
		}
	}
}

// caughtUp takes m from those that are behind.
func (sh *shard) caughtUp(m *member) {
	m.state = current
	last := len(sh.behind) - 1
	sh.behind[m.atOff] = sh.behind[last]
	sh.behind[m.atOff].atOff = m.atOff
	sh.behind[last] = nil
	sh.behind = sh.behind[:last]
}
