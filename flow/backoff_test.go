package flow_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
)

func TestBackoffConfigIsValidated(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  flow.BackoffConfig
		ok   bool
	}{
		{"zero", flow.BackoffConfig{}, true},
		{"constant", flow.BackoffConfig{Initial: 1, Max: 1}, true},
		{"max below initial", flow.BackoffConfig{Initial: 2, Max: 1}, false},
		{"initial above the default max", flow.BackoffConfig{Initial: time.Minute}, true},
		{"negative", flow.BackoffConfig{Initial: -1}, false},
		{"negative max", flow.BackoffConfig{Max: -1}, false},
		{"all chance", flow.BackoffConfig{Jitter: 1}, true},
		{"more than all", flow.BackoffConfig{Jitter: math.Nextafter(1, 2)}, false},
		{"negative jitter", flow.BackoffConfig{Jitter: -0.1}, false},
		{"no number", flow.BackoffConfig{Jitter: math.NaN()}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := flow.NewBackoff(tc.cfg)
			if tc.ok {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, flow.ErrConfig)
			}
		})
	}
}

func TestBackoffDoublesUpToItsMax(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name string
		cfg  flow.BackoffConfig
		want []time.Duration
	}{
		{"default", flow.BackoffConfig{}, []time.Duration{
			50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms,
			3200 * ms, 5000 * ms, 5000 * ms,
		}},
		{"max is on the way", flow.BackoffConfig{Initial: 1, Max: 4}, []time.Duration{1, 2, 4, 4}},
		{"max is just below", flow.BackoffConfig{Initial: 1, Max: 3}, []time.Duration{1, 2, 3, 3}},
		{"max is just above", flow.BackoffConfig{Initial: 1, Max: 5}, []time.Duration{1, 2, 4, 5, 5}},
		{"constant", flow.BackoffConfig{Initial: 7, Max: 7}, []time.Duration{7, 7, 7}},
		{
			"no overflow",
			flow.BackoffConfig{Initial: math.MaxInt64/2 + 1, Max: math.MaxInt64},
			[]time.Duration{math.MaxInt64/2 + 1, math.MaxInt64, math.MaxInt64},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := flow.NewBackoff(tc.cfg)
			require.NoError(t, err)
			for round := range 2 {
				for i, want := range tc.want {
					assert.Equal(t, want, b.Next(), "round %d, delay %d", round, i)
				}
				b.Reset()
			}
		})
	}
}

func TestBackoffStaysAtItsMax(t *testing.T) {
	b, err := flow.NewBackoff(flow.BackoffConfig{})
	require.NoError(t, err)
	last := time.Duration(0)
	for range 10_000 {
		d := b.Next()
		require.GreaterOrEqual(t, d, last)
		require.LessOrEqual(t, d, 5*time.Second)
		last = d
	}
	assert.Equal(t, 5*time.Second, last)
}

func TestBackoffJitterStaysInItsRangeAndFillsIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		jitter float64
		d      time.Duration
		from   float64 // of d
	}{
		{"full by default", 0, time.Second, 0},
		{"full", 1, time.Second, 0},
		{"half", 0.5, time.Second, 0.5},
		{"a tenth", 0.1, time.Second, 0.9},
		{"full of the longest", 1, math.MaxInt64, 0},
		{"nearly full of the longest", math.Nextafter(1, 0), math.MaxInt64, 0},
		{"half of the longest", 0.5, math.MaxInt64, 0.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 5))
			b, err := flow.NewBackoff(flow.BackoffConfig{Initial: tc.d, Max: tc.d, Jitter: tc.jitter, Rand: rng})
			require.NoError(t, err)
			low, high, sum := math.Inf(1), 0.0, 0.0
			const n = 10_000
			for range n {
				d := b.Next()
				require.GreaterOrEqual(t, d, time.Duration(0))
				require.LessOrEqual(t, d, tc.d)
				part := float64(d) / float64(tc.d)
				low, high, sum = min(low, part), max(high, part), sum+part
			}
			span := 1 - tc.from
			assert.GreaterOrEqual(t, low, tc.from-1e-9)
			assert.InDelta(t, tc.from, low, span/100)
			assert.InDelta(t, 1, high, span/100)
			assert.InDelta(t, tc.from+span/2, sum/n, span/50, "even")
		})
	}
}

func TestBackoffWithOneSeedIsTheSame(t *testing.T) {
	delays := func() (out []time.Duration) {
		b, err := flow.NewBackoff(flow.BackoffConfig{Rand: rand.New(rand.NewPCG(7, 7))})
		require.NoError(t, err)
		for range 20 {
			out = append(out, b.Next())
		}
		return out
	}
	assert.Equal(t, delays(), delays())
}

func TestBackoffOfTheLeastDelay(t *testing.T) {
	b, err := flow.NewBackoff(flow.BackoffConfig{Initial: 1, Max: 1, Rand: rand.New(rand.NewPCG(1, 1))})
	require.NoError(t, err)
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[b.Next()] = true
	}
	assert.Equal(t, map[time.Duration]bool{0: true, 1: true}, seen)
}
