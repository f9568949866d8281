//go:build linux

package weir_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// holding hands out its Ref when it reads 'r', counts what begins with 'n', and echoes everything else.
type holding struct {
	refs chan pipeline.Ref
	read *atomic.Int32
}

func (h holding) ChannelRead(ctx *pipeline.Context, msg any) error {
	switch msg.(interface{ Bytes() []byte }).Bytes()[0] {
	case 'r':
		h.refs <- ctx.Ref()
		return nil
	case 'n':
		h.read.Add(1)
		return nil
	}
	return ctx.Write(msg)
}

func TestAboveMaxPendingBytesNobodyReadsUntilHalfIsLeft(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const limit = 100_000
		for _, held := range []int{limit - 1, limit, limit + 1} {
			srv := &weir.Server{Transport: kind, Loops: 2, MaxPendingBytes: limit}
			refs := make(chan pipeline.Ref, 1)
			var read atomic.Int32
			srv.Init = only(func() any { return holding{refs, &read} })
			addr := startTCP(t, srv)
			stats := func() weir.Stats {
				st, err := srv.Stats(background(t))
				require.NoError(t, err)
				return st
			}
			_, err := io.WriteString(connect(t, "tcp", addr), "r")
			require.NoError(t, err)
			holder := receive(t, refs, "the holder")
			hold := func(n int, want int64) {
				require.NoError(t, holder.Execute(func(ctx *pipeline.Context) { ctx.Hold(n) }))
				eventually(t, func() bool { return stats().PendingBytes == want }, "%d bytes pending", want)
			}
			neighbours := []net.Conn{connect(t, "tcp", addr), connect(t, "tcp", addr), connect(t, "tcp", addr)}
			for _, c := range neighbours {
				require.NoError(t, ping(c, "hello"))
			}
			eventually(t, func() bool { return stats().PendingBytes == 0 }, "the responses are sent")
			hold(held, int64(held))
			for _, c := range neighbours { // without a response, which would be pending itself for a moment
				_, err := io.WriteString(c, "n")
				require.NoError(t, err)
			}
			eventually(t, func() bool { return int(read.Load()) == len(neighbours) }, "one more read each")
			if held <= limit {
				assert.Zero(t, stats().PendingPaused, "%d held", held)
				assert.Zero(t, stats().PendingRises)
				require.NoError(t, srv.Close())
				continue
			}
			eventually(t, func() bool { return stats().PendingPaused == len(neighbours) }, "all wait")
			for _, c := range neighbours {
				_, err := io.WriteString(c, "wait for it")
				require.NoError(t, err)
			}
			hold(-(held - limit/2 - 1), limit/2+1)
			assert.Equal(t, len(neighbours), stats().PendingPaused, "more than half is left")
			hold(-1, limit/2)
			for _, c := range neighbours {
				got := make([]byte, len("wait for it"))
				_, err := io.ReadFull(c, got)
				require.NoError(t, err)
				assert.Equal(t, "wait for it", string(got))
			}
			assert.Zero(t, stats().PendingPaused)
			assert.EqualValues(t, 1, stats().PendingRises)
			require.NoError(t, srv.Close())
			assert.Zero(t, stats().PendingBytes)
		}
	})
}

// responder answers each byte with as many bytes as it is told.
type responder struct{ size int }

func (r responder) ChannelRead(ctx *pipeline.Context, msg any) error {
	var errs []error
	for range msg.(interface{ Bytes() []byte }).Bytes() {
		errs = append(errs, ctx.Write(make([]byte, r.size)))
	}
	return errors.Join(errs...)
}

func TestMaxPendingBytesBoundsWhatAllPeersTogetherDoNotTake(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const limit, clients, requests, size = 4 << 20, 20, 40, 64 << 10
		srv := &weir.Server{
			Transport: kind, Loops: 2, MaxPendingBytes: limit,
			Init:   only(func() any { return responder{size} }),
			Socket: transport.SocketConfig{SendBufferBytes: 16 << 10}, // the kernel takes little
		}
		addr := startTCP(t, srv)
		var conns [clients]net.Conn
		for i := range conns {
			conns[i] = connect(t, "tcp", addr)
		}
		for range requests { // one at a time: each is a read
			for _, c := range conns {
				_, err := io.WriteString(c, "x")
				require.NoError(t, err)
			}
			st, err := srv.Stats(background(t))
			require.NoError(t, err)
			assert.Less(t, st.PendingBytes, int64(limit+clients*requests/2*size), "far from all")
		}
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.PendingPaused == clients
		}, "everybody waits")
		require.NoError(t, all(clients, func(i int) error { // nothing is lost
			_, err := io.CopyN(io.Discard, conns[i], requests*size)
			return err
		}))
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.PendingBytes == 0 && st.PendingPaused == 0
		}, "nothing is pending")
	})
}

// Whatever ends a channel: what it had pending is given back.
func TestWhatWasPendingIsGivenBackWhateverEnds(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed, 3))
			srv := &weir.Server{Transport: kind, Loops: 2, MaxPendingBytes: 1 << 20}
			srv.Socket.SendBufferBytes = 16 << 10 // the kernel takes little
			srv.Init = only(func() any { return responder{30_000} })
			srv.Channel.MaxPendingBytes = 200_000 // some are aborted for it
			addr := startTCP(t, srv)
			plans := make([]uint64, 40)
			for i := range plans {
				plans[i] = rng.Uint64()
			}
			require.NoError(t, all(len(plans), func(i int) error {
				rng := rand.New(rand.NewPCG(plans[i], 4))
				c, err := net.Dial("tcp", addr)
				if err != nil {
					return err
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				for range rng.IntN(12) {
					if _, err := c.Write(make([]byte, 1+rng.IntN(20))); err != nil {
						break // it was aborted
					}
					_, _ = io.CopyN(io.Discard, c, int64(rng.IntN(2)))
				}
				if rng.IntN(2) == 0 {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
				return c.Close()
			}))
			eventually(t, func() bool {
				st, err := srv.Stats(background(t))
				return err == nil && st.Open == 0
			}, "all closed")
			st, err := srv.Stats(background(t))
			require.NoError(t, err)
			assert.Zero(t, st.PendingBytes, "seed %d", seed)
			assert.Zero(t, st.PendingPaused, "seed %d", seed)
			require.NoError(t, srv.Close())
		}
	})
}
