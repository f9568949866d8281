package weir

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// ErrForeign is returned by Set.Add for a channel that is not on one of the set's loops.
var ErrForeign = errors.New("weir: channel is on no loop of this set")

// Defaults of Set, and what it counts.
const (
	DefaultMaxQueuedBytes = 16 << 20
	DefaultMaxBehindBytes = 1 << 20
	// BroadcastOverheadBytes is what a broadcast counts beside its length: what it takes of memory however short it is.
	BroadcastOverheadBytes = 256
)

// Set is a set of channels, on any of a server's loops, that are written to together. One of Server and Dialer must be
// set; set the fields before the first call and leave them alone afterwards. A Set must not be copied after it.
//
// Each loop has one copy of what its members have yet to be given. A member gets it while it is Writable, so what is
// queued on its channel stays near Config.WriteHighBytes; one that is not goes on later from where it was, and when
// it has fallen behind by more than MaxBehindBytes, it misses the oldest messages, as a whole each. So a burst harms
// nobody, and a peer that does not read costs nobody else anything.
//
// A Set is also a handler: in a pipeline, it adds the channel when that becomes active; it can stand in any number of
// pipelines. A channel leaves the set when it is closed.
type Set struct {
	// Server is the server whose loops the channels are on. Channels that a Dialer has connected on these loops can be
	// members too.
	Server *Server
	// Dialer is the dialer whose own loops the channels are on, for a set without a server.
	Dialer *Dialer

	// MaxBehindBytes is how much memory each loop keeps for members that are not Writable: the bytes of broadcasts and
	// BroadcastOverheadBytes for each. At least the newest broadcast is kept, whatever its size. Zero means 1 MiB.
	MaxBehindBytes int
	// Slow, when set, is called for each message that a member misses because it has fallen behind. It runs on the
	// member's loop, with the Context that was added, and may close it.
	Slow func(ctx *pipeline.Context)
	// MaxQueuedBytes is how much memory broadcasts may hold that wait for loops, counted as for MaxBehindBytes, each
	// until the last loop has it; more are refused. Zero means 16 MiB.
	MaxQueuedBytes int

	queued atomic.Int64
	missed atomic.Uint64

	once   sync.Once
	shards atomic.Pointer[[]*shard] // by loop; set by once
}

var _ pipeline.ActiveHandler = (*Set)(nil)

// ChannelActive adds the channel and passes the event on.
func (s *Set) ChannelActive(ctx *pipeline.Context) error {
	if err := s.Add(ctx); err != nil {
		return err
	}
	ctx.FireActive()
	return nil
}

// Add makes ctx a member: broadcasts are written from it, through the handlers before it. It belongs to the channel's
// loop. Members get what is broadcast afterwards. Adding a member again does nothing.
//
// A small handler at the head of the pipeline takes ctx out when the channel is closed, and learns when it is
// writable again: a handler that is put before it later must pass ChannelWritabilityChanged on. When ctx's own
// handler is removed or replaced before, Remove it. Errors: ErrForeign, those of Pipeline.AddFirst.
func (s *Set) Add(ctx *pipeline.Context) error {
	p, err := s.shardOf(ctx)
	if err != nil {
		return err
	}
	if p.find(ctx) != nil {
		return nil
	}
	m := &member{shard: p, ctx: ctx, ref: ctx.Ref()}
	p.add(m)
	if err := ctx.Pipeline().AddFirst("", m); err != nil {
		p.remove(m)
		return fmt.Errorf("weir: set: add: %w", err)
	}
	return nil
}

// Remove takes ctx out and reports whether it was a member. It belongs to the channel's loop.
func (s *Set) Remove(ctx *pipeline.Context) bool {
	p, err := s.shardOf(ctx)
	if err != nil {
		return false
	}
	m := p.find(ctx)
	if m == nil {
		return false
	}
	p.remove(m)
	_, _ = ctx.Pipeline().Remove(m.name) // it is gone already when the channel is being closed
	return true
}

// Len is the number of members. Any goroutine; while channels come and go it is a moment's count.
func (s *Set) Len() int {
	n := 0
	for _, p := range s.allShards() {
		n += int(p.count.Load())
	}
	return n
}

// Get returns a Ref to the member whose channel has that ID (Context.ID, Ref.ID): what it writes goes from the
// Context that was added through the handlers before it, as broadcasts do. False when there is none. Any goroutine.
func (s *Set) Get(id uint64) (pipeline.Ref, bool) {
	for _, sh := range s.allShards() {
		sh.mu.Lock()
		m := sh.byID[id]
		sh.mu.Unlock()
		if m != nil {
			return m.ref, true
		}
	}
	return nil, false
}

