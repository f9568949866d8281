package maglev_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/xdp/internal/maglev"
)

func pool(n int, weight func(int) uint16) (members []maglev.Member) {
	for i := range n {
		members = append(members, maglev.Member{
			Key: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Value: uint16(i), Weight: weight(i),
		})
	}
	return members
}

func alike(int) uint16 { return 1 }

func build(t testing.TB, size int, members []maglev.Member) []uint16 {
	t.Helper()
	table, err := maglev.Build(size, members)
	require.NoError(t, err)
	require.Len(t, table, size)
	return table
}

func shares(table []uint16) map[uint16]int {
	counts := map[uint16]int{}
	for _, v := range table {
		counts[v]++
	}
	return counts
}

func TestCellsAreSharedEvenly(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 100, 256} {
		for size := maglev.MinSize; size <= maglev.MaxSize; size *= 4 {
			counts := shares(build(t, size, pool(n, alike)))
			assert.Len(t, counts, min(n, size), "%d members, %d cells", n, size)
			for v, c := range counts {
				assert.InDelta(t, float64(size)/float64(n), c, 1, "member %d of %d, %d cells", v, n, size)
			}
		}
	}
	worst := 0
	for _, c := range shares(build(t, maglev.MaxSize, pool(100, alike))) {
		worst = max(worst, c)
	}
	assert.LessOrEqual(t, float64(worst)*100/maglev.MaxSize, 1.01, "largest share to average, 100 members")
}

func TestTheFullSizeIsFilledByAnyPool(t *testing.T) {
	// Skips that share a divisor with the size would visit only a part of the cells, and filling would not end.
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var members []maglev.Member
		for i := range 10 {
			members = append(members, maglev.Member{Key: fmt.Sprint(random.Uint64()), Value: uint16(i), Weight: 1})
		}
		assert.NotContains(t, shares(build(t, maglev.MaxSize, members)), uint16(maglev.Empty))
	}
}

func TestWeightsAreKeptToACell(t *testing.T) {
	for _, weights := range [][]uint16{{1, 10, 3}, {1, 1000}, {500, 501}, {7, 0, 7}, {1000, 1000, 1}} {
		sum := 0
		for _, w := range weights {
			sum += int(w)
		}
		counts := shares(build(t, maglev.MaxSize, pool(len(weights), func(i int) uint16 { return weights[i] })))
		for i, w := range weights {
			want := float64(w) * maglev.MaxSize / float64(sum)
			assert.InDelta(t, want, counts[uint16(i)], 1+want/100, "weights %v, member %d", weights, i)
		}
	}
}

func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	members := pool(50, func(i int) uint16 { return uint16(1 + i%5) })
	want := build(t, 4096, members)
	random := rand.New(rand.NewPCG(3, 4))
	for range 10 {
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		assert.Equal(t, want, build(t, 4096, members))
	}
}

// Values are slots, which others get when a member leaves; keys decide.
func TestCellsFollowTheKeyAlone(t *testing.T) {
	a, b := pool(10, alike), pool(10, alike)
	for i := range b {
		b[i].Value += 100
	}
	ta, tb := build(t, 4096, a), build(t, 4096, b)
	for i := range ta {
		require.Equal(t, ta[i]+100, tb[i], "cell %d", i)
	}
}

func TestFewCellsMoveThatNeedNot(t *testing.T) {
	for leaves := range 10 {
		members := pool(10, alike)
		before := build(t, maglev.MaxSize, members)
		after := build(t, maglev.MaxSize, append(members[:leaves:leaves], members[leaves+1:]...))
		extra := 0
		for i := range before {
			if before[i] != uint16(leaves) && before[i] != after[i] {
				extra++
			}
		}
		assert.LessOrEqual(t, float64(extra)/maglev.MaxSize, 0.01, "member %d leaves: %d cells moved", leaves, extra)
	}
}

func TestAPoolOfNobodyLeavesTheTableEmpty(t *testing.T) {
	for _, members := range [][]maglev.Member{nil, pool(3, func(int) uint16 { return 0 })} {
		assert.Equal(t, map[uint16]int{maglev.Empty: 256}, shares(build(t, 256, members)))
	}
}

func TestLimits(t *testing.T) {
	one := pool(1, alike)
	weight := func(w uint16) []maglev.Member { return pool(1, func(int) uint16 { return w }) }
	value := func(v uint16) []maglev.Member { return []maglev.Member{{Key: "a", Value: v, Weight: 1}} }
	for _, tc := range []struct {
		size    int
		members []maglev.Member
		want    string
	}{
		{128, one, "table of 128 cells"},
		{255, one, "table of 255 cells"},
		{256, one, ""},
		{257, one, "table of 257 cells"},
		{65535, one, "table of 65535 cells"},
		{65536, one, ""},
		{65537, one, "table of 65537 cells"},
		{131072, one, "table of 131072 cells"},
		{0, one, "table of 0 cells"},
		{-256, one, "table of -256 cells"},
		{256, pool(255, alike), ""},
		{256, pool(256, alike), ""},
		{256, pool(257, alike), "257 members for 256 cells"},
		{256, weight(999), ""},
		{256, weight(1000), ""},
		{256, weight(1001), `"10.0.0.0" with weight 1001, want at most 1000`},
		{256, value(0xfffe), ""},
		{256, value(0xffff), "value 0xffff"},
		{256, append(pool(2, alike), one...), `"10.0.0.0" is there twice`},
	} {
		_, err := maglev.Build(tc.size, tc.members)
		if tc.want == "" {
			assert.NoError(t, err, "%d cells", tc.size)
			continue
		}
		assert.ErrorIs(t, err, maglev.ErrConfig, "%d cells", tc.size)
		assert.ErrorContains(t, err, tc.want)
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		members := pool(n, alike)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				build(b, maglev.MaxSize, members)
			}
		})
	}
}
