package flow_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
)

func newBucket(t testing.TB, rate, capacity int64, now time.Duration) *flow.TokenBucket {
	t.Helper()
	b, err := flow.NewTokenBucket(flow.TokenBucketConfig{Rate: rate, Capacity: capacity}, now)
	require.NoError(t, err)
	return b
}

func TestTokenBucketConfigIsValidated(t *testing.T) {
	for _, tc := range []struct {
		name           string
		rate, capacity int64
		ok             bool
	}{
		{"the least", 1, 1, true},
		{"the largest", math.MaxInt64, math.MaxInt64, true},
		{"capacity is the rate's second", 7, 0, true},
		{"no rate", 0, 1, false},
		{"no rate, no capacity", 0, 0, false},
		{"negative rate", -1, 1, false},
		{"negative capacity", 1, -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := flow.NewTokenBucket(flow.TokenBucketConfig{Rate: tc.rate, Capacity: tc.capacity}, 0)
			if !tc.ok {
				assert.ErrorIs(t, err, flow.ErrConfig)
				return
			}
			require.NoError(t, err)
			want := tc.capacity
			if want == 0 {
				want = tc.rate
			}
			assert.Equal(t, want, b.Available(0), "it starts full")
			assert.Equal(t, want, b.Available(time.Hour), "and holds no more")
		})
	}
}

func TestTokenBucketGrantsWhatIsThere(t *testing.T) {
	b := newBucket(t, 1024, 1024, time.Hour)
	now := time.Hour
	assert.EqualValues(t, 600, b.Take(now, 600))
	assert.EqualValues(t, 424, b.Available(now))
	assert.EqualValues(t, 424, b.Take(now, 600))
	assert.EqualValues(t, 0, b.Take(now, 600))
	now += time.Second
	assert.EqualValues(t, 800, b.Take(now, 800))
	assert.EqualValues(t, 224, b.Available(now))
	assert.EqualValues(t, 0, b.Take(now, 0))
	assert.EqualValues(t, 0, b.Take(now, -5))
	assert.EqualValues(t, 224, b.Available(now))
}

// A bucket that rounds at every look grants nothing here: half a millisecond is worth 0.512 tokens.
func TestTokenBucketLosesNoFraction(t *testing.T) {
	for _, tc := range []struct {
		name string
		rate int64
		poll time.Duration
		want int64
	}{
		{"every 500 µs", 1024, 500 * time.Microsecond, 10_240},
		{"every 999,999 ns", 1024, 999_999, 10_239}, // the last look is 1 ns × 10,000 early: 10,239.99
		{"every microsecond", 3, time.Microsecond, 30},
		{"less than a token a look", 1, 100 * time.Millisecond, 10},
		{"many tokens a look", 123_456_789, 500 * time.Microsecond, 1_234_567_890},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBucket(t, tc.rate, 0, 0)
			require.Equal(t, tc.rate, b.Take(0, math.MaxInt64))
			granted, now := int64(0), time.Duration(0)
			for now+tc.poll <= 10*time.Second {
				now += tc.poll
				granted += b.Take(now, math.MaxInt64)
			}
			assert.Equal(t, tc.want, granted)
		})
	}
}

func TestTokenBucketWaitIsExact(t *testing.T) {
	for _, tc := range []struct {
		rate, capacity, n int64
		want              time.Duration
	}{
		{1024, 1024, 1, 976_563}, // 976,562.5 ns
		{1024, 1024, 1024, time.Second},
		{1024, 1024, 4096, time.Second}, // a full bucket
		{3, 3, 1, 333_333_334},
		{1_000_000_000, 100, 1, 1},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, time.Second},
		{1, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{1, math.MaxInt64, 9_223_372_036, 9_223_372_036 * time.Second},
		{1, math.MaxInt64, 9_223_372_037, math.MaxInt64},
		{1024, 1024, 0, 0},
		{1024, 1024, -1, 0},
	} {
		b := newBucket(t, tc.rate, tc.capacity, 0)
		b.Take(0, math.MaxInt64)
		assert.Equal(t, tc.want, b.Wait(0, tc.n), "%+v", tc)
	}
	assert.Zero(t, newBucket(t, 1, 5, 0).Wait(0, 5), "they are there")
}

