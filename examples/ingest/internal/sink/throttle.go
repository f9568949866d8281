package sink

import (
	"context"
	"sync"
	"time"

	"github.com/weirnet/weir/flow"
)

// Standstill as a rate stores nothing.
const Standstill = -1

// Throttle is a Store that takes at most so many bytes a second: a slow disk for demonstrations and tests.
type Throttle struct {
	store Store

	began   time.Time
	mu      sync.Mutex // guards what follows
	rate    int64
	bucket  *flow.TokenBucket
	changed chan struct{} // closed by SetRate
}

// NewThrottle returns store at a rate in bytes a second. Zero is no limit.
func NewThrottle(store Store, rate int64) (*Throttle, error) {
	t := &Throttle{store: store, began: time.Now(), changed: make(chan struct{})}
	return t, t.SetRate(rate)
}

// SetRate changes the rate, also for who waits now. Any goroutine may call it.
func (t *Throttle) SetRate(rate int64) error {
	var bucket *flow.TokenBucket
	if rate > 0 {
		var err error
		// A tenth of a second's worth at a time; larger batches leave a debt.
		if bucket, err = flow.NewTokenBucket(flow.TokenBucketConfig{Rate: rate, Capacity: max(rate/10, 1)},
			t.now()); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate, t.bucket = rate, bucket
	close(t.changed)
	t.changed = make(chan struct{})
	return nil
}

// Store waits for its turn and stores b.
func (t *Throttle) Store(ctx context.Context, b *Batch) error {
	for {
		wait, changed := t.reserve(len(b.Lines))
		if wait == 0 {
			return t.store.Store(ctx, b)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// Idle lets what it slows down do what it has to.
func (t *Throttle) Idle() error {
	if idler, ok := t.store.(Idler); ok {
		return idler.Idle()
	}
	return nil
}

// Close closes what it slows down.
func (t *Throttle) Close() error { return t.store.Close() }

// reserve takes n bytes out of the bucket, or returns how long to wait.
func (t *Throttle) reserve(n int) (time.Duration, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.rate < 0:
		return time.Hour, t.changed
	case t.rate == 0:
		return 0, nil
	}
	now := t.now()
	if wait := t.bucket.Wait(now, 1); wait > 0 {
		return wait, t.changed
	}
	t.bucket.Charge(now, int64(n))
	return 0, nil
}

func (t *Throttle) now() time.Duration { return time.Since(t.began) }
