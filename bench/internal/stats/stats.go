// Package stats holds the arithmetic of the comparison: medians of ratios, their spread, geometric means.
package stats

import (
	"math"
	"slices"
)

// TieBelow is how far from 1 a ratio has to be before it says anything: smaller differences come and go between runs on
// one machine.
const TieBelow = 0.05

// Summary tells where a sample lies: its median, and its spread as the smallest and the largest value and the
// quartiles. Low and High are the interval in which the median of all that could have been measured lies with a
// confidence of 95 %; of fewer than six values, which do not tell that, they are Min and Max.
type Summary struct {
	Median, Min, Max, Q1, Q3, Low, High float64
	N                                   int
}

// Summarize sums up xs; NaNs are left out. Of nothing, all is NaN.
func Summarize(xs []float64) Summary {
	sorted := slices.DeleteFunc(slices.Clone(xs), math.IsNaN)
	slices.Sort(sorted)
	s := Summary{
		Median: quantile(sorted, 0.5), Min: quantile(sorted, 0), Max: quantile(sorted, 1),
		Q1: quantile(sorted, 0.25), Q3: quantile(sorted, 0.75), Low: math.NaN(), High: math.NaN(), N: len(sorted),
	}
	if s.N > 0 {
		k := beyond(s.N)
		s.Low, s.High = sorted[k], sorted[s.N-1-k]
	}
	return s
}

// beyond returns how many values at each end of a sorted sample of n lie outside of the interval of the median: it
// misses when fewer values than that are on one side of the median, which is a matter of coins.
func beyond(n int) (k int) {
	const miss = 0.05
	p := float64(n) * math.Log(0.5) // the logarithm: of exactly k values on one side
	for sum := math.Exp(p); k < n/2; k++ {
		p += math.Log(float64(n-k) / float64(k+1))
		if sum += math.Exp(p); 2*sum > miss {
			break
		}
	}
	return k
}

// Median is the middle of xs, NaN of nothing.
func Median(xs []float64) float64 { return Summarize(xs).Median }

// quantile interpolates between the values of a sorted sample.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Ratios returns a[i]/b[i], as long as both have one. Rounds are compared one by one because the machine's speed
// drifts.
func Ratios(a, b []float64) []float64 {
	n := min(len(a), len(b))
	r := make([]float64, n)
	for i := range n {
		if r[i] = a[i] / b[i]; b[i] == 0 {
			r[i] = math.NaN()
		}
	}
	return r
}

// GeometricMean of xs; NaNs are left out. Of nothing it is NaN.
func GeometricMean(xs []float64) float64 {
	sum, n := 0.0, 0
	for _, x := range xs {
		if !math.IsNaN(x) {
			sum += math.Log(x)
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return math.Exp(sum / float64(n))
}

// Tie reports whether a ratio is too close to 1 to mean anything.
func Tie(ratio float64) bool { return math.Abs(ratio-1) < TieBelow }
