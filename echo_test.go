//go:build linux

package weir_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/invariants"
)

func TestAMessageCostsNoAllocation(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks write down who takes what")
	}
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		c := connect(t, "tcp", startTCP(t, &weir.Server{Transport: kind, Loops: 1, Init: initEcho}))
		buf := make([]byte, 512)
		rounds := func(n int) error {
			for range n {
				if _, err := c.Write(buf); err != nil {
					return err
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					return err
				}
			}
			return nil
		}
		require.NoError(t, rounds(1000)) // pools and queues grow to their size
		const n = 5000
		var before, after runtime.MemStats
		least := ^uint64(0)
		for range 5 { // others allocate too: the runtime, the test's own goroutines
			runtime.ReadMemStats(&before)
			require.NoError(t, rounds(n))
			runtime.ReadMemStats(&after)
			least = min(least, after.Mallocs-before.Mallocs)
		}
		assert.Less(t, least, uint64(n/100), "allocations for %d messages", n)
	})
}

func TestAMessageThatIsAloneCostsOneWait(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 1, Init: initEcho}
		c := connect(t, "tcp", startTCP(t, srv))
		waits := func() uint64 {
			st, err := srv.Stats(t.Context())
			require.NoError(t, err)
			return st.Loops[0].Kernel.Waits
		}
		buf := make([]byte, 64)
		least := ^uint64(0)
		for range 10 { // a client that was not scheduled in time costs one more each time
			before := waits()
			for range 1000 {
				_, err := c.Write(buf)
				require.NoError(t, err)
				_, err = io.ReadFull(c, buf)
				require.NoError(t, err)
			}
			if least = min(least, waits()-before); least <= 1050 {
				break
			}
		}
		assert.LessOrEqual(t, least, uint64(1050), "calls of Wait that entered the kernel, for 1,000 echoes")
	})
}

func BenchmarkEcho(b *testing.B) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		for _, size := range []int{64, 16 << 10} {
			b.Run(fmt.Sprintf("transport=%s/size=%d", kind, size), func(b *testing.B) {
				needTransport(b, kind)
				c := connect(b, "tcp", startTCP(b, &weir.Server{Transport: kind, Loops: 1, Init: initEcho}))
				buf := make([]byte, size)
				b.ReportAllocs()
				b.SetBytes(int64(2 * size))
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
