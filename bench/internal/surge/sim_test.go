package surge

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/overload"
)

func run(t testing.TB, rung string, load Load) Result {
	t.Helper()
	load.Workers, load.Service, load.Deadline = 8, 5*time.Millisecond, 100*time.Millisecond
	for _, r := range Rungs(load.Workers) {
		if r.Name == rung {
			policy, err := r.Make()
			require.NoError(t, err)
			return Run(load, policy)
		}
	}
	t.Fatalf("no rung %q", rung)
	return Result{}
}

func TestQueueAndGradientKeepTheGoodput(t *testing.T) {
	for _, times := range []float64{2, 5, 10} {
		var goodput []float64
		for seed := range uint64(5) {
			r := run(t, "gradient+queue", Load{Seed: seed, Times: times})
			goodput = append(goodput, r.Goodput)
			assert.Less(t, r.Recovery, 0.01)
			if times <= 5 {
				assert.Greater(t, r.Class[0], 0.99)
			}
		}
		slices.Sort(goodput)
		assert.Greater(t, goodput[2], 0.95, "%v times: %v", times, goodput)
		assert.Greater(t, goodput[0], 0.85, "%v times", times)
	}
}

func TestControllerCostsLittle(t *testing.T) {
	for seed := range uint64(3) {
		r := run(t, "gradient+queue+classes", Load{Seed: seed, Times: 5})
		assert.Greater(t, r.Goodput, 0.93, "seed %d", seed)
		assert.Greater(t, r.Class[0], 0.99)
		assert.Less(t, r.Recovery, 0.01)
	}
}

func TestUntunedBeatsAFixedLimitWhereTheServiceChanges(t *testing.T) {
	ours, fixed := 0.0, 0.0
	for seed := range uint64(5) {
		load := Load{Seed: seed, Times: 5, Slower: 10}
		ours += run(t, "gradient+queue", load).Slow
		fixed += run(t, "fixed limit", load).Slow
	}
	assert.Greater(t, ours, 1.3*fixed)
}

func TestTheIntegratorIsWhatWasComputedOfIt(t *testing.T) {
	r := run(t, "integrator, 10 ms", Load{Times: 5})
	assert.InDelta(t, 0.74, r.Goodput, 0.06)
	assert.Less(t, run(t, "none", Load{Times: 5}).Goodput, 0.05)
}

func TestAForecastCostsNoGoodput(t *testing.T) {
	load := Load{Times: 5, Workers: 8, Service: 5 * time.Millisecond, Deadline: 100 * time.Millisecond}
	plain := run(t, "gradient+queue+classes", load).Goodput
	for name, of := range map[string]func(i int) float64{
		"0.5": func(int) float64 { return 0.5 }, "5": func(int) float64 { return 5 },
		"oscillating": func(i int) float64 { return []float64{0.1, 10}[i%2] },
	} {
		policy, err := Rungs(8)[7].Make()
		require.NoError(t, err)
		l := policy.(*Limited)
		i := 0
		l.Control, err = overload.New(overload.Config{Signals: []overload.Signal{
			{Name: "queue", Read: func(now time.Duration) float64 {
				i++
				assert.NoError(t, l.Control.Forecast(now, of(i), time.Second))
				return l.Queue.Risk(now)
			}},
		}})
		require.NoError(t, err)
		r := Run(load, l)
		assert.Greater(t, r.Goodput, 0.95*plain, name)
		assert.Less(t, r.Recovery, 0.01, name)
	}
}

func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	load := Load{Seed: 3, Times: 5, Retries: Budgeted}
	assert.Equal(t, run(t, "gradient+queue+classes", load), run(t, "gradient+queue+classes", load))
}

func TestBudgetedRetriesAmplifyLittle(t *testing.T) {
	assert.Less(t, run(t, "gradient+queue", Load{Times: 2, Retries: Budgeted}).Amplified, 1.11)
	assert.Greater(t, run(t, "gradient+queue", Load{Times: 2, Retries: Naive}).Amplified, 2.0)
}
