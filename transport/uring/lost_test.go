//go:build linux

package uring

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/ring/ringtest"
	"github.com/weirnet/weir/transport"
)

// TestALostCompletionEndsTheTransport with an error that says so, whichever operation it was of, and before a send
// whose completion was lost passes for one that was taken whole. Nothing is handed out afterwards, no Buf and no
// descriptor is left, and nobody closes a descriptor twice.
func TestALostCompletionEndsTheTransport(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lost := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed=%d", seed+1), func(t *testing.T) {
			w := newWorld(t, seed, ringtest.Script{ShortSend: 64, Late: 16, Overflow: 16, Drop: 8})
			failed := -1
			for turn := 0; failed < 0 && turn < 2000; turn++ {
				w.act(w.sides[w.rng.IntN(len(w.sides))])
				end := w.rng.IntN(2)
				out, err := w.trs[end].Wait(make([]transport.Completion, 0, 16), 0)
				if err != nil {
					require.ErrorIs(t, err, ErrLost)
					require.Empty(t, out)
					failed = end
				}
				for i := range out {
					w.record(end, &out[i])
				}
			}
			drops := w.kernels[0].Faults().Drops + w.kernels[1].Faults().Drops
			require.Equal(t, drops > 0, failed >= 0, "%d completions were lost", drops)
			if failed >= 0 {
				lost++
				tr := w.trs[failed]
				require.EqualValues(t, w.kernels[failed].Faults().Drops, tr.Counters().Lost)
				require.Zero(t, tr.outstanding, "nothing is left in the kernel")
				for range 2 {
					out, err := tr.Wait(nil, time.Hour)
					require.ErrorIs(t, err, ErrLost)
					require.Empty(t, out)
				}
				tr.Submit(transport.Op{Kind: transport.Recv, Handle: w.sides[0].h, Token: 1, Limit: 1})
			}
			for end, tr := range w.trs {
				err := tr.Close()
				require.True(t, err == nil || errors.Is(err, transport.ErrClosed))
				for _, c := range w.calls[end] {
					for _, b := range c.op.Bufs {
						b.Release()
					}
				}
				require.Zero(t, tr.Pool().Outstanding(), "%v", tr.Pool().Leaks())
				require.Zero(t, tr.Stats().Open)
			}
			require.NoError(t, w.file.Close())
		})
	}
	require.Greater(t, lost, 20)
}
