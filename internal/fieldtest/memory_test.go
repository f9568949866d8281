//go:build linux

package fieldtest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

func TestAMessageAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("builds with -tags invariants record where each Buf was taken")
	}
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				messages := scaled(100_000, 20_000)
				r := newRigOn(t, network, &weir.Server{Transport: kind, Loops: 1, WatchdogAfter: -1}, initEcho)
				c := r.dial()
				// The client makes its calls itself: a deadline of package net, say, is a timer.
				raw, err := c.(syscall.Conn).SyscallConn()
				require.NoError(t, err)
				sent, got := bytes.Repeat([]byte("m"), 64), make([]byte, 64)
				failed := error(nil)
				errs := 0
				require.NoError(t, raw.Control(func(fd uintptr) {
					if failed = syscall.SetNonblock(int(fd), false); failed != nil {
						return
					}
					trip := func() {
						if n, err := syscall.Write(int(fd), sent); n != len(sent) || err != nil {
							errs++
						}
						for at := 0; at < len(got); {
							n, err := syscall.Read(int(fd), got[at:])
							if n <= 0 || err != nil {
								errs++
								return
							}
							at += n
						}
					}
					for range 2000 {
						trip()
					}
					defer debug.SetGCPercent(debug.SetGCPercent(-1))
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for range messages {
						trip()
					}
					runtime.ReadMemStats(&after)
					t.Logf("%d allocations for %d messages", after.Mallocs-before.Mallocs, messages)
					assert.Less(t, after.Mallocs-before.Mallocs, uint64(100))
				}))
				require.NoError(t, failed)
				assert.Zero(t, errs)
			})
		})
	}
}

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
		runtime.ReadMemStats(&before)
		rounds(messages / batch)
		runtime.ReadMemStats(&after)
		assert.Zero(t, errs)
		assert.Less(t, after.Mallocs-before.Mallocs, uint64(100), "for %d writes", messages)
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

func TestBuffersThatAreKeptPastTheEndStayWhatTheyWere(t *testing.T) {
	covers(t, "cloudwego/netpoll#143")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, size := scaled(400, 80), 20_000
		var wrong, kept atomic.Int64
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, only(func() any {
			var bufs []*buffer.Buf
			return &hooks{
				read: func(_ *pipeline.Context, b *buffer.Buf) error {
					bufs = append(bufs, b.Retain())
					kept.Add(1)
					return nil
				},
				inactive: func(ctx *pipeline.Context) error {
					at, seed := -1, uint64(0)
					for _, b := range bufs {
						p := b.Bytes()
						if at < 0 {
							at, seed = 0, uint64(p[0]) // its first byte says which stream follows
							p = p[1:]
						}
						want := make([]byte, len(p))
						if pattern(want, seed, at); !bytes.Equal(want, p) {
							wrong.Add(1)
						}
						at += len(p)
						b.Release()
					}
					return nil
				},
			}
		}))
		require.NoError(t, all(8, func(k int) error {
			for i := range conns / 8 {
				c, err := r.tryDial()
				if err != nil {
					return err
				}
				seed := byte(i*8 + k)
				text := append([]byte{seed}, stream(uint64(seed), size)...)
				for len(text) > 0 {
					n := min(len(text), 1+(i*731)%7000)
					if _, err := c.Write(text[:n]); err != nil {
						return err
					}
					text = text[n:]
				}
				switch i % 3 {
				case 0:
					err = c.Close()
				case 1:
					err = reset(c)
				default:
					err = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
					c.Close()
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
		r.eventually(func() bool { return r.Closed.Load() == int64(conns) }, "all are closed")
		assert.Zero(t, wrong.Load(), "buffers with bytes of somebody else")
		assert.NotZero(t, kept.Load())
	})
}
