package main

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
)

// bucket is what the kernel's side has to compute.
func bucket(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	highest := bits.Len64(v) - 1
	return (highest-1)<<subBits + int(v>>(highest-subBits)&(1<<subBits-1))
}

func TestBucketsHaveNoGapsAndAreAQuarterWide(t *testing.T) {
	last := bucket(math.MaxUint64)
	require.Less(t, last, buckets)
	for i := range last + 1 {
		assert.Equal(t, i, bucket(upper(i)), "the end of bucket %d", i)
		if i < last {
			assert.Equal(t, i+1, bucket(upper(i)+1), "what follows bucket %d", i)
		}
		if i > 0 {
			low := upper(i-1) + 1
			assert.LessOrEqual(t, upper(i)-low, low/4, "width of bucket %d", i)
		}
	}
	assert.Equal(t, uint64(math.MaxUint64), upper(last))
}

// The same in the kernel, on the borders of each bucket and on values in between.
func TestKernelChoosesTheSameBucket(t *testing.T) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL",
		Instructions: join(asm.Instructions{asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord)}, bucketOf(),
			asm.Instructions{asm.Mov.Reg(asm.R0, asm.R2), asm.Return()}),
	})
	testenv.Require(t, "bpf", err)
	t.Cleanup(func() { assert.NoError(t, program.Close()) })
	check := func(v uint64) {
		t.Helper()
		got, err := program.Run(&ebpf.RunOptions{Context: binary.NativeEndian.AppendUint64(nil, v)})
		require.NoError(t, err)
		require.Equal(t, bucket(v), int(got), "value %d", v)
	}
	for i := range bucket(math.MaxUint64) + 1 {
		check(upper(i))
		check(upper(i) + 1)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		check(random.Uint64() >> random.IntN(64))
	}
}

func TestQuantilesAreAtMostAQuarterTooLarge(t *testing.T) {
	var h Histogram
	assert.Zero(t, h.Quantile(0.5))
	assert.Empty(t, h.Octaves())
	for v := range uint64(1000) {
		h[bucket(1000*(v+1))]++
	}
	assert.Equal(t, uint64(1000), h.Count())
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
		exact := 1000 * time.Duration(min(q*1000+1, 1000))
		assert.GreaterOrEqual(t, h.Quantile(q), exact, "quantile %g", q)
		assert.LessOrEqual(t, h.Quantile(q), exact+exact/4, "quantile %g", q)
	}
}

func TestOctavesHoldEachValueOnce(t *testing.T) {
	var h, later Histogram
	for _, v := range []uint64{0, 3, 4, 7, 8, 15, 16, 1 << 20, math.MaxUint64} {
		h[bucket(v)]++
	}
	octaves := h.Octaves()
	assert.Equal(t, []Octave{{0, 3, 2}, {3, 7, 2}, {7, 15, 2}, {15, 31, 1}}, octaves[:4])
	assert.Equal(t, Octave{1<<20 - 1, 1<<21 - 1, 1}, octaves[19])
	assert.Equal(t, Octave{1<<63 - 1, math.MaxUint64, 1}, octaves[len(octaves)-1])

	later.Add(&h)
	later.Add(&h)
	later[bucket(100)]++
	since := later.Since(&h)
	assert.Equal(t, h.Count()+1, since.Count())
	assert.Equal(t, uint64(1), since[bucket(100)])
}
