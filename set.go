package weir

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// ErrForeign answers a Set.Add of a channel that is not on one of the set's loops.
var ErrForeign = errors.New("weir: channel is on no loop of this set")

// DefaultMaxQueuedBytes is the default of Set.MaxQueuedBytes.
const DefaultMaxQueuedBytes = 16 << 20

// Set is a set of channels, on any of a server's loops, that are written to together. One of Server and Dialer must be
// set; set the fields before the first call and leave them alone afterwards. A Set must not be copied after it.
//
// A Set is also a handler: in a pipeline, it adds the channel when that becomes active; it can stand in any number of
// pipelines. A channel leaves the set when it is closed.
type Set struct {
	// Server is the server whose loops the channels are on. Channels that a Dialer has connected on these loops can be
	// members too.
	Server *Server
	// Dialer is the dialer whose own loops the channels are on, for a set without a server.
	Dialer *Dialer

	// MaxPendingBytes is how much may be pending on a member that still gets a broadcast. Zero means no bound beside
	// Context.Writable.
	MaxPendingBytes int
	// Slow, when set, is called for each member that a broadcast leaves out because it is not Writable or MaxPendingBytes
	// are exceeded. It runs on the member's loop, with its Context, and may close it. Whether or not it is set, the
	// message is left out as a whole, and counted.
	Slow func(ctx *pipeline.Context)
	// MaxQueuedBytes is how many bytes of broadcasts may wait for loops, each counted until the last loop has written it.
	// Zero means 16 MiB.
	MaxQueuedBytes int

	queued atomic.Int64
	missed atomic.Uint64

	once  sync.Once
	parts atomic.Pointer[[]*part] // by loop; set by once
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
// A small handler behind ctx's takes it out when the channel is closed; when ctx's own handler is removed or replaced
// before, Remove it. Errors: ErrForeign, those of Pipeline.AddAfter.
func (s *Set) Add(ctx *pipeline.Context) error {
	p, err := s.partOf(ctx)
	if err != nil {
		return err
	}
	if p.index[ctx] != nil {
		return nil
	}
	m := &member{part: p, ctx: ctx}
	p.add(m)
	if err := ctx.Pipeline().AddAfter(ctx.Name(), "", m); err != nil {
		p.remove(m)
		return fmt.Errorf("weir: set: add: %w", err)
	}
	return nil
}

// Remove takes ctx out and answers whether it was a member. It belongs to the channel's loop.
func (s *Set) Remove(ctx *pipeline.Context) bool {
	p, err := s.partOf(ctx)
	if err != nil || p.index[ctx] == nil {
		return false
	}
	p.remove(p.index[ctx])
	return true
}

// Len is the number of members. Any goroutine; while channels come and go it is a moment's count.
func (s *Set) Len() int {
	n := 0
	for _, p := range s.allParts() {
		n += int(p.count.Load())
	}
	return n
}

// Missed is how many times a member was left out of a broadcast because it was slow. Any goroutine.
func (s *Set) Missed() uint64 { return s.missed.Load() }

// Broadcast writes p to every member. It copies p once. Any goroutine may call it, also a loop: it never waits, and each
// member gets the broadcasts of one goroutine in their order. It is done by one task on each loop with members, after
// what the caller has done before.
//
// A loop whose task queue is full refuses: its members do not get p, those of other loops do, and the error
// (loop.ErrFull, loop.ErrStopped) tells. pipeline.ErrFull says that MaxQueuedBytes wait already: then nobody gets it.
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
	if n := s.queued.Add(int64(len(p))); n > limit {
		s.queued.Add(-int64(len(p)))
		return fmt.Errorf("weir: broadcast of %d bytes with %d queued, limit %d: %w", len(p), n-int64(len(p)), limit, pipeline.ErrFull)
	}
	b := &broadcast{set: s, bytes: append([]byte(nil), p...), except: except, hasExcept: hasExcept}
	b.left.Store(1) // this call
	var failed []error
	asked := 0
	for i, part := range s.allParts() {
		if part.count.Load() == 0 {
			continue
		}
		asked++
		b.left.Add(1)
		if err := part.agent.loop.Execute(func() { part.write(b) }); err != nil {
			b.done()
			failed = append(failed, fmt.Errorf("loop %d: %w", i, err))
		}
	}
	b.done()
	if len(failed) > 0 {
		return fmt.Errorf("weir: broadcast of %d bytes refused by %d of %d loops: %w", len(p), len(failed), asked, errors.Join(failed...))
	}
	return nil
}

// broadcast is one message on its way to the loops.
type broadcast struct {
	set       *Set
	bytes     []byte // immutable
	except    uint64
	hasExcept bool
	left      atomic.Int32 // loops that have not written it yet, and the call under way
}