// All iterates over the members, as Get returns them. Each loop's are those of the moment at which the iteration
// comes to it; what the body of the loop adds or removes is seen or not. Any goroutine.
func (s *Set) All() iter.Seq2[uint64, pipeline.Ref] {
	return func(yield func(uint64, pipeline.Ref) bool) {
		for _, sh := range s.allShards() {
			sh.mu.Lock()
			members := slices.Clone(sh.members)
			sh.mu.Unlock()
			for _, m := range members {
				if !yield(m.ref.ID(), m.ref) {
					return
				}
			}
		}
	}
}

// Missed is how many messages have been missed, counted for each member that has missed them. Any goroutine.
func (s *Set) Missed() uint64 { return s.missed.Load() }

// Queued is what the broadcasts that wait for loops now count for MaxQueuedBytes. Any goroutine.
func (s *Set) Queued() int { return int(s.queued.Load()) }

// Kept is what the broadcasts that the loops keep now for members that are behind count for MaxBehindBytes, together.
// Any goroutine.
func (s *Set) Kept() int {
	n := 0
	for _, p := range s.allShards() {
		n += int(p.kept.Load())
	}
	return n
}

// Broadcast writes p to every member. It copies p once. Any goroutine may call it, also a loop: it never waits, and
// each member gets the broadcasts of one goroutine in their order, but in no certain order with what is written to a
// Ref.
//
// pipeline.ErrFull says that MaxQueuedBytes wait already: nobody gets p. loop.ErrStopped says that a loop is gone,
// and its members with it.
func (s *Set) Broadcast(p []byte) error { return s.broadcast(p, 0, false) }

// BroadcastExcept is Broadcast without the channel of that ID (Context.ID, Ref.ID): the sender, for example.
func (s *Set) BroadcastExcept(p []byte, id uint64) error { return s.broadcast(p, id, true) }

func (s *Set) broadcast(p []byte, except uint64, hasExcept bool) error {
	if len(p) == 0 {
		return nil
	}
	limit := int64(s.MaxQueuedBytes)
	if limit == 0 {
		limit = DefaultMaxQueuedBytes
	}
	size := counted(p)
	if n := s.queued.Add(size); n > limit {
		s.queued.Add(-size)
		return fmt.Errorf("weir: broadcast of %d bytes with %d queued, limit %d: %w", len(p), n-size, limit, pipeline.ErrFull)
	}
	b := &broadcast{set: s, bytes: append([]byte(nil), p...), except: except, hasExcept: hasExcept}
	b.waiting.Store(1) // this call
	var failed error
	for _, sh := range s.allShards() {
		if !sh.post(b) && failed == nil {
			failed = fmt.Errorf("weir: broadcast of %d bytes: loop %d: %w", len(p), sh.worker.index, loop.ErrStopped)
		}
	}
	b.taken()
	return failed
}

// broadcast is one message on its way to the loops.
type broadcast struct {
	set       *Set
	bytes     []byte // immutable
	except    uint64
	hasExcept bool
	waiting   atomic.Int32 // loops that do not have it yet, and the call under way
}

// counted is what a broadcast of p counts: about the memory that it takes, on its way and on each loop that keeps it.
func counted(p []byte) int64 { return int64(len(p) + BroadcastOverheadBytes) }

func (b *broadcast) size() int64 { return counted(b.bytes) }

// taken counts off one of those who had to take it.
func (b *broadcast) taken() {
	if b.waiting.Add(-1) == 0 {
		b.set.queued.Add(-b.size())
	}
}

// shardOf returns the shard of ctx's loop, which is known by its pool.
func (s *Set) shardOf(ctx *pipeline.Context) (*shard, error) {
	pool := ctx.Pool()
	for _, p := range s.allShards() {
		if p.worker.pool == pool {
			return p, nil
		}
	}
	return nil, fmt.Errorf("weir: set: channel %d: %w", ctx.ID(), ErrForeign)
}

// allShards returns the shards; none before the loops have started.
func (s *Set) allShards() []*shard {
	if p := s.shards.Load(); p != nil {
		return *p
	}
	e, cfg := s.engine()
	if e == nil {
		return nil
	}
	s.once.Do(func() {
		shards := make([]*shard, len(e.workers))
		for i, w := range e.workers {
			shards[i] = newShard(s, w, cfg)
		}
		s.shards.Store(&shards)
	})
	return *s.shards.Load()
}

func (s *Set) engine() (*engine, *channel.Config) {
	switch {
	case s.Server != nil:
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		return s.Server.engine, &s.Server.Channel
	case s.Dialer != nil:
		s.Dialer.mu.Lock()
		defer s.Dialer.mu.Unlock()
		return s.Dialer.engine, &s.Dialer.Channel
	}
	return nil, nil
}
