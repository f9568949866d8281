//go:build linux

package uring

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/transporttest"
)

const everyFeature = LimitedReceives | VectoredSends | SkippedSends

// TestConformance runs the suite of all transports, and proves from the counters that what each variant is about has
// really happened. Those that need -long differ less from the others.
func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cfg     Config
		without ring.Flags
		long    bool
		gate    bool // the older kernel of the scripted ones has no features either
	}{
		{name: "default"},
		{name: "raw", cfg: Config{Raw: true}, long: true},
		{name: "no limited receives", cfg: Config{Without: LimitedReceives}, long: true},
		{name: "no vectored sends", cfg: Config{Without: VectoredSends}, long: true},
		{name: "no skipped sends", cfg: Config{Without: SkippedSends}, long: true},
		{name: "no features", cfg: Config{Without: everyFeature, Raw: true}, gate: true},
		{name: "no flags", without: ^ring.Flags(0) &^ (ring.CQSize | ring.Clamp), long: true},
		{name: "no deferred work", cfg: Config{Without: LimitedReceives}, without: ring.DeferTaskrun, long: true},
		{name: "tiny", cfg: Config{Entries: 8, CompletionEntries: 16, Blocks: 4, BlockBytes: 4096}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.long && !*flagLong {
				t.Skip("needs -long")
			}
			if tc.gate && !testenv.Thorough() {
				t.Skip("for the gate")
			}
			var total Counters
			checks := 0
			transporttest.Run(t, transporttest.Factory{
				Name: "uring",
				Open: func(tb testing.TB, n int) []transport.Transport {
					trs := make([]transport.Transport, n)
					for i := range trs {
						tr, err := open(tc.cfg, ring.Config{Without: tc.without})
						testenv.Require(tb, "uring", err)
						if lacking := everyFeature &^ tc.cfg.Without &^ tr.Features(); lacking != 0 {
							_ = tr.Close()
							testenv.Require(tb, "uring-6.17", fmt.Errorf("this kernel lacks %v", lacking))
						}
						trs[i] = tr
					}
					return trs
				},
				Features:   transporttest.All(),
				BlockBytes: blockBytes(tc.cfg),
				Check: func(tb testing.TB, trs []transport.Transport) {
					checks++
					for _, tr := range trs {
						assert.Empty(tb, tr.(*Transport).connecting)
						sum(&total, tr.(*Transport).Counters())
					}
				},
			})
			if checks == len(transporttest.Claims(transporttest.All())) { // not with -run, which leaves some out
				prove(t, tc.cfg.Without, &total)
			}
		})
	}
}

func blockBytes(cfg Config) int {
	if cfg.BlockBytes == 0 {
		return 16 << 10
	}
	return cfg.BlockBytes
}

// prove checks that what a transport has was used, and what it has not was not.
func prove(t *testing.T, without Features, c *Counters) {
	t.Helper()
	t.Logf("%+v", *c)
	used := func(name string, count uint64, want bool) {
		t.Helper()
		assert.Equal(t, want, count > 0, "%s: %d", name, count)
	}
	used("LimitedReceives", c.LimitedReceives, without&LimitedReceives == 0)
	used("MultishotReceives", c.MultishotReceives, without&LimitedReceives == 0)
	used("SingleReceives", c.SingleReceives, without&LimitedReceives != 0)
	used("SkippedSends", c.SkippedSends, without&SkippedSends == 0)
	used("OrdinarySends", c.OrdinarySends, true)
	used("VectoredSends", c.VectoredSends, true)
	used("ShortSends", c.ShortSends, true)
	used("BufferRingEmpty", c.BufferRingEmpty, true)
	used("BlocksLeft", c.BlocksLeft, true)
	used("Splices", c.Splices, true)
	used("Lost", c.Lost, false)
}
