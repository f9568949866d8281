package admission

import "sync/atomic"

// chunk is how many a loop leases at a time beyond what it needs now.
const chunk = 16

// Quota is how many of something may be in use at a time, on all loops together. Each loop leases some, so that taking
// and giving back touch no memory that other loops write to; what one has leased and does not use, others take from it
// before anything is refused. Any goroutine may call its methods.
//
// There are never more in use than there may be. Of several that race for the last ones, all may be refused. The nil
// Quota has no limit and counts nothing.
type Quota struct {
	most   int64
	free   atomic.Int64 // leased by nobody
	leases []lease
}

// lease is what a loop has and does not use, on a cache line of its own.
type lease struct {
	free atomic.Int64
	_    [56]byte
}

// NewQuota returns a Quota of most, at least 0, for so many loops.
func NewQuota(most int64, loops int) *Quota {
	q := &Quota{most: most, leases: make([]lease, max(1, loops))}
	q.free.Store(most)
	return q
}

// Take takes n for a loop, all or none, and reports whether it did.
func (q *Quota) Take(loop int, n int64) bool {
	if q == nil {
		return true
	}
	own := q.lease(loop)
	if takeAll(&own.free, n) {
		return true
	}
	got := takeUpTo(&own.free, n)
	got += takeUpTo(&q.free, n-got+chunk)
	for i := 0; i < len(q.leases) && got < n; i++ {
		got += takeUpTo(&q.leases[i].free, n-got)
	}
	if got < n {
		q.free.Add(got)
		return false
	}
	own.free.Add(got - n)
	return true
}

// Give gives back n that were taken, on whichever loop.
func (q *Quota) Give(loop int, n int64) {
	if q == nil {
		return
	}
	own := q.lease(loop)
	if own.free.Add(n) > 2*chunk {
		q.free.Add(takeUpTo(&own.free, chunk))
	}
}

// Used is how many are in use, as of no single moment while others take and give back.
func (q *Quota) Used() int64 {
	if q == nil {
		return 0
	}
	free := q.free.Load()
	for i := range q.leases {
		free += q.leases[i].free.Load()
	}
	return q.most - free
}

func (q *Quota) lease(loop int) *lease { return &q.leases[uint(loop)%uint(len(q.leases))] }

// takeAll subtracts n where there are as many.
func takeAll(v *atomic.Int64, n int64) bool {
	for {
		have := v.Load()
		if have < n {
			return false
		}
		if v.CompareAndSwap(have, have-n) {
			return true
		}
	}
}

// takeUpTo subtracts up to n and returns how many.
func takeUpTo(v *atomic.Int64, n int64) int64 {
	for {
		have := v.Load()
		take := max(0, min(have, n))
		if take == 0 || v.CompareAndSwap(have, have-take) {
			return take
		}
	}
}