func (b *broadcast) done() {
	if b.left.Add(-1) == 0 {
		b.set.queued.Add(-int64(len(b.bytes)))
	}
}

// part is the members on one loop. Loop goroutine only, except count.
type part struct {
	set     *Set
	agent   *agent
	count   atomic.Int64
	members []*member                     // nil: left while the list was being gone through
	index   map[*pipeline.Context]*member // never iterated over: the order would differ from run to run
	writing bool                          // a broadcast is going through members
	holes   bool
}

// member is a channel of the set, and the handler that takes it out in the end.
type member struct {
	part *part
	ctx  *pipeline.Context
	at   int // in part.members
	gone bool
}

var _ pipeline.RemovedHandler = (*member)(nil)

// HandlerRemoved takes the member out: its channel is closed, or somebody wants it out.
func (m *member) HandlerRemoved(*pipeline.Context) error {
	m.part.remove(m)
	return nil
}

// partOf answers the part of ctx's loop, which is known by its pool.
func (s *Set) partOf(ctx *pipeline.Context) (*part, error) {
	pool := ctx.Pool()
	for _, p := range s.allParts() {
		if p.agent.pool == pool {
			return p, nil
		}
	}
	return nil, fmt.Errorf("weir: set: channel %d: %w", ctx.ID(), ErrForeign)
}

// allParts answers the parts; none before the loops have started.
func (s *Set) allParts() []*part {
	if p := s.parts.Load(); p != nil {
		return *p
	}
	e := s.engine()
	if e == nil {
		return nil
	}
	s.once.Do(func() {
		parts := make([]*part, len(e.agents))
		for i, a := range e.agents {
			parts[i] = &part{set: s, agent: a, index: make(map[*pipeline.Context]*member)}
		}
		s.parts.Store(&parts)
	})
	return *s.parts.Load()
}

func (s *Set) engine() *engine {
	switch {
	case s.Server != nil:
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		return s.Server.engine
	case s.Dialer != nil:
		s.Dialer.mu.Lock()
		defer s.Dialer.mu.Unlock()
		return s.Dialer.engine
	}
	return nil
}

func (p *part) add(m *member) {
	m.at = len(p.members)
	p.members = append(p.members, m)
	p.index[m.ctx] = m
	p.count.Add(1)
}

func (p *part) remove(m *member) {
	if m.gone {
		return
	}
	m.gone = true
	delete(p.index, m.ctx)
	p.count.Add(-1)
	if p.writing { // the list must not move under who goes through it
		p.members[m.at] = nil
		p.holes = true
		return
	}
	last := len(p.members) - 1
	if m.at != last {
		p.members[m.at] = p.members[last]
		p.members[m.at].at = m.at
	}
	p.members[last] = nil
	p.members = p.members[:last]
}

// write writes b to all who are members now.
func (p *part) write(b *broadcast) {
	defer b.done()
	w := buffer.Wrap(b.bytes)
	defer w.Release()
	p.writing = true
	defer p.settle()
	for i, n := 0, len(p.members); i < n; {
		i = p.writeFrom(b, w, i, n)
	}
}

// writeFrom writes to the members from i on and answers where to go on: at n, or behind a member whose handlers panicked.
// That one is closed, the others get their message. It borrows w until return.
func (p *part) writeFrom(b *broadcast, w *buffer.Buf, i, n int) (next int) {
	next = i
	var m *member
	defer func() {
		if v := recover(); v != nil {
			next++
			p.agent.loop.Logger().Error("weir: handler panicked in a broadcast", "panic", v, "stack", string(debug.Stack()))
			m.ctx.Abort(fmt.Errorf("%w: in a broadcast: %v", channel.ErrPanic, v))
		}
	}()
	var view buffer.Buf // each holder of a Buf shares its indexes: a member that sends a part of it needs its own
	for ; next < n; next++ {
		if m = p.members[next]; m == nil || !m.ctx.Open() || b.hasExcept && m.ctx.ID() == b.except {
			continue
		}
		if limit := b.set.MaxPendingBytes; !m.ctx.Writable() || limit > 0 && m.ctx.Pending() > limit {
			b.set.missed.Add(1)
			if b.set.Slow != nil {
				b.set.Slow(m.ctx)
			}
			continue
		}
		if err := m.ctx.Write(w.Scratch(&view, 0, len(b.bytes))); err != nil && m.ctx.Open() {
			m.ctx.FireError(err)
		}
	}
	return next
}

// settle closes the holes that members have left while the list was being gone through.
func (p *part) settle() {
	p.writing = false
	if !p.holes {
		return
	}
	p.holes = false
	kept := p.members[:0]
	for _, m := range p.members {
		if m != nil {
			m.at = len(kept)
			kept = append(kept, m)
		}
	}
	clear(p.members[len(kept):])
	p.members = kept
}
