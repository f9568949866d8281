package watermark

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

const (
	// DefaultFloorBytes is SharedConfig.FloorBytes where it is zero.
	DefaultFloorBytes = 2 << 10
	// DefaultResumesPerTurn is SharedConfig.ResumesPerTurn where it is zero.
	DefaultResumesPerTurn = 64
	// reservable is the part of HighBytes that receives may have reserved in all, beside what the floor gives.
	reservable = 4
	// roomShare is the part of what is left that one channel may reserve.
	roomShare = 8
	// missedWake is after how long a loop looks by itself, for a wake-up that a full task queue refused.
	missedWake = 50 * time.Millisecond
)

// SharedConfig configures a Shared. The unit is the caller's, bytes where channels reserve what they read.
type SharedConfig struct {
	// HighBytes is where the level becomes high, at that value, and LowBytes where it becomes normal again.
	// 0 < LowBytes < HighBytes; zero means half of HighBytes.
	HighBytes, LowBytes int64
	// FloorBytes is what a channel may read at a time however little room is left, so that channels that are silent cannot
	// starve the others by what they have reserved. Zero means 2 KiB.
	FloorBytes int
	// ResumesPerTurn is how many channels of a loop are resumed in one turn. Zero means 64.
	ResumesPerTurn int
}

// Shared is a level that many channels on many loops fill: a sink's queue, a pool's memory. While it is high, channels that
// watch it do not read; when it becomes normal they go on, those that wait longest first.
//
// Whoever queues calls Add(n), whoever has dealt with it Add(-n), from any goroutine. Every receive of a channel reserves
// what it may bring and gives back what did not come. Reservations take no more than a quarter of HighBytes, nor than is left
// of it, and FloorBytes each where that is used up. So if what is added is at most what was read, the level and all that can
// still arrive stay within
//
//	HighBytes × 5/4 + FloorBytes × channels
//
// (A transport may read past a limit by less than one of its blocks.)
type Shared struct {
	cfg SharedConfig

	value    atomic.Int64
	reserved atomic.Int64
	high     atomic.Bool
	rises    atomic.Uint64

	groups atomic.Pointer[[]*group] // one a loop; copied on write
	mu     sync.Mutex               // of those who write groups
}

// NewShared answers an empty level. The error wraps ErrConfig.
func NewShared(cfg SharedConfig) (*Shared, error) {
	if cfg.LowBytes == 0 {
		cfg.LowBytes = cfg.HighBytes / 2
	}
	if cfg.FloorBytes == 0 {
		cfg.FloorBytes = DefaultFloorBytes
	}
	if cfg.ResumesPerTurn == 0 {
		cfg.ResumesPerTurn = DefaultResumesPerTurn
	}
	if cfg.LowBytes <= 0 || cfg.LowBytes >= cfg.HighBytes || cfg.FloorBytes < 0 || cfg.ResumesPerTurn < 0 {
		return nil, fmt.Errorf("watermark: shared level with marks %d, %d, floor %d, %d resumes, want 0 < low < high: %w",
			cfg.LowBytes, cfg.HighBytes, cfg.FloorBytes, cfg.ResumesPerTurn, ErrConfig)
	}
	s := &Shared{cfg: cfg}
	s.groups.Store(&[]*group{})
	return s, nil
}

// Add changes the level by n, which may be negative. Any goroutine.
func (s *Shared) Add(n int64) {
	v := s.value.Add(n)
	if high := s.high.Load(); high && v > s.cfg.LowBytes || !high && v < s.cfg.HighBytes {
		return
	}
	s.settle()
}

// settle turns the level until it fits the value: another goroutine may have changed that after it was looked at, and then
// whoever acted on the old one acts again. So the last word is about the last value.
func (s *Shared) settle() {
	for {
		v, high := s.value.Load(), s.high.Load()
		switch {
		case !high && v >= s.cfg.HighBytes:
			if s.high.CompareAndSwap(false, true) {
				s.rises.Add(1)
			}
		case high && v <= s.cfg.LowBytes:
			if s.high.CompareAndSwap(true, false) {
				s.wake()
			}
		default:
			return
		}
	}
}

// wake wakes the loops on which channels wait.
func (s *Shared) wake() {
	for _, g := range *s.groups.Load() {
		g.wake()
	}
}

// High tells whether the level is high. Any goroutine.
func (s *Shared) High() bool { return s.high.Load() }

// Value is what Add has summed up. Any goroutine.
func (s *Shared) Value() int64 { return s.value.Load() }

// ReservedBytes is what receives that are armed may still bring, at most. Any goroutine.
func (s *Shared) ReservedBytes() int64 { return s.reserved.Load() }

// Rises is how often the level became high. Any goroutine.
func (s *Shared) Rises() uint64 { return s.rises.Load() }

// reserve answers how much of n may be read now, at least FloorBytes where n is.
func (s *Shared) reserve(n int) int {
	for {
		r := s.reserved.Load()
		room := min(s.cfg.HighBytes/reservable, s.cfg.HighBytes-s.value.Load()) - r
		g := min(int64(n), max(int64(s.cfg.FloorBytes), room/roomShare))
		if s.reserved.CompareAndSwap(r, r+g) {
			return int(g)
		}
	}
}

