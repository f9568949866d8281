package flow_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/testenv"
)

// seeds returns how many seeds of a model are tried.
func seeds(full int) uint64 {
	if !testenv.Thorough() {
		full /= 10
	}
	return uint64(full)
}

// From every state that small marks allow, each value turns the level as its configuration says.
func TestLevelObeysItsMarksFromEveryState(t *testing.T) {
	const most = 8
	for high := 2; high < most; high++ {
		for low := 1; low < high; low++ {
			for _, strict := range []bool{false, true} {
				for from := range most * 2 { // each value, reached from below and from above
					l, err := flow.NewLevel(flow.LevelConfig{High: high, Low: low, Strict: strict})
					require.NoError(t, err)
					if from >= most {
						l.Set(most)
					}
					l.Set(from % most)
					for to := range most + 1 {
						next := l
						want, isHigh := flow.Stayed, l.High()
						switch {
						case !isHigh && (to > high || to == high && !strict):
							want, isHigh = flow.Rose, true
						case isHigh && (to < low || to == low && !strict):
							want, isHigh = flow.Fell, false
						}
						require.Equal(t, want, next.Set(to), "marks %d, %d, strict %t: %d (high %t) to %d",
							high, low, strict, l.Value(), l.High(), to)
						require.Equal(t, isHigh, next.High())
						require.Equal(t, to, next.Value())
					}
				}
			}
		}
	}
}

// dam is a Level with writers and drainers that know of it by its crossings only.
type dam struct {
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	level     flow.Level
	high, low int // the values from which on, and down to which, it has to be high and normal
	strict    bool

	writers  []writer
	drainers []drainer
	value    int
	rises    int
	falls    int
}

// writer stops when it hears of a rise, which may be a few writes later, and goes on when it hears of a fall.
type writer struct {
	rest   int // to write
	news   []flow.Crossing
	paused bool
}

// drainer takes always, or when it is lazy from a rise to the next fall only.
type drainer struct{ lazy, resting bool }

func newDam(t *testing.T, seed uint64) *dam {
	d := &dam{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2))}
	size := 1 + d.rng.IntN(8)
	if d.rng.IntN(4) == 0 {
		size = 1000
	}
	low := 1 + d.rng.IntN(size)
	high := low + 1 + d.rng.IntN(size)
	d.strict = d.rng.IntN(2) == 0
	level, err := flow.NewLevel(flow.LevelConfig{High: high, Low: low, Strict: d.strict})
	require.NoError(t, err)
	d.level, d.high, d.low = level, high, low
	if d.strict {
		d.high, d.low = high+1, low-1
	}
	for range 1 + d.rng.IntN(4) {
		d.writers = append(d.writers, writer{rest: d.rng.IntN(60 * high)})
	}
	for range 1 + d.rng.IntN(3) {
		lazy := d.rng.IntN(2) == 0
		d.drainers = append(d.drainers, drainer{lazy: lazy, resting: lazy})
	}
	return d
}

// change tells everybody what became of it, and checks it.
func (d *dam) change(by int) {
	d.value += by
	c := flow.Stayed
	if d.rng.IntN(3) > 0 {
		c = d.level.Add(by)
	} else {
		c = d.level.Set(d.value)
	}
	switch c {
	case flow.Rose:
		d.rises++
	case flow.Fell:
		d.falls++
	}
	for i := range d.drainers {
		if dr := &d.drainers[i]; dr.lazy && c != flow.Stayed {
			dr.resting = c == flow.Fell
		}
	}
	for i := range d.writers {
		if c != flow.Stayed {
			d.writers[i].news = append(d.writers[i].news, c)
		}
	}
	paused := d.rises > d.falls
	d.check(d.rises == d.falls || d.rises == d.falls+1, "crossings alternate: %d rises, %d falls", d.rises, d.falls)
	d.check(paused == d.level.High(), "what was told is what is: paused %t", paused)
	d.check(d.level.Value() == d.value && d.value >= 0, "the sum of what was added is %d", d.value)
	d.check(d.value < d.high || paused, "never going on from %d on", d.high)
	d.check(d.value > d.low || !paused, "never paused down to %d", d.low)
}

func (d *dam) check(ok bool, what string, args ...any) {
	if !ok {
		d.t.Helper()
		d.t.Fatalf("seed %d, value %d of marks %d, %d: "+what, append([]any{d.seed, d.value, d.high, d.low}, args...)...)
	}
}

// write lets a writer hear the news or write. It returns false when the writer can do neither.
func (d *dam) write(w *writer) bool {
	switch {
	case len(w.news) > 0 && (w.paused || w.rest == 0 || d.rng.IntN(2) == 0):
		w.paused = w.news[0] == flow.Rose
		w.news = w.news[1:]
	case !w.paused && w.rest > 0:
		n := d.amount(min(w.rest, 2*d.high), d.high-d.value)
		w.rest -= n
		d.change(n)
	default:
		return false
	}
	return true
}

