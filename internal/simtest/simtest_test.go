package simtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	seeds = flag.Int("seeds", 300, "how many seeds to run")
	first = flag.Uint64("first", 1, "the first seed")
	seed  = flag.Uint64("seed", 0, "run this seed alone and print its trace")
)

// TestWholeStack runs the whole stack on seeds. A failing seed is replayed, with its trace, by -args -seed=N.
func TestWholeStack(t *testing.T) {
	file, data := content(t)
	if *seed != 0 {
		res, err := Run(*seed, file, data, os.Stderr)
		t.Logf("%+v", res)
		require.NoError(t, err)
		return
	}
	var sum Result
	for s := *first; s < *first+uint64(*seeds); s++ {
		res, err := Run(s, file, data, nil)
		require.NoError(t, err, "replay: go test ./internal/simtest -run TestWholeStack -count=1 -args -seed=%d", s)
		add(reflect.ValueOf(&sum).Elem(), reflect.ValueOf(res))
	}
	t.Logf("%d seeds: %+v", *seeds, sum)
	if *seeds >= 300 { // the seeds must reach what they are for
		assert.Greater(t, sum.Complete, sum.Connections/3)
		assert.Greater(t, sum.Pauses, 1000)
		counters := reflect.ValueOf(sum)
		for i := range counters.NumField() {
			assert.NotZero(t, counters.Field(i).Interface(), counters.Type().Field(i).Name)
		}
		for moment, n := range sum.Meddled {
			assert.NotZero(t, n, "pipelines that were changed at moment %d", moment)
		}
	}
}

// add adds the counters of one run.
func add(sum, run reflect.Value) {
	for i := range sum.NumField() {
		if f := sum.Field(i); f.Kind() == reflect.Array {
			for k := range f.Len() {
				f.Index(k).SetInt(f.Index(k).Int() + run.Field(i).Index(k).Int())
			}
		} else {
			f.SetInt(f.Int() + run.Field(i).Int())
		}
	}
}

func TestSameSeedRunsTheSame(t *testing.T) {
	file, data := content(t)
	for s := uint64(1); s <= 20; s++ {
		a, errA := Run(s, file, data, nil)
		b, errB := Run(s, file, data, nil)
		require.NoError(t, errA)
		require.NoError(t, errB)
		require.Equal(t, a, b)
	}
}

func content(t *testing.T) (*os.File, []byte) {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 500_000)
	for i := range data {
		data[i] = byte(r.Uint32())
		if data[i] == '\n' || data[i] == '\r' { // they end lines
			data[i] = ' '
		}
	}
	path := filepath.Join(t.TempDir(), "content")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f, data
}
