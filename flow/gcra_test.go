package flow_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
)

func TestGCRAAdmitsABurstAndThenTheRate(t *testing.T) {
	for _, burst := range []int64{1, 2, 7} {
		g, err := flow.NewGCRA(flow.GCRAConfig{Rate: 100, Burst: burst})
		require.NoError(t, err)
		start := -time.Hour // any clock
		for range burst {
			_, ok := g.Admit(start)
			require.True(t, ok)
		}
		wait, ok := g.Admit(start)
		require.False(t, ok, "one above the burst")
		require.Equal(t, 10*time.Millisecond, wait)
		_, ok = g.Admit(start + wait - 1)
		require.False(t, ok, "a nanosecond early")
		_, ok = g.Admit(start + wait)
		require.True(t, ok)
		_, ok = g.Admit(start - time.Second)
		require.False(t, ok, "a clock that goes back admits nothing")
	}
}

// It is a token bucket of the same rate and capacity.
func TestGCRAAdmitsWhatATokenBucketDoes(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rate, burst := int64(1+rng.IntN(1000)), int64(1+rng.IntN(20))
		if 1_000_000_000%rate != 0 {
			continue // the interval is whole nanoseconds
		}
		g, err := flow.NewGCRA(flow.GCRAConfig{Rate: float64(rate), Burst: burst})
		require.NoError(t, err)
		b, err := flow.NewTokenBucket(flow.TokenBucketConfig{Rate: rate, Capacity: burst}, 0)
		require.NoError(t, err)
		now := time.Duration(0)
		for range 200 {
			now += time.Duration(rng.Int64N(3_000_000_000 / rate))
			_, ok := g.Admit(now)
			require.Equal(t, b.Take(now, 1) == 1, ok, "seed %d at %v", seed, now)
		}
	}
}

func TestGCRAAdmitsNoMoreWhoeverAsks(t *testing.T) {
	const burst = 1000
	g, err := flow.NewGCRA(flow.GCRAConfig{Rate: 1, Burst: burst})
	require.NoError(t, err)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range burst {
				if _, ok := g.Admit(0); ok {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, burst, admitted.Load())
}

func TestGCRARefusesBadSettings(t *testing.T) {
	for _, cfg := range []flow.GCRAConfig{{}, {Rate: -1}, {Rate: 1, Burst: -1}, {Rate: 2e9}, {Rate: 1e-9, Burst: 100}} {
		_, err := flow.NewGCRA(cfg)
		require.ErrorIs(t, err, flow.ErrConfig, "%+v", cfg)
	}
	_, err := flow.NewGCRA(flow.GCRAConfig{Rate: 1e9})
	require.NoError(t, err)
}