func TestTokenBucketPaysDebtFirst(t *testing.T) {
	b := newBucket(t, 1000, 100, 0)
	b.Charge(0, 150)
	assert.EqualValues(t, -50, b.Available(0))
	assert.EqualValues(t, 0, b.Take(0, 10))
	assert.Equal(t, 51*time.Millisecond, b.Wait(0, 1))
	assert.EqualValues(t, 0, b.Take(50*time.Millisecond, 10))
	assert.EqualValues(t, 1, b.Take(51*time.Millisecond, 10))
	b.Charge(51*time.Millisecond, -7)
	assert.EqualValues(t, 0, b.Available(51*time.Millisecond))
}

func TestTokenBucketTakesBackWhatWasNotUsed(t *testing.T) {
	b := newBucket(t, 1000, 100, 0)
	b.Take(0, 100)
	b.Refund(30)
	assert.EqualValues(t, 30, b.Available(0))
	b.Refund(-30)
	assert.EqualValues(t, 30, b.Available(0))
	b.Refund(71)
	assert.EqualValues(t, 100, b.Available(0), "never more than full")
	b.Refund(math.MaxInt64)
	assert.EqualValues(t, 100, b.Available(0))
}

func TestTokenBucketAtTheEndsOfItsNumbers(t *testing.T) {
	b := newBucket(t, math.MaxInt64, math.MaxInt64, math.MinInt64)
	assert.EqualValues(t, math.MaxInt64, b.Take(math.MinInt64, math.MaxInt64))
	assert.EqualValues(t, math.MaxInt64, b.Available(math.MaxInt64))

	b = newBucket(t, 1, math.MaxInt64, 0)
	b.Charge(0, math.MaxInt64)
	b.Charge(0, math.MaxInt64)
	b.Charge(0, math.MaxInt64)
	assert.EqualValues(t, math.MinInt64, b.Available(0), "debt has an end")
	assert.EqualValues(t, math.MaxInt64, b.Wait(0, 1))
	b.Refund(math.MaxInt64)
	assert.EqualValues(t, -1, b.Available(0))
	assert.Equal(t, time.Second*2, b.Wait(0, 1))
	b.Refund(math.MaxInt64)
	assert.EqualValues(t, math.MaxInt64-1, b.Available(0))
}

// reference is the bucket in exact numbers of any size, in billionths of tokens.
type reference struct {
	rate, capacity, level *big.Int
	at                    time.Duration
}

var billion = big.NewInt(1e9)

func tokens(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), billion) }

func newReference(rate, capacity int64, now time.Duration) *reference {
	return &reference{big.NewInt(rate), tokens(capacity), tokens(capacity), now}
}

func (r *reference) to(now time.Duration) {
	if now > r.at {
		elapsed := new(big.Int).Sub(big.NewInt(int64(now)), big.NewInt(int64(r.at)))
		r.change(elapsed.Mul(elapsed, r.rate))
		r.at = now
	}
}

func (r *reference) change(by *big.Int) {
	r.level.Add(r.level, by)
	if r.level.Cmp(r.capacity) > 0 {
		r.level.Set(r.capacity)
	}
}

// available rounds down; big.Int.Div is Euclidean, that is down for a positive divisor.
func (r *reference) available() int64 { return new(big.Int).Div(r.level, billion).Int64() }

func (r *reference) wait(n int64) time.Duration {
	missing := tokens(n)
	if missing.Cmp(r.capacity) > 0 {
		missing.Set(r.capacity)
	}
	missing.Sub(missing, r.level)
	if missing.Sign() <= 0 {
		return 0
	}
	missing.Add(missing, r.rate).Sub(missing, big.NewInt(1)).Div(missing, r.rate)
	if !missing.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(missing.Int64())
}

