package flow_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
)

// upstream serves requests in their order with some workers, whose service times are exponential. Clients always have
// a request to send, as many as their limiter lets them.
type upstream struct {
	rng     *rand.Rand
	now     time.Duration
	service time.Duration
	workers []time.Duration // busy until
	ends    ends
	timeout time.Duration
	refuse  int // more than that in the upstream are refused; 0: none
	clients []*client
}

type client struct {
	limiter  flow.Limiter
	inFlight int
	demand   int // how many it wants to have under way
	done     int
}

type end struct {
	at, began time.Duration
	c         *client
	dropped   bool
}

type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at < e[j].at }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func newUpstream(seed uint64, workers int, service time.Duration, limiters ...flow.Limiter) *upstream {
	u := &upstream{
		rng: rand.New(rand.NewPCG(seed, 1)), service: service, workers: make([]time.Duration, workers),
		timeout: math.MaxInt64, now: time.Hour,
	}
	for _, l := range limiters {
		u.clients = append(u.clients, &client{limiter: l, demand: math.MaxInt})
	}
	return u
}

// run lets d pass and returns how many were served in it.
func (u *upstream) run(d time.Duration) (done int) {
	for _, c := range u.clients {
		c.done = 0
	}
	until := u.now + d
	for u.fill(); len(u.ends) > 0 && u.ends[0].at <= until; u.fill() {
		e := heap.Pop(&u.ends).(end)
		u.now = e.at
		if !e.dropped {
			e.c.done++
			done++
		}
		e.c.limiter.Done(u.now, u.now-e.began, e.c.inFlight, e.dropped)
		e.c.inFlight--
	}
	u.now = until
	return done
}

// typicalLimit is the median of the first client's limits over some time: a probe or a loss does not show.
func (u *upstream) typicalLimit() int {
	var limits []int
	for range 21 {
		u.run(200 * time.Millisecond)
		limits = append(limits, u.clients[0].limiter.Limit())
	}
	slices.Sort(limits)
	return limits[10]
}

func (u *upstream) fill() {
	for progress := true; progress; {
		progress = false
		for _, c := range u.clients {
			if c.inFlight < min(c.limiter.Limit(), c.demand) {
				u.send(c)
				progress = true
			}
		}
	}
}

func (u *upstream) send(c *client) {
	c.inFlight++
	if u.refuse > 0 && len(u.ends) >= u.refuse {
		heap.Push(&u.ends, end{u.now + time.Millisecond, u.now, c, true})
		return
	}
	first := 0
	for i, busy := range u.workers {
		if busy < u.workers[first] {
			first = i
		}
	}
	at := max(u.now, u.workers[first]) + time.Duration(u.rng.ExpFloat64()*float64(u.service))
	if at-u.now > u.timeout {
		heap.Push(&u.ends, end{u.now + u.timeout, u.now, c, true})
		return
	}
	u.workers[first] = at
	heap.Push(&u.ends, end{at, u.now, c, false})
}

func newGradient(t testing.TB, seed uint64) *flow.Gradient {
	t.Helper()
	g, err := flow.NewGradient(flow.GradientConfig{Rand: rand.New(rand.NewPCG(seed, 2))})
	require.NoError(t, err)
	return g
}

func newWindow(t testing.TB, cfg flow.WindowConfig) *flow.Window {
	t.Helper()
	w, err := flow.NewWindow(cfg)
	require.NoError(t, err)
	return w
}

func TestGradientFindsTheUpstreamsCapacityAndDoesNotCreep(t *testing.T) {
	for _, workers := range []int{1, 4, 32, 200} {
		for seed := range uint64(4) {
			g := newGradient(t, seed)
			u := newUpstream(seed, workers, 5*time.Millisecond, g)
			u.run(10 * time.Second) // from 10 to its place
			for range max(2, 30/workers) {
				done := u.run(10 * time.Second)
				peak := float64(workers) * 10 / 0.005
				if workers > 1 { // two are the least, so one worker always has a queue
					assert.Less(t, float64(g.Limit()), 4*float64(workers)+4, "creeps: workers %d, seed %d", workers, seed)
				}
				assert.Greater(t, float64(done), 0.88*peak, "workers %d, seed %d, limit %d", workers, seed, g.Limit())
			}
		}
	}
}

