package flow_test

import (
	"math"
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
