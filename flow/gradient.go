package flow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// GradientConfig configures a Gradient. The zero value works.
type GradientConfig struct {
	// Min is the floor. Zero means 2. Max is the ceiling. Zero means 1000.
	Min, Max int
	// Initial is the first limit. Zero means 10, within the bounds.
	Initial int
	// Tolerance is how many times the base the median may take before the limit shrinks: above 1. Zero means 1.5.
	Tolerance float64
	// Window is the least time between two changes. Zero means 100 ms.
	Window time.Duration
	// Samples is how many requests a window has at least, from 10 to 256. Zero means 50. After ten times Window 10 are
	// enough.
	Samples int
	// ProbeWindows is after how many windows one at Limit/(2*Tolerance) measures the base anew. Zero means 100.
	ProbeWindows int
	// MaxBase bounds the base: an upstream that takes longer is not healthy, however few are under way. Zero: none.
	MaxBase time.Duration
	// Rand, when set, moves each probe by up to 15 %, so that many clients do not probe together.
	Rand *rand.Rand
}

const (
	gradientKeeps   = 256 // samples: the latest of a window
	gradientFew     = 10  // samples are enough for a window that is ten times as long
	gradientUrgent  = 0.5 // no window takes more of the limit than this
	gradientTelling = 0.6 // of the limit before: from such a cut on it shows if it was our queue
	gradientNoise   = 1.1 // times what is expected of half a queue of ours
	gradientDoubt   = 10  // windows until a base that rose is probed
	gradientDrop    = 0.9 // what a refusal or time-out leaves of it, once in a window
)

// Gradient is a Limiter that finds how many requests an upstream works on without queueing them: it compares the
// median time of a window with the base, which is what requests take when few are under way. Above Tolerance times the
// base the limit shrinks in proportion; below, it grows by its square root, as long as at least half of it is in use.
// By Little's law that is the same as growing only while the rate grows: the time stays while concurrency pays in
// rate, and rises where it does not.
//
// What keeps the base true is that it is never learned under the limiter's own queue. It falls with any faster median.
// It rises only where cutting the limit did not make requests faster, so that it is not our queue that makes them
// slow, and at the floor; a probe, a window at a fraction of the limit, soon finds out where that was an error. Only
// requests that began in a window count in it, and one after a cut begins when no more are under way than the limit.
// So neither does the limit creep up with its own delay (Netflix concurrency-limits, issue 134), nor does it stay at
// the floor when the upstream is slower for good.
//
// The queues of others are another matter: who comes to an upstream while others fill it takes their queue for the
// base, as every limiter does that goes by delay (for TCP Vegas: Mo et al., INFOCOM 1999), and in the end all may be
// at Max. Where several share an upstream that does not refuse, set Max to what may harm nobody, or MaxBase to what it
// takes at its best.
type Gradient struct {
	cfg   GradientConfig
	limit float64
	base  float64 // nanoseconds; 0: not known yet

	open    bool // a window is under way
	start   time.Duration
	samples []time.Duration
	seen    int
	used    bool
	dropped bool

	probing  bool
	resting  float64 // limit before the probe
	toProbe  int
	cutFrom  float64 // limit before the cuts of the latest windows; 0: the last one did not cut
	slowThen float64 // median before them
}

var _ Limiter = (*Gradient)(nil)

// NewGradient returns one that knows nothing of its upstream. The error wraps ErrConfig.
func NewGradient(cfg GradientConfig) (*Gradient, error) {
	defaults := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defaults(&cfg.Min, 2)
	defaults(&cfg.Max, max(1000, cfg.Min))
	defaults(&cfg.Initial, min(max(10, cfg.Min), cfg.Max))
	defaults(&cfg.Samples, 50)
	defaults(&cfg.ProbeWindows, 100)
	if cfg.Tolerance == 0 {
		cfg.Tolerance = 1.5
	}
	if cfg.Window == 0 {
		cfg.Window = 100 * time.Millisecond
	}
	if cfg.Min < 1 || cfg.Initial < cfg.Min || cfg.Max < cfg.Initial || cfg.Max > MaxLimit {
		return nil, fmt.Errorf("flow: gradient from %d over %d to %d, want 1 <= min <= initial <= max <= %d: %w",
			cfg.Min, cfg.Initial, cfg.Max, MaxLimit, ErrConfig)
	}
	if !(cfg.Tolerance > 1 && cfg.Tolerance <= 100) || cfg.Window < 0 || cfg.Window > time.Hour || cfg.MaxBase < 0 ||
		cfg.Samples < gradientFew || cfg.Samples > gradientKeeps || cfg.ProbeWindows < 2 {
		return nil, fmt.Errorf("flow: gradient with tolerance %v, window %v, %d samples, probe after %d windows, "+
			"base up to %v, want 1 < tolerance <= 100, up to 1h, %d to %d, at least 2, not negative: %w", cfg.Tolerance, cfg.Window,
			cfg.Samples, cfg.ProbeWindows, cfg.MaxBase, gradientFew, gradientKeeps, ErrConfig)
	}
	g := &Gradient{cfg: cfg, limit: float64(cfg.Initial), samples: make([]time.Duration, 0, gradientKeeps)}
	g.plan()
	return g, nil
}

