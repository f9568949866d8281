//go:build linux

package weir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// heap is what is alive on the Go heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers have let go
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Many short broadcasts take no more memory than few long ones: it is memory that the bounds count, not payload.
func TestTheBoundsOfASetHoldForMemory(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks write down who takes what")
	}
	const limit, slack = 8 << 20, 1 << 20
	for _, tc := range []struct {
		name string
		init func(set *weir.Set) func(*pipeline.Pipeline) error
		fill func(t *testing.T, set *weir.Set, message []byte) (done func())
	}{
		{
			name: "queued",
			init: func(set *weir.Set) func(*pipeline.Pipeline) error { return only(func() any { return set }) },
			fill: func(t *testing.T, set *weir.Set, message []byte) func() {
				release := blockLoops(t, set.Server)
				for set.Broadcast(message) == nil {
				}
				assert.Greater(t, set.Queued(), limit-len(message)-weir.BroadcastOverheadBytes)
				return func() { close(release) }
			},
		},
		{
			name: "behind",
			init: func(set *weir.Set) func(*pipeline.Pipeline) error {
				return func(p *pipeline.Pipeline) error {
					return errors.Join(p.AddLast("unwritable", unwritable{new(atomic.Int32)}), p.AddLast("set", set))
				}
			},
			fill: func(t *testing.T, set *weir.Set, message []byte) func() {
				for n := 0; n < 2*limit; {
					if set.Broadcast(message) == nil {
						n += len(message) + weir.BroadcastOverheadBytes
					} else {
						sleepABit()
					}
				}
				eventually(t, func() bool { return set.Queued() == 0 }, "everything in the log")
				assert.Greater(t, set.Kept(), limit-len(message)-weir.BroadcastOverheadBytes)
				return func() {}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, size := range []int{1, 17, 200, 5000} {
				srv := &weir.Server{Loops: 1}
				set := &weir.Set{Server: srv, MaxQueuedBytes: limit, MaxBehindBytes: limit}
				srv.Init = tc.init(set)
				startMembers(t, srv, set, 1)
				message := make([]byte, size)
				before := heap()
				done := tc.fill(t, set, message)
				grown := heap() - before
				assert.LessOrEqual(t, grown, int64(limit+limit/4+slack), "broadcasts of %d bytes", size)
				done()
				require.NoError(t, srv.Close())
			}
		})
	}
}

// However the members, the broadcasters and the server end: what was counted is given back, and who broadcasts then
// is told that it is over.
func TestASetOwesNothingWhateverEnds(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		rounds := 12
		if !testenv.Thorough() {
			rounds = 4
		}
		for seed := range uint64(rounds) {
			rng := rand.New(rand.NewPCG(seed, 1))
			srv := &weir.Server{Transport: kind, Loops: 2}
			set := &weir.Set{Server: srv, MaxQueuedBytes: 1 << 20, MaxBehindBytes: 64 << 10}
			var joined atomic.Int32
			srv.Init = func(p *pipeline.Pipeline) error {
				if joined.Add(1)%3 == 0 {
					return errors.Join(p.AddLast("unwritable", unwritable{new(atomic.Int32)}), p.AddLast("set", set))
				}
				return p.AddLast("set", set)
			}
			clients := startMembers(t, srv, set, 9)
			gone := clients[:rng.IntN(len(clients))]
			sizes := []int{1, 100, 2000, 40_000, 1 << 20}
			largest := 3 + rng.IntN(3) // of sizes
			var release chan struct{}
			if rng.IntN(2) == 0 { // more waits than a turn takes
				release = blockLoops(t, srv)
			}
			var senders sync.WaitGroup
			var sent atomic.Int32
			for s := range uint64(2) {
				rng := rand.New(rand.NewPCG(seed, 2+s))
				senders.Go(func() {
					for {
						err := set.Broadcast(make([]byte, sizes[rng.IntN(largest)]))
						sent.Add(1)
						if errors.Is(err, loop.ErrStopped) {
							return
						}
						if err != nil && !errors.Is(err, pipeline.ErrFull) {
							assert.NoError(t, err)
							return
						}
					}
				})
			}
			eventually(t, func() bool { return sent.Load() > 50 }, "broadcasts")
			for _, c := range gone {
				c.Close()
			}
			ended := make(chan struct{})
			hurry, cancel := context.WithCancel(context.Background())
			go func() {
				defer close(ended)
				if rng.IntN(2) == 0 {
					_ = srv.Close()
					return
				}
				cancel()
				_ = srv.Shutdown(hurry)
			}()
			if release != nil {
				close(release)
			}
			receive(t, ended, "the server's end")
			senders.Wait()
			cancel()
			assert.Zero(t, set.Queued(), "seed %d", seed)
			assert.Zero(t, set.Kept(), "seed %d", seed)
			assert.Zero(t, set.Len(), "seed %d", seed)
			closeAll(clients)
		}
	})
}

func closeAll(clients []net.Conn) {
	for _, c := range clients {
		c.Close()
	}
}