// compare runs ops on both, each op a kind and a size; it stops before debt reaches its end.
func compare(t *testing.T, rate, capacity int64, next func() (kind uint8, size int64, ok bool)) {
	b := newBucket(t, rate, capacity, 0)
	r := newReference(rate, capacity, 0)
	now := time.Duration(0)
	for i := 0; ; i++ {
		kind, n, ok := next()
		if !ok {
			return
		}
		switch kind % 6 {
		case 0: // time goes on
			if n > 0 && now <= math.MaxInt64-time.Duration(n) {
				now += time.Duration(n)
			}
			r.to(now)
		case 1:
			r.to(now)
			want := max(0, min(n, r.available()))
			r.change(tokens(-want))
			require.Equal(t, want, b.Take(now, n), "op %d", i)
		case 2:
			r.to(now)
			if n > 0 && r.available() > math.MinInt64/2 && n < math.MaxInt64/2 {
				r.change(tokens(-n))
				b.Charge(now, n)
			}
		case 3:
			if n > 0 {
				b.Refund(n)
				r.change(tokens(n))
			}
		case 4:
			r.to(now)
			w := b.Wait(now, n)
			require.Equal(t, r.wait(n), w, "op %d: Wait(%d)", i, n)
		default: // the clock goes back for one look
			r.to(now)
			require.Equal(t, r.available(), b.Available(now-1), "op %d", i)
		}
		require.Equal(t, r.available(), b.Available(now), "op %d of kind %d size %d", i, kind%6, n)
	}
}

func TestTokenBucketMatchesExactArithmetic(t *testing.T) {
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 3))
		any := func() int64 { return int64(rng.Uint64()>>1) >> rng.IntN(63) }
		ops := 0
		compare(t, 1+any()/2, 1+any()/2, func() (uint8, int64, bool) {
			ops++
			return uint8(rng.IntN(6)), any(), ops <= 300
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Products whose lower half is all ones or all zeros carry into the upper half.
func TestTokenBucketCarries(t *testing.T) {
	const rate, capacity = 1<<32 + 1, 1 << 60
	b, r := newBucket(t, rate, capacity, 0), newReference(rate, capacity, 0)
	require.EqualValues(t, capacity, b.Take(0, capacity))
	r.change(tokens(-capacity))
	for _, now := range []time.Duration{1, 1 << 32} { // (2^32-1) × rate = 2^64-1
		r.to(now)
		require.Equal(t, r.available(), b.Available(now))
	}
	n := r.available() + 1<<55 // 2^55 × 10^9 = 1,953,125 × 2^64
	require.Equal(t, r.wait(n), b.Wait(1<<32, n))
}

func FuzzTokenBucket(f *testing.F) {
	f.Add(int64(1024), int64(1024), []byte{1, 200, 0, 9, 1, 100, 4, 3, 5, 0})
	f.Add(int64(1), int64(math.MaxInt64), []byte{2, 255, 0, 255, 4, 255, 3, 255})
	f.Fuzz(func(t *testing.T, rate, capacity int64, ops []byte) {
		if rate < 1 || capacity < 1 {
			t.Skip()
		}
		compare(t, rate, capacity, func() (uint8, int64, bool) {
			if len(ops) < 2 {
				return 0, 0, false
			}
			kind, n := ops[0], int64(math.MaxInt64)>>(ops[1]>>2)-int64(ops[1]&3)
			ops = ops[2:]
			return kind, n, true
		})
	})
}

func BenchmarkTokenBucketTake(b *testing.B) {
	bucket := newBucket(b, 1<<30, 1<<20, 0)
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 1000
		bucket.Take(now, 1000)
	}
}

func BenchmarkLevelAdd(b *testing.B) {
	l, err := flow.NewLevel(flow.LevelConfig{High: 64 << 10, Low: 32 << 10})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		l.Add(1000)
		l.Add(-1000)
	}
}
