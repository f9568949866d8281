package overload

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/flow"
)

// ErrConfig is what constructors return for a configuration that makes no sense; wrapped with the values.
var ErrConfig = errors.New("overload: bad configuration")

const (
	// MaxSignals is how many signals a Controller has at most.
	MaxSignals = 16
	// DefaultClasses is how many classes there are where nobody says.
	DefaultClasses = 4
	// MaxClasses is how many classes there are at most, Exempt aside.
	MaxClasses = 64
	// maxCut is the most by which a look divides what is admitted, leastShare what is always left of it.
	maxCut     = 10
	leastShare = 0.001
	// cohorts is how many parts the users of a class are divided into.
	cohorts = 128
)

// Signal is one risk. Read returns how close to its bound something is: 0 is idle, 1 the bound, 2 twice as much as
// there should be. What is NaN or negative counts as 0. Read is called once in an Interval, by whichever goroutine
// asks first, never by two at once; it must be quick and not block.
type Signal struct {
	Name string
	Read func(now time.Duration) float64
}

// Config configures a Controller. The zero value works, though without signals nothing is ever refused.
type Config struct {
	// Signals are looked at together; the highest decides. At most MaxSignals.
	Signals []Signal
	// Classes is how many classes there are: 0 is the most important, Classes-1 goes first; larger ones count as that,
	// and flow.Exempt is never refused. Zero means 4; at most 64.
	Classes int
	// Interval is how often the signals are looked at: the target within which the controller reacts. Zero means 100
	// ms.
	Interval time.Duration
	// Recover is the least time in which a level that refuses all comes down to refusing nothing, once no signal is at
	// its bound. Zero means 500 ms.
	Recover time.Duration
	// Seed salts the hash by which the users of a class are divided, so that nobody chooses a lucky name.
	Seed uint64
}

// Controller decides which requests a server refuses. It has one level for all classes and users: requests above it
// are refused. While a signal is above 1, each Interval takes away of what is admitted what is too much
// (admitted/risk); while all are below, it comes back in steps, ever larger ones, so that it is over within Recover.
// Within the class at the level a part of the users is refused, always the same ones at a level (after DAGOR, Zhou et
// al., SoCC 2018), so that those who are served are served in all of what they ask.
//
// There is one for a server; any goroutine may ask it. Asking is three atomic operations; the first to ask in an
// Interval looks at the signals. It has no goroutine: where nobody asks, nobody is refused. Times are on one clock
// that all share.
type Controller struct {
	cfg     Config
	level   atomic.Uint64 // levels that are refused, from the bottom: 0 to (Classes-1)*cohorts
	due     atomic.Int64  // when to look again
	busy    atomic.Bool   // somebody looks
	top     atomic.Uint64 // Float64bits of the highest risk
	named   atomic.Int32  // its signal; -1: none
	fc      forecast
	asked   [MaxClasses]atomic.Uint64
	refused [MaxClasses]atomic.Uint64

	// Who holds busy has these.
	share float64 // of the requests that is admitted
	step  float64 // the next that comes back
	seen  [MaxClasses]uint64
	rates [MaxClasses]float64 // of the requests of the latest intervals, older ones counting less
}

// Stats is what a Controller tells of itself.
type Stats struct {
	Risk     float64 // the highest, when last looked at
	Signal   string  // whose it is; "" for none
	Refusing float64 // part of the levels, which are classes and the users within, that is refused: 0 to 1
	Asked    []uint64
	Refused  []uint64 // of those asked, by class
}

// New returns a controller that refuses nothing yet. The error wraps ErrConfig.
func New(cfg Config) (*Controller, error) {
	if cfg.Classes == 0 {
		cfg.Classes = DefaultClasses
	}
	if cfg.Interval == 0 {
		cfg.Interval = 100 * time.Millisecond
	}
	if cfg.Recover == 0 {
		cfg.Recover = max(500*time.Millisecond, 5*cfg.Interval)
	}
	if len(cfg.Signals) > MaxSignals || cfg.Classes < 1 || cfg.Classes > MaxClasses || cfg.Interval < 0 ||
		cfg.Recover < cfg.Interval {
		return nil, fmt.Errorf("%w: %d signals, %d classes, interval %v, recovery %v: want at most %d, 1 to %d, "+
			"0 < interval <= recovery", ErrConfig, len(cfg.Signals), cfg.Classes, cfg.Interval, cfg.Recover,
			MaxSignals, MaxClasses)
	}
	for i, s := range cfg.Signals {
		if s.Name == "" || s.Read == nil {
			return nil, fmt.Errorf("%w: signal %d has no name or no Read", ErrConfig, i)
		}
	}
	c := &Controller{cfg: cfg, share: 1}
	c.named.Store(-1)
	c.due.Store(math.MinInt64)
	return c, nil
}