func (d *dam) drain(dr *drainer) bool {
	if dr.resting || d.value == 0 {
		return false
	}
	d.change(-d.amount(d.value, d.value-d.low))
	return true
}

// amount is at most most, at least 1, and often such that a mark is just reached or just not.
func (d *dam) amount(most, toMark int) int {
	n := 1 + d.rng.IntN(most)
	if d.rng.IntN(2) == 0 {
		n = toMark - 1 + d.rng.IntN(3)
	}
	return max(1, min(n, most))
}

// Writers that stop at a rise and drainers that may sleep until one: nobody waits for ever, whoever comes first.
func TestLevelKeepsWritersAndDrainersGoing(t *testing.T) {
	rises := 0
	for seed := range seeds(5000) {
		d := newDam(t, seed)
		idle := 0
		for n := len(d.writers) + len(d.drainers); idle < 50*n; {
			i := d.rng.IntN(n)
			moved := false
			if i < len(d.writers) {
				moved = d.write(&d.writers[i])
			} else {
				moved = d.drain(&d.drainers[i-len(d.writers)])
			}
			if idle++; moved {
				idle = 0
			}
		}
		for i, w := range d.writers { // nobody moves any more
			d.check(w.rest == 0 && !w.paused, "writer %d waits for ever with %d to write", i, w.rest)
		}
		d.check(!d.level.High(), "it fell at last")
		rises += d.rises
	}
	assert.Greater(t, rises, 10*int(seeds(5000)), "and levels did rise")
}

// window checks grants against what may be granted in any stretch of time: the capacity, and the rate times its length.
// used is the largest excess over the rate of any stretch that ends now, in billionths of tokens.
type window struct {
	rate, capacity, used int64
	at                   time.Duration
}

// grant reports whether n more tokens, or that many back when negative, are within the bound.
func (w *window) grant(now time.Duration, n int64) bool {
	if now > w.at {
		w.used = max(0, w.used-w.rate*int64(now-w.at))
		w.at = now
	}
	w.used += n * 1e9
	return w.used <= w.capacity*1e9
}

func TestTokenBucketGrantsNoMoreThanItsRateInAnyStretchOfTime(t *testing.T) {
	for seed := range seeds(2000) {
		rng := rand.New(rand.NewPCG(seed, 4))
		rate, capacity := 1+rng.Int64N(1<<rng.IntN(21)), 1+rng.Int64N(1<<rng.IntN(14))
		b := newBucket(t, rate, capacity, 0)
		w := window{rate: rate, capacity: capacity}
		now := time.Duration(0)
		for range 500 {
			now = max(0, now+irregular(rng))
			n := rng.Int64N(2 * capacity)
			switch rng.IntN(8) {
			case 0:
				b.Charge(now, n)
				if !w.grant(now, 0) {
					t.Fatalf("seed %d", seed)
				}
				continue
			case 1:
				n = math.MaxInt64
			}
			g := b.Take(now, n)
			ok := w.grant(now, g)
			if rng.IntN(4) == 0 {
				back := rng.Int64N(g + 1)
				b.Refund(back)
				ok = ok && w.grant(now, -back)
			}
			if !ok {
				t.Fatalf("seed %d: %d granted at %v: %d billionths too many", seed, g, now, w.used-w.capacity*1e9)
			}
		}
	}
}

// irregular is how far a clock goes until the next look: mostly nanoseconds to milliseconds, sometimes not at all or
// back.
func irregular(rng *rand.Rand) time.Duration {
	if rng.IntN(16) == 0 {
		return -time.Duration(rng.Int64N(int64(time.Second)))
	}
	return time.Duration(rng.Int64N(1 << rng.IntN(25)))
}

// Takes, overshoots and refunds at millions of odd moments add up to what the time was worth, to the last token: a
// bucket that is never full loses nothing, and debt is paid back with exactly what it was.
func TestTokenBucketLosesNothingInMillionsOfLooks(t *testing.T) {
	looks := 0
	for seed := range seeds(200) {
		rng := rand.New(rand.NewPCG(seed, 6))
		rate := 1 + rng.Int64N(1<<(1+rng.IntN(31)))
		b := newBucket(t, rate, math.MaxInt64, 0)
		const debt = 1 << 20
		b.Take(0, math.MaxInt64)
		b.Charge(0, debt)
		spent, now := int64(debt), time.Duration(0)
		worth := func() int64 { // rate × now / 1e9, rounded down
			hi, lo := bits.Mul64(uint64(rate), uint64(now))
			whole, _ := bits.Div64(hi, lo, 1e9)
			return int64(whole)
		}
		for range 10_000 {
			now += time.Duration(rng.Int64N(1 << (1 + rng.IntN(20))))
			switch rng.IntN(4) {
			case 0:
				n := rng.Int64N(1000)
				b.Charge(now, n)
				spent += n
			case 1:
				g := b.Take(now, rng.Int64N(1000))
				b.Refund(g / 2)
				spent += g - g/2
			default:
				spent += b.Take(now, math.MaxInt64)
			}
			looks++
			if have := b.Available(now); have != worth()-spent {
				t.Fatalf("seed %d: rate %d, after %v: %d there, want %d of %d", seed, rate, now, have, worth()-spent, worth())
			}
		}
	}
	assert.Equal(t, 10_000*int(seeds(200)), looks)
}

