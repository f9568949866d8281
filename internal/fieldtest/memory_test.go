//go:build linux

package fieldtest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

func TestAWriteOfAnotherGoroutineAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("builds with -tags invariants record where each Buf was taken")
	}
	covers(t, "panjf2000/gnet#214")
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const messages, batch = 20_000, 20
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1, WatchdogAfter: -1}, keeper)
		c := r.dial()
		ref := r.kept(1)[0]
		text, got := bytes.Repeat([]byte("w"), 64), make([]byte, 64*batch)
		errs := 0
		rounds := func(n int) {
			for range n {
				for range batch {
					if ref.TryWrite(text) != nil {
						errs++
					}
				}
				if _, err := io.ReadFull(c, got); err != nil {
					errs++
				}
			}
		}
		rounds(200)
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		var before, after runtime.MemStats
		least := ^uint64(0)
		for range 3 { // others allocate too: the runtime, the test's own goroutines
			runtime.ReadMemStats(&before)
			rounds(messages / batch)
			runtime.ReadMemStats(&after)
			least = min(least, after.Mallocs-before.Mallocs)
		}
		assert.Zero(t, errs)
		assert.Less(t, least, uint64(100), "for %d writes", messages)
	})
}

func TestConnectionsThatComeAndGoLeaveNoMemory(t *testing.T) {
	covers(t, "panjf2000/gnet#546")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns := scaled(10_000, 1000)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, only(func() any {
			return &hooks{active: func(ctx *pipeline.Context) error {
				if ctx.LocalAddr() == nil || ctx.RemoteAddr() == nil || !ctx.RemoteAddrPort().IsValid() {
					return fmt.Errorf("addresses %v, %v", ctx.LocalAddr(), ctx.RemoteAddr())
				}
				return ctx.WriteBytes([]byte("x"))
			}}
		}))
		addresses := []string{r.Address}
		if l, err := net.Listen("tcp6", "[::1]:0"); err == nil { // IPv6 is there
			l.Close()
			six, err := r.Server.Listen("tcp6", "[::1]:0")
			require.NoError(t, err)
			addresses = append(addresses, six.String())
		}
		churn := func(n int) {
			require.NoError(t, all(8, func(k int) error {
				for i := range n / 8 {
					c, err := net.Dial("tcp", addresses[(i+k)%len(addresses)])
					if err != nil {
						return err
					}
					_, err = io.ReadFull(c, make([]byte, 1))
					c.Close()
					if err != nil {
						return err
					}
				}
				return nil
			}))
			r.eventually(func() bool { return r.stats().Open == 0 }, "all are closed")
		}
		churn(conns / 5)
		before := heapBytes()
		churn(conns)
		grown := heapBytes() - before
		t.Logf("%d connections: the heap grew by %d bytes", conns, grown)
		assert.Less(t, grown, 1<<20+conns*32,
			"a connection leaves nothing; half of what the smallest address takes is allowed")
		r.OnLoop(0, func(l *loop.Loop) { assert.Less(t, l.Stats().Registered, 10) })
	})
}

func heapBytes() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestLargeMessagesAtAHighRateKeepTheMemoryFlat(t *testing.T) {
	covers(t, "lesismal/nbio#113")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const size, conns = 1_500_000, 4
		messages := scaled(60, 10)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, initEcho)
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = r.dial()
		}
		before := residentBytes(t)
		require.NoError(t, all(conns, func(i int) error {
			data, got := stream(uint64(i), size), make([]byte, size)
			sent := make(chan error, 1)
			for range messages {
				go func() {
					_, err := clients[i].Write(data)
					sent <- err
				}()
				if _, err := io.ReadFull(clients[i], got); err != nil {
					return err
				}
				if err := <-sent; err != nil {
					return err
				}
				if !bytes.Equal(got, data) {
					return fmt.Errorf("client %d: wrong bytes", i)
				}
			}
			return nil
		}))
		r.settled()
		free := 0
		r.OnLoop(0, func(l *loop.Loop) { free = l.Pool().FreeBytes() })
		t.Logf("free in the pool %d KiB, the process grew by %d KiB", free>>10, (residentBytes(t)-before)>>10)
		assert.LessOrEqual(t, free, 32<<20, "the pool keeps what it is allowed to")
		assert.Less(t, residentBytes(t)-before, 128<<20)
	})
}

func TestWhatIsWrittenMayBeUsedAgainAtOnce(t *testing.T) {
	covers(t, "hodgesds/iouring-go#4")
	for _, size := range []int{16, 1024, 1025, 64 << 10, 200_000} {
		t.Run(fmt.Sprintf("size=%d", size), func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				const conns = 5
				writes := min(1000, 8<<20/size)
				r := newRig(t, &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{MaxPendingBytes: 64 << 20}}, keeper)
				clients := make([]net.Conn, conns)
				for i := range clients {
					clients[i] = r.dial()
				}
				refs := r.kept(conns)
				one := make([]byte, size) // for all writes of all connections
				for _, ref := range refs {
					r.execute(ref, func(ctx *pipeline.Context) {
						for k := range writes {
							pattern(one, 6, k*size)
							var err error
							if k%2 == 0 {
								err = ctx.WriteBytes(one)
							} else {
								err = ctx.Write(one)
							}
							if err != nil {
								t.Errorf("write %d: %v", k, err)
							}
						}
						clear(one)
					})
				}
				want := stream(6, writes*size)
				for i, c := range clients {
					got := make([]byte, len(want))
					_, err := io.ReadFull(c, got)
					require.NoError(t, err)
					assert.True(t, bytes.Equal(want, got), "connection %d", i)
				}
			})
		})
	}
}
