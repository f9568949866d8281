package flow_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/invariants"
)

func TestLevelConfigIsValidated(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  flow.LevelConfig
		ok   bool
	}{
		{"the least", flow.LevelConfig{High: 2, Low: 1}, true},
		{"the least, strict", flow.LevelConfig{High: 2, Low: 1, Strict: true}, true},
		{"the largest", flow.LevelConfig{High: math.MaxInt, Low: math.MaxInt - 1}, true},
		{"above the largest", flow.LevelConfig{High: math.MaxInt, Low: 1, Strict: true}, false},
		{"the largest, strict", flow.LevelConfig{High: math.MaxInt - 1, Low: 1, Strict: true}, true},
		{"zero", flow.LevelConfig{}, false},
		{"low is zero", flow.LevelConfig{High: 2}, false},
		{"low is negative", flow.LevelConfig{High: 2, Low: -1}, false},
		{"equal", flow.LevelConfig{High: 2, Low: 2}, false},
		{"upside down", flow.LevelConfig{High: 1, Low: 2}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := flow.NewLevel(tc.cfg)
			if tc.ok {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, flow.ErrConfig)
			}
		})
	}
}

func TestLevelCrossesAtItsMarks(t *testing.T) {
	type step struct {
		set  int
		want flow.Crossing
	}
	for _, tc := range []struct {
		name   string
		strict bool
		steps  []step
	}{
		{"at the marks", false, []step{
			{99, flow.Stayed},
			{100, flow.Rose},
			{101, flow.Stayed},
			{100, flow.Stayed},
			{99, flow.Stayed},
			{51, flow.Stayed},
			{50, flow.Fell},
			{49, flow.Stayed},
			{51, flow.Stayed},
			{99, flow.Stayed},
			{101, flow.Rose},
			{0, flow.Fell},
			{math.MaxInt, flow.Rose},
		}},
		{"beyond the marks", true, []step{
			{99, flow.Stayed},
			{100, flow.Stayed},
			{101, flow.Rose},
			{102, flow.Stayed},
			{51, flow.Stayed},
			{50, flow.Stayed},
			{49, flow.Fell},
			{48, flow.Stayed},
			{100, flow.Stayed},
			{101, flow.Rose},
			{0, flow.Fell},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, err := flow.NewLevel(flow.LevelConfig{High: 100, Low: 50, Strict: tc.strict})
			require.NoError(t, err)
			add := set // the same by Add
			high := false
			for i, s := range tc.steps {
				assert.Equal(t, s.want, set.Set(s.set), "step %d: Set(%d)", i, s.set)
				assert.Equal(t, s.want, add.Add(s.set-add.Value()), "step %d: Add to %d", i, s.set)
				if s.want != flow.Stayed {
					high = s.want == flow.Rose
				}
				assert.Equal(t, high, set.High(), "step %d", i)
				assert.Equal(t, s.set, set.Value())
				assert.Equal(t, set, add)
			}
		})
	}
}

func TestLevelFallsWhenItIsEmpty(t *testing.T) {
	for _, strict := range []bool{false, true} {
		l, err := flow.NewLevel(flow.LevelConfig{High: 2, Low: 1, Strict: strict})
		require.NoError(t, err)
		require.Equal(t, flow.Rose, l.Set(3))
		assert.Equal(t, flow.Fell, l.Set(0), "strict %t: else nothing would ever resume", strict)
	}
}

func TestLevelSumsStayInRange(t *testing.T) {
	l, err := flow.NewLevel(flow.LevelConfig{High: 2, Low: 1})
	require.NoError(t, err)
	l.Set(math.MaxInt - 1)
	l.Add(1)
	assert.Equal(t, math.MaxInt, l.Value())
	assert.Equal(t, flow.Stayed, l.Add(1))
	assert.Equal(t, math.MaxInt, l.Value())
	l.Set(0)
	if invariants.Enabled {
		assert.Panics(t, func() { l.Add(-1) }, "an accounting error")
		return
	}
	l.Add(-1)
	assert.Equal(t, -1, l.Value(), "nothing is forgotten")
	l.Add(math.MinInt)
	assert.Equal(t, math.MinInt, l.Value())
}

// Writers that obey the level, with some writes still under way when it rises, and drainers that take what is there: the
// value never drifts, crossings alternate and are as rare as hysteresis promises, and nobody waits for ever.
func TestLevelKeepsWritersAndDrainersGoing(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		low := 1 + rng.IntN(1000)
		high := low + 1 + rng.IntN(1000)
		strict := rng.IntN(2) == 0
		l, err := flow.NewLevel(flow.LevelConfig{High: high, Low: low, Strict: strict})
		require.NoError(t, err)

		const total = 20_000
		written, queued, drained := 0, 0, 0
		underWay := []int{} // written before the writers knew
		rises, falls := 0, 0
		see := func(c flow.Crossing) {
			switch c {
			case flow.Rose:
				rises++
			case flow.Fell:
				falls++
			}
			require.LessOrEqual(t, falls, rises, "seed %d", seed)
			require.LessOrEqual(t, rises, falls+1, "seed %d: told twice", seed)
			require.Equal(t, rises > falls, l.High(), "seed %d", seed)
			require.Equal(t, queued, l.Value(), "seed %d: drift", seed)
		}
		for steps := 0; drained < total; steps++ {
			require.Less(t, steps, 100*total, "seed %d: no progress", seed)
			switch k := rng.IntN(3); {
			case k == 0 && !l.High() && written < total && len(underWay) < 4:
				n := min(1+rng.IntN(high), total-written)
				written += n
				underWay = append(underWay, n)
			case k == 1 && len(underWay) > 0:
				n := underWay[0]
				underWay = underWay[1:]
				queued += n
				see(l.Add(n))
			case k == 2 && queued > 0:
				n := 1 + rng.IntN(queued)
				queued -= n
				drained += n
				if rng.IntN(2) == 0 {
					see(l.Add(-n))
				} else {
					see(l.Set(queued))
				}
			}
			if queued == 0 {
				require.False(t, l.High(), "seed %d: the writers would wait for ever", seed)
			}
		}
		assert.Equal(t, rises, falls)
		assert.LessOrEqual(t, rises, 1+total/(high-low), "seed %d: each crossing needs high-low of traffic", seed)
	}
}
