package watermark

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/buffer"
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
	// leadShare is the part of all that wait by which a loop may be ahead of the longest waiting.
	leadShare = 4
	// leadTimeout is how long a loop waits for another one that is behind. That one may be stuck in a handler.
	leadTimeout = 20 * time.Millisecond
)

// nobody is the ticket of a group in which nobody waits.
const nobody = math.MaxInt64

// SharedConfig configures a Shared. The unit is the caller's, bytes where channels reserve what they read.
type SharedConfig struct {
	// HighBytes is where the level becomes high, at that value, and LowBytes where it becomes normal again.
	// 0 < LowBytes < HighBytes; zero means half of HighBytes.
	HighBytes, LowBytes int64
	// FloorBytes is what a channel may read at a time however little room is left, so that channels that are silent cannot
	// starve the others by what they have reserved. Zero means 2 KiB.
	FloorBytes int
	// ResumesPerTurn is how many of the channels that wait go on in one turn of their loop. Zero means 64.
	ResumesPerTurn int
}

// Shared is a level that many channels on many loops fill: a sink's queue, a pool's memory. While it is high, channels
// that watch it do not read. When it becomes normal they take turns, those that wait longest first, also across loops:
// who has read what one grant allows stands behind all that wait. So each gets its share, whatever the others send.
//
// Whoever queues calls Add(n), whoever has dealt with it Add(-n), from any goroutine. Every receive of a channel
// reserves what it may bring and gives back what did not come. Reservations take no more than a quarter of HighBytes,
// nor than is left of it, and FloorBytes each where that is used up. So if what is added is at most what was read, the
// level and all that can still arrive stay within
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
	waiting  atomic.Int64 // channels in the queues of all groups
	tickets  atomic.Int64 // that were given to them

	groups atomic.Pointer[[]*group] // one a loop; copied on write
	mu     sync.Mutex               // of those who write groups
}

// NewShared returns an empty level. The error wraps ErrConfig.
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

// settle turns the level until it fits the value: another goroutine may have changed that after it was looked at, and
// then whoever acted on the old one acts again. So the last word is about the last value.
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

// wake makes the loops look on which channels wait.
func (s *Shared) wake() {
	for _, g := range *s.groups.Load() {
		g.wake()
	}
}

// High reports whether the level is high. Any goroutine.
func (s *Shared) High() bool { return s.high.Load() }

// Value is what Add has summed up. Any goroutine.
func (s *Shared) Value() int64 { return s.value.Load() }

// ReservedBytes is what has been granted and has not come, at most: of receives that are armed, and of channels that
// were stopped in the middle of one. Any goroutine.
func (s *Shared) ReservedBytes() int64 { return s.reserved.Load() }

// Rises is how often the level became high. Any goroutine.
func (s *Shared) Rises() uint64 { return s.rises.Load() }

// Waiting is how many channels wait, for the level to fall or for their turn. Any goroutine.
func (s *Shared) Waiting() int { return int(s.waiting.Load()) }

// oldest is the ticket of the channel that waits longest.
func (s *Shared) oldest() int64 {
	t := int64(nobody)
	for _, g := range *s.groups.Load() {
		t = min(t, g.head.Load())
	}
	return t
}

// reserve returns how much of n may be read now, at least FloorBytes where n is.
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
	g.head.Store(nobody)
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