func TestGradientFollowsTenfoldSteps(t *testing.T) {
	for seed := range uint64(10) {
		g := newGradient(t, seed)
		u := newUpstream(seed, 8, 5*time.Millisecond, g)
		for i, service := range []time.Duration{5, 50, 5, 50, 5} {
			u.service = service * time.Millisecond
			u.run(10 * time.Second)
			done := u.run(20 * time.Second)
			assert.Greater(t, float64(done), 0.7*8*20/u.service.Seconds(), "step %d, seed %d, limit %d", i, seed, g.Limit())
			assert.Less(t, g.Limit(), 40, "step %d, seed %d", i, seed)
		}
	}
}

// MaxBase is what keeps who comes late from taking the other's queue for the base.
func TestLimitersShareAnUpstreamFairly(t *testing.T) {
	for name, limiter := range map[string]func(seed uint64) flow.Limiter{
		"window": func(uint64) flow.Limiter { return newWindow(t, flow.WindowConfig{}) },
		"gradient": func(seed uint64) flow.Limiter {
			g, err := flow.NewGradient(flow.GradientConfig{
				MaxBase: 5 * time.Millisecond, Rand: rand.New(rand.NewPCG(seed, 2)),
			})
			require.NoError(t, err)
			return g
		},
	} {
		for seed := range uint64(3) {
			u := newUpstream(seed, 16, 5*time.Millisecond, limiter(seed))
			u.refuse = 64
			u.run(10 * time.Second)
			u.clients = append(u.clients, &client{limiter: limiter(seed + 100), demand: math.MaxInt})
			u.run(30 * time.Second) // to come to a share of its own
			total := u.run(60 * time.Second)
			assert.Greater(t, float64(total), 0.9*16*60/0.005, "%s, seed %d", name, seed)
			for i, c := range u.clients {
				assert.Greater(t, float64(c.done), 0.25*float64(total), "%s, client %d, seed %d", name, i, seed)
			}
		}
	}
}

func TestLimitersDoNotGrowUnused(t *testing.T) {
	for name, l := range map[string]flow.Limiter{
		"gradient": newGradient(t, 1), "window": newWindow(t, flow.WindowConfig{}),
	} {
		u := newUpstream(1, 100, 5*time.Millisecond, l)
		u.clients[0].demand = 4 // of 10: less than half
		u.run(20 * time.Second)
		assert.LessOrEqual(t, l.Limit(), 10, name)
		u.clients[0].demand = math.MaxInt
		u.run(20 * time.Second)
		assert.Greater(t, l.Limit(), 50, name)
	}
}

func TestLimitersFallOnRefusalsAndComeBack(t *testing.T) {
	for name, l := range map[string]flow.Limiter{
		"gradient": newGradient(t, 1), "window": newWindow(t, flow.WindowConfig{}),
	} {
		u := newUpstream(1, 32, 5*time.Millisecond, l)
		u.refuse = 48
		u.run(20 * time.Second)
		assert.InDelta(t, 40, u.typicalLimit(), 20, name)
		u.service = time.Second // of which nothing ends in time
		u.timeout = time.Millisecond
		u.run(20 * time.Second)
		assert.LessOrEqual(t, l.Limit(), 3, "%s: nothing but time-outs", name)
		assert.GreaterOrEqual(t, l.Limit(), 1, name)
		u.service, u.timeout = 5*time.Millisecond, math.MaxInt64
		u.run(20 * time.Second)
		assert.InDelta(t, 40, u.typicalLimit(), 20, "%s: it recovers", name)
	}
}

func TestWindowPhases(t *testing.T) {
	w := newWindow(t, flow.WindowConfig{Initial: 4, Max: 100, Backoff: 0.5})
	done := func(n int, dropped bool) {
		for range n {
			w.Done(0, 0, w.Limit(), dropped)
		}
	}
	done(4, false)
	assert.Equal(t, 8, w.Limit(), "slow start doubles")
	w.Done(0, 0, 3, false)
	assert.Equal(t, 8, w.Limit(), "less than half is in use")
	w.Done(0, 0, 4, false)
	assert.Equal(t, 9, w.Limit(), "half is")
	done(9, true)
	assert.Equal(t, 4, w.Limit(), "nine losses of one flight are one")
	done(5, false)
	assert.Equal(t, 5, w.Limit(), "avoidance: recovery has ended, and one is added a round trip")
	done(1, true)
	assert.Equal(t, 2, w.Limit())
	done(50, true)
	assert.Equal(t, 1, w.Limit(), "the least")
	done(20_000, false)
	assert.Equal(t, 100, w.Limit(), "the cap")
}

