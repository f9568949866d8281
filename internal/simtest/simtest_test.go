package simtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	seeds = flag.Int("seeds", 500, "how many seeds to run")
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
		sum.Connections += res.Connections
		sum.Delivered += res.Delivered
		sum.Complete += res.Complete
		sum.Failed += res.Failed
		sum.Broken += res.Broken
		sum.Panics += res.Panics
		sum.Pauses += res.Pauses
		sum.Turns += res.Turns
	}
	t.Logf("%d seeds: %+v", *seeds, sum)
	if *seeds >= 500 { // the seeds must reach what they are for
		assert.Greater(t, sum.Complete, sum.Connections/3)
		assert.Positive(t, sum.Failed)
		assert.Positive(t, sum.Broken)
		assert.Positive(t, sum.Panics)
		assert.Greater(t, sum.Pauses, 1000)
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
	}
	path := filepath.Join(t.TempDir(), "content")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f, data
}