// Admit reports whether a request of that class and user is served, at now. user is any number that stays the same for
// a user, such as a hash of its name or address.
func (c *Controller) Admit(now time.Duration, class flow.Class, user uint64) bool {
	if int64(now) >= c.due.Load() {
		c.look(now)
	}
	if class == flow.Exempt {
		return true
	}
	k := min(int(class), c.cfg.Classes-1)
	c.asked[k].Add(1)
	level := c.level.Load()
	if level == 0 {
		return true
	}
	place := uint64(c.cfg.Classes-1-k)*cohorts + mix(user^c.cfg.Seed)%cohorts // 0 goes first
	if place >= level {
		return true
	}
	c.refused[k].Add(1)
	return false
}

// Busy is Admit with the answer for who is refused: nil for who is not. drain is how long what waits now takes to be
// served, as far as the caller knows, and chance is drawn evenly from [0, 1).
func (c *Controller) Busy(
	now time.Duration, class flow.Class, user uint64, drain time.Duration, chance float64,
) *flow.Busy {
	if c.Admit(now, class, user) {
		return nil
	}
	return &flow.Busy{RetryAfter: flow.RetryHint(max(drain, c.cfg.Interval), chance), Shed: true, Class: class}
}

// Stats is for any goroutine.
func (c *Controller) Stats() Stats {
	s := Stats{
		Risk:     math.Float64frombits(c.top.Load()),
		Refusing: float64(c.level.Load()) / float64(c.levels()),
		Asked:    make([]uint64, c.cfg.Classes),
		Refused:  make([]uint64, c.cfg.Classes),
	}
	if i := c.named.Load(); i >= 0 {
		s.Signal = c.cfg.Signals[i].Name
	}
	for i := range s.Refused {
		s.Asked[i], s.Refused[i] = c.asked[i].Load(), c.refused[i].Load()
	}
	return s
}

// levels is how many there are.
func (c *Controller) levels() int { return c.cfg.Classes * cohorts }

// look reads the signals and moves the level. One looks at a time; who finds another looking goes by the old level.
func (c *Controller) look(now time.Duration) {
	if !c.busy.CompareAndSwap(false, true) {
		return
	}
	defer c.busy.Store(false)
	due := c.due.Load()
	if int64(now) < due {
		return
	}
	idle := 1.0 // intervals since the last look
	if due != math.MinInt64 {
		idle += float64(int64(now)-due) / float64(c.cfg.Interval)
	}
	c.due.Store(int64(now + c.cfg.Interval))
	risk, named := 0.0, -1
	for i, s := range c.cfg.Signals {
		if r := s.Read(now); r > risk {
			risk, named = r, i
		}
	}
	c.top.Store(math.Float64bits(risk))
	c.named.Store(int32(named))
	c.move(risk*c.caution(now), idle)
	c.level.Store(c.place())
}

// move changes the share that is admitted after a risk that was seen, idle intervals after the one before.
func (c *Controller) move(risk, idle float64) {
	steps := max(1, float64(c.cfg.Recover)/float64(c.cfg.Interval))
	switch {
	case risk > 1:
		c.share = max(c.share/min(risk, maxCut), leastShare)
		c.step = 0
	case c.share < 1:
		// 1+2+…+n steps of 2/n² reach 1 in n looks.
		c.step += 2 / (steps * steps)
		c.share = min(1, c.share+c.step*idle)
	}
}

// place returns the level at which the share is admitted if what is asked is spread over classes as it was lately.
func (c *Controller) place() uint64 {
	total := 0.0
	for k := range c.cfg.Classes {
		n := c.asked[k].Load()
		c.rates[k] = c.rates[k]/2 + float64(n-c.seen[k])
		c.seen[k] = n
		total += c.rates[k]
	}
	refuse := (1 - c.share) * total
	level := 0.0
	for k := c.cfg.Classes - 1; k >= 0 && refuse > 0; k-- {
		part := 1.0
		if c.rates[k] > refuse {
			part = refuse / c.rates[k]
		}
		level += part * cohorts
		refuse -= c.rates[k]
	}
	// The last cohort is never refused: something has to tell when it is over.
	return min(uint64(math.Round(level)), uint64(c.levels()-1))
}

// mix spreads a number over all bits (the finaliser of SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
