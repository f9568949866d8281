package main

import "time"

// A histogram has four buckets for each power of two: a quantile is at most a quarter too large. The kernel's side
// counts (bucketOf in program.go), this side reads.
const (
	subBits = 2
	buckets = 256 // enough for 64 bits: the last that is used is 251
)

// Histogram counts durations in nanoseconds.
type Histogram [buckets]uint64

// upper returns the largest value that bucket i counts.
func upper(i int) uint64 {
	const sub = 1 << subBits
	if i < sub {
		return uint64(i)
	}
	exponent := i/sub + 1
	low := uint64(sub+i%sub) << (exponent - subBits)
	return low + 1<<(exponent-subBits) - 1
}

// Count is how many values there are.
func (h *Histogram) Count() (n uint64) {
	for _, in := range h {
		n += in
	}
	return n
}

// Quantile returns a value that the share q of all values does not exceed, the upper end of its bucket. 0 when empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	count := h.Count()
	if count == 0 {
		return 0
	}
	rank := min(uint64(q*float64(count)), count-1)
	seen := uint64(0)
	for i, in := range h {
		if seen += in; seen > rank {
			return time.Duration(min(upper(i), 1<<63-1))
		}
	}
	return 0
}

// Since returns what was counted after the earlier histogram.
func (h *Histogram) Since(earlier *Histogram) (d Histogram) {
	for i := range h {
		d[i] = h[i] - earlier[i]
	}
	return d
}

// Add adds the other's values.
func (h *Histogram) Add(other *Histogram) {
	for i := range h {
		h[i] += other[i]
	}
}

// Octave is how many values lie in (Above, To].
type Octave struct {
	AboveNanos uint64 `json:"above_ns"`
	ToNanos    uint64 `json:"to_ns"`
	Count      uint64 `json:"count"`
}

// Octaves sums the buckets of each power of two, from the first to the last that counts something.
func (h *Histogram) Octaves() (found []Octave) {
	const sub = 1 << subBits
	above, pending := uint64(0), 0
	for i := 0; i < len(h); i += sub {
		n := uint64(0)
		for _, in := range h[i : i+sub] {
			n += in
		}
		to := upper(i + sub - 1)
		if n > 0 || len(found) > 0 {
			found = append(found, Octave{above, to, n})
		}
		if n > 0 {
			pending = len(found)
		}
		above = to
	}
	return found[:pending]
}
