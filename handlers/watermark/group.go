package watermark

import (
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// group is what the channels of one loop have in common at one Shared. It belongs to the loop, but for what is said
// below.
type group struct {
	shared *Shared
	pool   *buffer.Pool
	subs   list           // everybody
	broken list           // those whose turn was broken off when the level rose, the first one first
	queue  list           // those who wait for a turn, longest first
	lossy  list           // those who keep reading and are told when the level has fallen
	agent  *sub           // one of subs, through whose channel the loop is reached
	timer  pipeline.Timer // the agent's
	due    time.Duration  // when it fires; 0: it does not

	signal  atomic.Pointer[pipeline.Signal] // the agent's, which runs the group; any goroutine may raise it
	head    atomic.Int64                    // the ticket of the first who waits, or an older one; nobody: nobody does
	blocked atomic.Bool                     // it waits for a group that is behind
	telling atomic.Bool                     // lossy may not be empty
}

// wake makes the loop look where somebody waits. Any goroutine.
func (g *group) wake() {
	if s := g.signal.Load(); s != nil && (g.head.Load() != nobody || g.telling.Load()) {
		(*s).Raise()
	}
}

// run gives those who wait longest their turn. The others come in a later turn of the loop, when there is still room.
func (g *group) run() {
	g.blocked.Store(false)
	g.tellLossy()
	g.advance(g.limit())
	if g.shared.high.Load() || g.first() == nil && g.lossy.first == nil {
		return
	}
	if g.first() != nil && !g.mayGo() {
		g.blocked.Store(true) // and then look again: the other one looks at it after it has moved on
		if !g.mayGo() {
			if g.due == 0 { // not anew each time that something moves
				g.due = g.agent.h.ctx.Now() + leadTimeout
				g.timer.Reset(leadTimeout)
			}
			if g.lossy.first == nil {
				return
			}
		}
	}
	g.wake()
}

// late is run when the group that is behind has not moved on for a while.
func (g *group) late() {
	g.due = 0
	if g.blocked.Load() {
		g.advance(nobody)
		g.run()
	}
}

// tellLossy tells the next of those who keep reading that the level has fallen.
func (g *group) tellLossy() {
	for n := 0; n < g.shared.cfg.ResumesPerTurn && g.lossy.first != nil && !g.shared.high.Load(); n++ {
		g.lossy.first.goOn()
	}
	g.telling.Store(g.lossy.first != nil)
}

// limit is up to which ticket it may be anybody's turn.
func (g *group) limit() int64 {
	oldest := g.shared.oldest()
	if oldest == nobody {
		return nobody
	}
	return oldest + g.shared.waiting.Load()/leadShare
}

func (g *group) mayGo() bool { return g.first().ticket <= g.limit() }

// first is whose turn is next, nil when nobody waits.
func (g *group) first() *sub {
	if g.broken.first != nil {
		return g.broken.first
	}
	return g.queue.first
}

// advance gives the next ones up to limit their turn.
func (g *group) advance(limit int64) {
	for n := 0; n < g.shared.cfg.ResumesPerTurn && !g.shared.high.Load(); n++ {
		s := g.first()
		if s == nil || s.ticket > limit {
			break
		}
		s.goOn()
	}
	g.publish()
}

// publish tells the other groups who is the first here, and wakes those that have waited for that.
func (g *group) publish() {
	ticket := int64(nobody)
	if first := g.first(); first != nil {
		ticket = first.ticket
	}
	if g.head.Swap(ticket) == ticket {
		return
	}
	for _, other := range *g.shared.groups.Load() {
		if other.blocked.Load() {
			other.wake()
		}
	}
}

// appoint makes one of the others the agent.
func (g *group) appoint() {
	if g.timer != nil {
		g.timer.Stop()
	}
	g.agent = g.subs.first
	if g.agent == nil {
		g.signal.Store(nil)
		g.shared.leave(g)
		return
	}
	ctx := g.agent.h.ctx
	signal := ctx.NewSignal(func(*pipeline.Context) error { g.run(); return nil })
	g.timer = ctx.NewTimer(func(*pipeline.Context) error { g.late(); return nil })
	if g.due > 0 {
		g.timer.Reset(max(0, g.due-ctx.Now()))
	}
	g.signal.Store(&signal)
	g.wake() // the old agent's may have been raised when its channel was closed
}

// sub is one Handler's place at one Shared: its node in the lists of the group. It belongs to the Handler's loop.
type sub struct {
	h      *Handler
	shared *Shared
	group  *group

	all, wait links
	in        *list // of its group, while it waits
	ticket    int64 // its place among all that have waited
	reserved  int   // by the last grant
	credit    int   // bytes left of its turn; negative where it has read more
	high      bool  // it has seen the level high
	turn      bool  // it has waited and has not been granted anything since
}

func (s *sub) subscribe(ctx *pipeline.Context) {
	s.group = s.shared.join(ctx.Pool())
	s.group.subs.push(s, allLinks)
	if s.group.agent == nil {
		s.group.appoint()
	}
}

func (s *sub) unsubscribe() {
	g := s.group
	if g == nil {
		return
	}
	s.refund()
	if s.in != nil {
		s.dequeue()
		g.publish()
	}
	g.subs.remove(s, allLinks)
	s.group = nil
	if g.agent == s {
		g.appoint()
	}
}

// sharedHigh looks at the shared levels and waits at those that are high. It reports whether one is. Whose turn it is,
// is not stopped before it has passed something on. amid says that what was read may not have been passed on
// completely.
func (h *Handler) sharedHigh(amid bool) bool {
	for i := range h.subs {
		s := &h.subs[i]
		switch high := s.shared.high.Load(); {
		case high && !s.high && !s.turn:
			s.rose(amid)
		case !high && s.high && h.cfg.KeepReading:
			s.dequeue() // it drops meanwhile
		}
	}
	return h.highSubs > 0
}

// passed ends what sharedHigh spares: something of this turn was passed on.
func (h *Handler) passed() {
	for i := range h.subs {
		h.subs[i].turn = false
	}
}

// rose makes s wait for the level to fall. Where that breaks off its turn, it goes on with it before it is anybody
// else's.
func (s *sub) rose(amid bool) {
	g := s.group
	if g == nil {
		return
	}
	s.high = true
	s.h.highSubs++
	switch {
	case s.h.cfg.KeepReading:
		s.enqueue(&g.lossy)
	case amid || s.credit > 0:
		s.enqueue(&g.broken)
	default:
		s.enqueue(&g.queue)
	}
}

// inTurn reports whether the channel may read now as far as others are concerned, and makes it wait where it may not.
func (h *Handler) inTurn() bool {
	if h.cfg.KeepReading {
		return true // what is too much is dropped, not waited for
	}
	ok := true
	for i := range h.subs {
		ok = h.subs[i].inTurn() && ok
	}
	return ok
}

func (s *sub) inTurn() bool {
	switch {
	case s.in != nil:
		return false
	case s.credit > 0:
	case s.shared.waiting.Load() > 0:
		s.turn = false // what it has read too much was more than that
		s.refund()
		s.enqueue(&s.group.queue)
		return false
	default:
		s.credit = s.h.cfg.BudgetBytes
		s.ticket = s.shared.tickets.Load() // as one that has waited until now
	}
	return true
}

// enqueue puts s behind all that wait in to, where it does not wait yet. Whoever makes the level fall looks at the head
// of the queue after he has changed high, and here high is looked at after the head has changed: one of the two sees
// the other.
func (s *sub) enqueue(to *list) {
	if s.in != nil {
		return
	}
	g := s.group
	s.in = to
	to.push(s, waitLinks)
	if to == &g.lossy {
		g.telling.Store(true)
	} else {
		if to == &g.queue {
			s.ticket = s.shared.tickets.Add(1)
		}
		s.shared.waiting.Add(1)
		if g.first() != s {
			return
		}
		g.head.Store(s.ticket)
	}
	if !s.shared.high.Load() {
		g.wake()
	}
}

// goOn lets the Handler go on: it is its turn.
func (s *sub) goOn() {
	h := s.h
	s.turn = !h.cfg.KeepReading
	if s.in == &s.group.queue {
		s.credit = min(s.credit, 0) + h.cfg.BudgetBytes
	}
	s.dequeue()
	if h.level < OverLimit {
		h.settle(h.ctx.Pending()) // its own next event tells: this is another channel's
		h.ctx.GrantChanged()
	}
}

func (s *sub) dequeue() {
	if s.in != &s.group.lossy {
		s.shared.waiting.Add(-1)
	}
	s.in.remove(s, waitLinks)
	s.in = nil
	if s.high {
		s.high = false
		s.h.highSubs--
	}
}

// reserve takes what the next receive may bring and gives back what the last did not.
func (s *sub) reserve(n int) int {
	s.refund()
	s.turn = false
	if !s.h.cfg.KeepReading {
		n = min(n, s.credit)
	}
	s.reserved = s.shared.reserve(n)
	return s.reserved
}

func (s *sub) refund() {
	s.shared.reserved.Add(-int64(s.reserved))
	s.reserved = 0
}

// list is a doubly linked list through one of the links of its nodes.
type list struct{ first, last *sub }

type links struct{ next, prev *sub }

func allLinks(s *sub) *links  { return &s.all }
func waitLinks(s *sub) *links { return &s.wait }

func (l *list) push(s *sub, of func(*sub) *links) {
	n := of(s)
	n.prev, n.next = l.last, nil
	if l.last == nil {
		l.first = s
	} else {
		of(l.last).next = s
	}
	l.last = s
}

func (l *list) remove(s *sub, of func(*sub) *links) {
	n := of(s)
	if n.prev == nil {
		l.first = n.next
	} else {
		of(n.prev).next = n.next
	}
	if n.next == nil {
		l.last = n.prev
	} else {
		of(n.next).prev = n.prev
	}
	n.next, n.prev = nil, nil
}
