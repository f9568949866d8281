//go:build linux

package offload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/pipeline"
)

// numberHandler offloads frames of eight bytes as numbers, which need no memory of their own.
func numberHandler(pool *offload.Pool) (any, error) {
	var scratch [8]byte
	return offload.New(pool, offload.Config[*buffer.Buf, uint64, uint64]{
		Detach: func(b *buffer.Buf) (uint64, int) { return binary.BigEndian.Uint64(b.Bytes()), 8 },
		Work:   func(_ context.Context, n uint64) (uint64, error) { return n, nil },
		Done: func(ctx *pipeline.Context, n uint64, err error) error {
			if err != nil {
				return err
			}
			binary.BigEndian.PutUint64(scratch[:], n)
			return ctx.WriteBytes(scratch[:])
		},
	})
}

// frameHandler offloads the same frames as bytes, whose copy is an allocation.
func frameHandler(pool *offload.Pool) (any, error) {
	return offload.Bytes(pool, func(_ context.Context, p []byte) ([]byte, error) { return p, nil },
		func(ctx *pipeline.Context, p []byte, err error) error {
			if err != nil {
				return err
			}
			return ctx.WriteBytes(p)
		})
}

// serveFrames returns a connection to a server of one loop that cuts into eight bytes and offloads to pool.
func serveFrames(tb testing.TB, kind weir.Kind, pool *offload.Pool, handler func(*offload.Pool) (any, error)) net.Conn {
	servertest.Need(tb, kind)
	return servertest.DialTCP(tb, servertest.Serve(tb, kind, func() ([]any, error) {
		frames, err := codec.NewFixedLength(codec.FixedLengthConfig{Bytes: 8})
		h, err2 := handler(pool)
		return []any{frames, h}, errors.Join(err, err2)
	}))
}

// rounds sends so many messages at once and wants them back, n times.
func rounds(c net.Conn, buf []byte, n int) error {
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

func TestAMessageCostsNoAllocationBesidesItsCopy(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks write down who takes what")
	}
	for _, tc := range []struct {
		name    string
		handler func(*offload.Pool) (any, error)
		allowed uint64
	}{{"numbers", numberHandler, 0}, {"frames", frameHandler, 1}} {
		for _, depth := range []int{1, 16} {
			t.Run(fmt.Sprintf("%s/depth=%d", tc.name, depth), func(t *testing.T) {
				eachTransport(t, func(t *testing.T, kind weir.Kind) {
					c := serveFrames(t, kind, newPool(t, offload.PoolConfig{Workers: 2}), tc.handler)
					buf := make([]byte, 8*depth)
					require.NoError(t, rounds(c, buf, 300)) // pools and queues grow to their size
					const n = 400
					var before, after runtime.MemStats
					least := ^uint64(0)
					for range 5 { // others allocate too: the runtime, the test's own goroutines
						runtime.ReadMemStats(&before)
						require.NoError(t, rounds(c, buf, n))
						runtime.ReadMemStats(&after)
						least = min(least, after.Mallocs-before.Mallocs)
					}
					messages := uint64(n * depth)
					assert.Less(t, least, messages*tc.allowed+n/10, "allocations for %d messages", messages)
				})
			})
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		for _, depth := range []int{1, 16} {
			b.Run(fmt.Sprintf("transport=%s/depth=%d", kind, depth), func(b *testing.B) {
				c := serveFrames(b, kind, newPool(b, offload.PoolConfig{}), numberHandler)
				buf := make([]byte, 8*depth)
				b.ReportAllocs()
				for b.Loop() {
					if err := rounds(c, buf, 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
