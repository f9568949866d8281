//go:build linux

package uring

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/ring/ringtest"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/transporttest"
)

// openScripted opens a transport on a kernel whose faults begin once it is open.
func openScripted(tb testing.TB, cfg Config, seed uint64, script ringtest.Script) (*Transport, *ringtest.Kernel) {
	tb.Helper()
	k := ringtest.New(seed, script)
	tr, err := open(cfg, ring.Config{Kernel: k})
	require.NoError(tb, err)
	k.Start()
	return tr, k
}

// TestConformanceOnAScriptedKernel runs the suite of all transports while things go wrong that the contract hides.
func TestConformanceOnAScriptedKernel(t *testing.T) {
	small := Config{Entries: 16, CompletionEntries: 32, Blocks: 8, BlockBytes: 4096}
	for i, tc := range []struct {
		name   string
		cfg    Config
		script ringtest.Script
	}{ // all but the first two need -long
		{"everything", small, ringtest.Script{
			EndMultishot: 16, NoBuffers: 16, Late: 16, CancelTooLate: 64, PartialSubmit: 16, Again: 8, Interrupted: 8,
			Overflow:       16,
			ShortPlainSend: 64, NoSplice: 32,
		}},
		{"an older kernel", Config{}, ringtest.Script{
			LacksLimits: true, LacksVectors: true,
		}},
		{"no faults", Config{}, ringtest.Script{}},
		{"multishots end", Config{}, ringtest.Script{EndMultishot: 64}},
		{"no buffers", Config{}, ringtest.Script{NoBuffers: 64}},
		{"late", Config{}, ringtest.Script{Late: 64}},
		{"cancelled too late", Config{}, ringtest.Script{CancelTooLate: 128}},
		{"submitted in parts", Config{}, ringtest.Script{PartialSubmit: 64, Again: 32, Interrupted: 32}},
		{"overflow", small, ringtest.Script{Overflow: 64}},
		{"short waiting sends", Config{}, ringtest.Script{ShortPlainSend: 128}},
		{"no splice", Config{}, ringtest.Script{NoSplice: 64}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if i > 1 && !*flagLong {
				t.Skip("needs -long")
			}
			seed := uint64(1)
			transporttest.Run(t, transporttest.Factory{
				Name: fmt.Sprintf("uring on ringtest, seed %d", seed),
				Open: func(tb testing.TB, n int) []transport.Transport {
					trs := make([]transport.Transport, n)
					for i := range trs {
						trs[i], _ = openScripted(tb, tc.cfg, seed+uint64(i), tc.script)
					}
					return trs
				},
				Features:   transporttest.All(),
				BlockBytes: blockBytes(tc.cfg),
			})
		})
	}
}

// TestAKernelThatRefusesEveryBlockIsTakenAtItsWord: the contract holds all the same, receives are not tried again and
// again, and somebody is told once.
func TestAKernelThatRefusesEveryBlockIsTakenAtItsWord(t *testing.T) {
	warnings := map[transport.Transport]int{}
	transporttest.Run(t, transporttest.Factory{
		Name: "uring without blocks",
		Open: func(tb testing.TB, n int) []transport.Transport {
			trs := make([]transport.Transport, n)
			for i := range trs {
				tr, _ := openScripted(tb, Config{Warn: func(string) { warnings[trs[i]]++ }}, uint64(i),
					ringtest.Script{NoBuffers: 256})
				trs[i] = tr
			}
			return trs
		},
		Features: transporttest.All(),
		Check: func(tb testing.TB, trs []transport.Transport) {
			for _, tr := range trs {
				c := tr.(*Transport).Counters()
				require.LessOrEqual(tb, c.BufferRingEmpty, maxRefusals+c.PolledReceives)
				require.Equal(tb, c.PolledReceives > 0, warnings[tr] == 1)
			}
		},
	})
}
