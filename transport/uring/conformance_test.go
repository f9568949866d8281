//go:build linux

package uring

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/transporttest"
)

// openTest opens a transport on this goroutine's thread, which it locks until the test ends.
func openTest(tb testing.TB, cfg Config) *Transport {
	tb.Helper()
	runtime.LockOSThread()
	tr, err := Open(cfg)
	testenv.Require(tb, "uring", err)
	tb.Cleanup(func() {
		if !tr.closed {
			require.NoError(tb, tr.Close())
		}
		runtime.UnlockOSThread()
	})
	return tr
}

func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
	}{
		{"default", Config{}},
		{"raw", Config{Raw: true}},
		{"no limited receives", Config{Without: LimitedReceives}},
		{"no vectored sends", Config{Without: VectoredSends}},
		{"no skipped sends", Config{Without: SkippedSends}},
		{"bare", Config{Without: ^Features(0)}},
		{"tiny", Config{Entries: 8, CompletionEntries: 16, Blocks: 4, BlockBytes: 4096}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			block := tc.cfg.BlockBytes
			if block == 0 {
				block = 16 << 10
			}
			transporttest.Run(t, transporttest.Factory{
				Name: "uring",
				Open: func(tb testing.TB, n int) []transport.Transport {
					trs := make([]transport.Transport, n)
					for i := range trs {
						tr, err := Open(tc.cfg)
						testenv.Require(tb, "uring", err)
						trs[i] = tr
					}
					return trs
				},
				Features:   transporttest.All(),
				BlockBytes: block,
			})
		})
	}
}