func TestTokenBucketHasTheTokensAfterItsWaitAndNotANanosecondBefore(t *testing.T) {
	waits := 0
	for seed := range seeds(5000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		any := func() int64 { return 1 + int64(rng.Uint64()>>1)>>rng.IntN(63)>>1 }
		rate, capacity := any(), any()
		start := time.Duration(rng.Int64()) - math.MaxInt64/2
		b, now := newBucket(t, rate, capacity, start), start
		for range 20 {
			switch rng.IntN(4) {
			case 0:
				b.Take(now, any())
			case 1:
				b.Take(now, math.MaxInt64)
			case 2:
				b.Charge(now, any()>>20)
			default:
				b.Refund(any() >> 40)
			}
			n := any()
			have, wait := *b, b.Wait(now, n)
			if wait == 0 {
				require.GreaterOrEqual(t, b.Available(now), min(n, capacity), "seed %d", seed)
			} else if wait < math.MaxInt64-max(0, now) {
				waits++
				before, at := have, have
				require.Less(t, before.Available(now+wait-1), min(n, capacity), "seed %d: wait of %v", seed, wait)
				require.GreaterOrEqual(t, at.Available(now+wait), min(n, capacity), "seed %d: wait of %v", seed, wait)
				require.Zero(t, at.Wait(now+wait, n))
			}
			if step := time.Duration(any() >> 10); now < math.MaxInt64-step {
				now += step
			}
		}
	}
	assert.Greater(t, waits, 2*int(seeds(5000)))
}

func TestTokenBucketOnAClockThatDoesNotGoSteadily(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, tc := range []struct {
		name  string
		steps []time.Duration // between looks, each of which takes all there is
		want  []int64
	}{
		{"it stands still", []time.Duration{0, 0, 0}, []int64{100, 0, 0}},
		{"it jumps forward by years", []time.Duration{0, 200 * year, 0, time.Millisecond}, []int64{100, 100, 0, 1}},
		{
			"it goes backwards",
			[]time.Duration{0, -year, year - time.Millisecond, 2 * time.Millisecond},
			[]int64{100, 0, 0, 1},
		},
		{
			"it comes back from a jump",
			[]time.Duration{0, year, -year, year - 1, 1 + time.Millisecond},
			[]int64{100, 100, 0, 0, 1},
		},
		{"it swings", []time.Duration{0, 9_999_999, -9_999_999, 10_000_000, -1, 1}, []int64{100, 9, 0, 1, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, now := newBucket(t, 1000, 100, 0), time.Duration(0)
			for i, step := range tc.steps {
				now += step
				assert.Equal(t, tc.want[i], b.Take(now, math.MaxInt64), "look %d", i)
			}
		})
	}
}

// However chance shortens the delays and whenever it is reset, a Backoff climbs the same steps.
func TestBackoffClimbsItsStepsWhateverChanceSays(t *testing.T) {
	for seed := range seeds(2000) {
		rng := rand.New(rand.NewPCG(seed, 8))
		initial := time.Duration(1 + rng.Int64N(1<<(1+rng.IntN(40))))
		longest := initial
		if rng.IntN(4) > 0 {
			longest += time.Duration(rng.Int64() >> rng.IntN(62) >> 1)
		}
		cfg := flow.BackoffConfig{Initial: initial, Max: longest, Jitter: 1 - rng.Float64(), Rand: rng}
		b, err := flow.NewBackoff(cfg)
		require.NoError(t, err)
		step := initial
		for range 100 {
			if rng.IntN(20) == 0 {
				b.Reset()
				step = initial
			}
			d := b.Next()
			least := step - min(step, time.Duration(cfg.Jitter*float64(step)))
			if d < least || d > step {
				t.Fatalf("seed %d: delay %d out of [%d, %d], %+v", seed, d, least, step, cfg)
			}
			if step = 2 * step; step <= 0 || step > longest {
				step = longest
			}
		}
	}
}