func TestLimitersDoNotDependOnTheClocksOrigin(t *testing.T) {
	for name, make := range map[string]func() flow.Limiter{
		"gradient": func() flow.Limiter { return newGradient(t, 3) },
		"window":   func() flow.Limiter { return newWindow(t, flow.WindowConfig{}) },
	} {
		var limits []int
		for _, origin := range []time.Duration{-time.Hour, 0, 1000 * time.Hour} {
			l := make()
			u := newUpstream(3, 8, 5*time.Millisecond, l)
			u.now = origin
			for i := range u.workers {
				u.workers[i] = origin
			}
			u.run(5 * time.Second)
			limits = append(limits, l.Limit())
		}
		assert.Equal(t, limits[0], limits[1], name)
		assert.Equal(t, limits[0], limits[2], name)
	}
}

func TestLimitersAreBounded(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  func() error
		ok   bool
	}{
		{"fixed 0", func() error { _, err := flow.NewFixed(0); return err }, false},
		{"fixed 1", func() error { _, err := flow.NewFixed(1); return err }, true},
		{"fixed at the most", func() error { _, err := flow.NewFixed(flow.MaxLimit); return err }, true},
		{"fixed above", func() error { _, err := flow.NewFixed(flow.MaxLimit + 1); return err }, false},
		{"window above", windowErr(flow.WindowConfig{Max: flow.MaxLimit + 1}), false},
		{"window at the most", windowErr(flow.WindowConfig{Max: flow.MaxLimit}), true},
		{"window that starts above its max", windowErr(flow.WindowConfig{Initial: 11, Max: 10}), false},
		{"window that starts at its max", windowErr(flow.WindowConfig{Initial: 10, Max: 10}), true},
		{"window that backs off to nothing", windowErr(flow.WindowConfig{Backoff: -1}), false},
		{"window that does not back off", windowErr(flow.WindowConfig{Backoff: 1}), false},
		{"gradient above", gradientErr(flow.GradientConfig{Max: flow.MaxLimit + 1}), false},
		{"gradient with floor above ceiling", gradientErr(flow.GradientConfig{Min: 5, Max: 4}), false},
		{"gradient with nowhere to go", gradientErr(flow.GradientConfig{Min: 5, Max: 5}), true},
		{"gradient with 9 samples", gradientErr(flow.GradientConfig{Samples: 9}), false},
		{"gradient with 10 samples", gradientErr(flow.GradientConfig{Samples: 10}), true},
		{"gradient with 256 samples", gradientErr(flow.GradientConfig{Samples: 256}), true},
		{"gradient with 257 samples", gradientErr(flow.GradientConfig{Samples: 257}), false},
		{"gradient that tolerates nothing", gradientErr(flow.GradientConfig{Tolerance: 1}), false},
		{"gradient that tolerates NaN", gradientErr(flow.GradientConfig{Tolerance: math.NaN()}), false},
		{"gradient always probing", gradientErr(flow.GradientConfig{ProbeWindows: 1}), false},
		{"CoDel whose target is above its interval", codelErr(flow.CoDelConfig{Target: 2, Interval: 1}), false},
		{"CoDel whose target is its interval", codelErr(flow.CoDelConfig{Target: 1, Interval: 1}), true},
	} {
		if tc.ok {
			assert.NoError(t, tc.err(), tc.name)
		} else {
			assert.ErrorIs(t, tc.err(), flow.ErrConfig, tc.name)
		}
	}
}

func windowErr(cfg flow.WindowConfig) func() error {
	return func() error { _, err := flow.NewWindow(cfg); return err }
}

func gradientErr(cfg flow.GradientConfig) func() error {
	return func() error { _, err := flow.NewGradient(cfg); return err }
}

func codelErr(cfg flow.CoDelConfig) func() error {
	return func() error { _, err := flow.NewCoDel(cfg); return err }
}