// join finds or makes the group of a loop. A loop is known by its pool.
func (s *Shared) join(pool *buffer.Pool) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.groups.Load()
	for _, g := range all {
		if g.pool == pool {
			return g
		}
	}
	g := &group{shared: s, pool: pool}
	g.task = func(*pipeline.Context) { g.run() }
	more := append(make([]*group, 0, len(all)+1), all...)
	more = append(more, g)
	s.groups.Store(&more)
	return g
}

// leave takes out a group that nobody is in.
func (s *Shared) leave(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.groups.Load()
	rest := make([]*group, 0, len(all))
	for _, other := range all {
		if other != g {
			rest = append(rest, other)
		}
	}
	s.groups.Store(&rest)
}

// group is what the channels of one loop have in common at one Shared. It belongs to the loop, but for what is said below.
type group struct {
	shared *Shared
	pool   *buffer.Pool
	subs   list // everybody
	queue  list // those who wait, longest first
	agent  *sub // one of subs, through whose channel other goroutines reach the loop

	waiting atomic.Bool // queue is not empty; before that is looked at, shared.high is looked at again
	posted  atomic.Bool // run was posted and has not begun

	mu   sync.Mutex
	ref  pipeline.Ref // the agent's; guarded by mu
	task func(*pipeline.Context)
}

// wake posts run where somebody waits. Any goroutine.
func (g *group) wake() {
	if !g.waiting.Load() || !g.posted.CompareAndSwap(false, true) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ref == nil || g.ref.Execute(g.task) != nil {
		// The agent's channel is closed: its successor looks. Or too many tasks of it wait: the loop looks by itself.
		g.posted.Store(false)
	}
}

// run resumes those who wait longest; the others come in the next turn, when there is still room.
func (g *group) run() {
	g.posted.Store(false) // from here on a change wakes again
	for n := 0; n < g.shared.cfg.ResumesPerTurn && g.queue.first != nil && !g.shared.high.Load(); n++ {
		g.queue.first.fell()
	}
	if g.queue.first != nil && !g.shared.high.Load() {
		g.wake()
	}
}

// appoint makes one of the others the agent.
func (g *group) appoint() {
	g.agent = g.subs.first
	var ref pipeline.Ref
	if g.agent != nil {
		ref = g.agent.h.ctx.Ref()
	}
	g.mu.Lock()
	g.ref = ref
	g.mu.Unlock()
	if g.agent == nil {
		g.shared.leave(g)
		return
	}
	if g.waiting.Load() {
		g.agent.backstop()
		if !g.shared.high.Load() {
			g.wake() // one that came in between found the old agent's channel closed
		}
	}
}

// sub is one Handler's place at one Shared: its node in the lists of the group. It belongs to the Handler's loop.
type sub struct {
	h      *Handler
	shared *Shared
	group  *group

	all, wait links
	timer     pipeline.Timer
	reserved  int
	high      bool // it waits
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
	if s.high {
		s.leaveQueue()
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	g.subs.remove(s, allLinks)
	s.group = nil
	if g.agent == s {
		g.appoint()
	}
}

// sharedHigh looks at the shared levels and waits at those that are high. It answers whether one is.
func (h *Handler) sharedHigh() bool {
	for i := range h.subs {
		if s := &h.subs[i]; !s.high && s.shared.high.Load() {
			s.rose()
		}
	}
	return h.highSubs > 0
}

// rose makes s wait. Whoever makes the level fall looks at waiting after he has changed high, and here high is looked at after
// waiting has changed: one of the two sees the other.
func (s *sub) rose() {
	g := s.group
	if g == nil {
		return
	}
	s.high = true
	s.h.highSubs++
	if g.queue.first == nil {
		g.agent.backstop()
	}
	g.queue.push(s, waitLinks)
	g.waiting.Store(true)
	if !s.shared.high.Load() {
		s.leaveQueue()
	}
}

// fell lets the Handler go on.
func (s *sub) fell() {
	s.leaveQueue()
	if h := s.h; h.level < OverLimit {
		h.settle(h.ctx.Pending()) // its own next event tells: this is another channel's
	}
}

func (s *sub) leaveQueue() {
	s.high = false
	s.h.highSubs--
	g := s.group
	g.queue.remove(s, waitLinks)
	if g.queue.first == nil {
		g.waiting.Store(false)
	}
}

// backstop makes the loop look by itself while somebody waits.
func (s *sub) backstop() {
	if s.timer == nil {
		s.timer = s.h.ctx.NewTimer(func(*pipeline.Context) error {
			if g := s.group; g != nil && g.agent == s && g.queue.first != nil {
				g.run()
				if g.queue.first != nil {
					s.timer.Reset(missedWake)
				}
			}
			return nil
		})
	}
	s.timer.Reset(missedWake)
}

// reserve takes what the next receive may bring and gives back what the last did not.
func (s *sub) reserve(n int) int {
	s.refund()
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
