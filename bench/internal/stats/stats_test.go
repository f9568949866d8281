package stats_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/bench/internal/stats"
)

func TestSummaryOfSmallSamples(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want stats.Summary
	}{
		{[]float64{3}, stats.Summary{Median: 3, Min: 3, Max: 3, Low: 3, High: 3, Q1: 3, Q3: 3, N: 1}},
		{[]float64{4, 2}, stats.Summary{Median: 3, Min: 2, Max: 4, Low: 2, High: 4, Q1: 2.5, Q3: 3.5, N: 2}},
		{[]float64{5, 1, 3}, stats.Summary{Median: 3, Min: 1, Max: 5, Low: 1, High: 5, Q1: 2, Q3: 4, N: 3}},
		{[]float64{9, 1, math.NaN(), 5, 3, 7}, stats.Summary{Median: 5, Min: 1, Max: 9, Low: 1, High: 9, Q1: 3, Q3: 7, N: 5}},
	} {
		assert.Equal(t, c.want, stats.Summarize(c.xs), "%v", c.xs)
	}
	assert.True(t, math.IsNaN(stats.Median(nil)))
	assert.Zero(t, stats.Summarize([]float64{math.NaN()}).N)
}

// The ranks of the tables for the sign test: with 95 % of n tosses, so many or more are on each side.
func TestTheIntervalOfAMedian(t *testing.T) {
	for n, beyond := range map[int]float64{
		1: 0, 5: 0, 6: 0, 8: 0, 9: 1, 11: 1, 12: 2, 15: 3, 25: 7, 1074: 504, 1075: 504, 5000: 2430,
	} {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = float64(n - i)
		}
		s := stats.Summarize(xs)
		assert.Equal(t, []float64{1 + beyond, float64(n) - beyond}, []float64{s.Low, s.High}, "%d values", n)
	}
	assert.True(t, math.IsNaN(stats.Summarize(nil).Low))
}

func TestSummarizeLeavesItsArgumentAlone(t *testing.T) {
	xs := []float64{2, 1}
	stats.Summarize(xs)
	assert.Equal(t, []float64{2, 1}, xs)
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	got := stats.Ratios([]float64{1, 6, 5, 7}, []float64{2, 3, 0})
	assert.Equal(t, []float64{0.5, 2}, got[:2])
	assert.Len(t, got, 3)
	assert.True(t, math.IsNaN(got[2]), "a round without a reference says nothing")
}

func TestGeometricMeanOfInverseRatiosIsOne(t *testing.T) {
	assert.InDelta(t, 1, stats.GeometricMean([]float64{0.5, 2, math.NaN()}), 1e-12)
	assert.InDelta(t, 4, stats.GeometricMean([]float64{2, 8}), 1e-12)
	assert.True(t, math.IsNaN(stats.GeometricMean(nil)))
}

func TestATieIsBelowFivePercent(t *testing.T) {
	for ratio, want := range map[float64]bool{0.94: false, 0.96: true, 1: true, 1.04: true, 1.06: false} {
		assert.Equal(t, want, stats.Tie(ratio), "%v", ratio)
	}
}