// Limit is how many may be under way.
func (g *Gradient) Limit() int { return int(g.limit) }

// Base is what a request takes that does not wait, as far as is known; 0 before the first window.
func (g *Gradient) Base() time.Duration { return time.Duration(g.base) }

// Done learns from one that has ended. A clock that goes backwards delays what is learned.
func (g *Gradient) Done(now, took time.Duration, inFlight int, dropped bool) {
	if !g.open {
		if inFlight-1 > int(g.limit) && !dropped {
			return // those of a larger limit have not ended
		}
		g.begin(now)
	}
	if 2*inFlight >= int(g.limit) {
		g.used = true
	}
	if dropped {
		if !g.dropped {
			g.dropped = true
			g.set(g.limit * gradientDrop)
		}
	} else if took >= 0 && now-took >= g.start {
		if len(g.samples) < gradientKeeps {
			g.samples = append(g.samples, took)
		} else {
			g.samples[g.seen%gradientKeeps] = took
		}
		g.seen++
	}
	elapsed := now - g.start
	if elapsed < g.cfg.Window || g.seen < g.cfg.Samples && (elapsed < 10*g.cfg.Window || g.seen < gradientFew) {
		if elapsed >= 10*g.cfg.Window {
			g.dropped = false // nothing but refusals: the limit goes on falling
		}
		return
	}
	slices.Sort(g.samples)
	g.learn(float64(g.samples[len(g.samples)/2]))
	g.open = false
}

// begin begins a window.
func (g *Gradient) begin(now time.Duration) {
	g.open, g.start, g.samples, g.seen, g.used, g.dropped = true, now, g.samples[:0], 0, false, false
}

// learn changes the limit after a window with that median.
func (g *Gradient) learn(median float64) {
	median = max(median, 1)
	switch {
	case g.base == 0:
		g.base = median
	case int(g.limit) <= g.cfg.Min && !g.probing && !g.dropped && median > g.cfg.Tolerance*g.base:
		g.base = min(median, 2*g.base) // as good as not our queue
		g.toProbe = min(g.toProbe, gradientDoubt)
	case median < g.base/2, g.probing:
		g.base = min(g.base, median) // a faster upstream
	case median < g.base:
		g.base += 0.2 * (median - g.base) // or luck
	case g.cutFrom > 0 && g.limit <= gradientTelling*g.cutFrom && median > g.cfg.Tolerance*g.base &&
		median > g.slowThen*(1+2*g.limit/g.cutFrom)/3*gradientNoise:
		g.base = median // cutting did not help: it is not our queue. A probe will soon look again.
		g.toProbe = min(g.toProbe, gradientDoubt)
		g.cutFrom = 0
	}
	if g.cfg.MaxBase > 0 {
		g.base = min(g.base, float64(g.cfg.MaxBase))
	}
	if g.probing {
		g.probing = false
		g.set(g.resting)
		return
	}
	g.toProbe--
	share := g.cfg.Tolerance * g.base / median
	switch {
	case share < 1:
		if g.cutFrom == 0 {
			g.cutFrom, g.slowThen = g.limit, median
		}
		g.set(g.limit * max(share, gradientUrgent))
		return // probing has time
	case g.used && !g.dropped:
		g.set(g.limit + math.Sqrt(g.limit))
	}
	g.cutFrom = 0
	if g.toProbe <= 0 {
		g.plan()
		g.probing, g.resting = true, g.limit
		// Below 1/Tolerance: at that, the base which led to the limit would be found again.
		g.set(g.limit / (2 * g.cfg.Tolerance))
	}
}

// plan sets when to probe next.
func (g *Gradient) plan() {
	g.toProbe = g.cfg.ProbeWindows
	if g.cfg.Rand != nil {
		g.toProbe = int(float64(g.toProbe) * (0.85 + 0.3*g.cfg.Rand.Float64()))
	}
}

// set sets the limit within its bounds.
func (g *Gradient) set(limit float64) {
	g.limit = min(max(limit, float64(g.cfg.Min)), float64(g.cfg.Max))
}
