package channel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// files opens one file again and again and counts what is open.
type files struct {
	t    *testing.T
	path string
	open int
}

func newFiles(t *testing.T, n int) *files {
	f := &files{t: t, path: filepath.Join(t.TempDir(), "file")}
	require.NoError(t, os.WriteFile(f.path, make([]byte, n), 0o600))
	return f
}

// write writes a region of a file of its own, which its Done closes; a write that fails gives the file back.
func (f *files) write(ctx *pipeline.Context, n int64) error {
	file, err := os.Open(f.path)
	require.NoError(f.t, err)
	f.open++
	closed := false
	done := func(error) {
		assert.False(f.t, closed, "done twice")
		closed = true
		f.open--
		_ = file.Close()
	}
	if err := ctx.Write(&pipeline.FileRegion{File: file, Length: n, Done: done}); err != nil {
		done(err)
		return err
	}
	return nil
}

func TestFileRegionsThatWaitAreBounded(t *testing.T) {
	f := newFiles(t, 1000)
	for _, limit := range []int{0, 1, 10} {
		bound := limit
		if bound == 0 {
			bound = channel.DefaultMaxPendingRegions
		}
		for n := bound - 1; n <= bound+1; n++ {
			p := newPair(t, sim.Config{})
			p.clientConfig.MaxPendingRegions = limit
			server := &probe{}
			client := &probe{}
			client.onActive = func(ctx *pipeline.Context) error {
				for i := range n {
					if err := f.write(ctx, 1000); i < bound {
						assert.NoError(t, err)
					} else {
						assert.ErrorIs(t, err, pipeline.ErrPendingLimit)
					}
				}
				return nil
			}
			p.connect(server, client)
			if n > bound {
				p.until("aborted", func() bool { return client.inactive == 1 })
				assert.ErrorIs(t, client.cause, pipeline.ErrPendingLimit)
			} else {
				p.until("all has arrived", func() bool { return server.got.Len() == n*1000 })
				assert.NoError(t, client.ctx.Cause())
			}
			assert.Zero(t, f.open)
		}
	}
}

func TestRegionsThatWereSentMakeRoom(t *testing.T) {
	f := newFiles(t, 1000)
	p := newPair(t, sim.Config{})
	p.clientConfig.MaxPendingRegions = 2
	server := &probe{}
	client := &probe{}
	p.connect(server, client)
	for i := range 20 {
		require.NoError(t, f.write(client.ctx, 1000))
		require.NoError(t, f.write(client.ctx, 500))
		p.until("both have been sent", func() bool { return server.got.Len() == (i+1)*1500 && f.open == 0 })
	}
}

// Whatever becomes of a channel, what its writes took is given back: descriptors, blocks, what is pending.
func TestEveryEndGivesBackWhatWritesTook(t *testing.T) {
	f := newFiles(t, 100_000)
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			faults := sim.Faults{}
			if seed%3 == 0 {
				faults = sim.Mild()
			}
			p := newSeededPair(t, seed, sim.Config{
				Faults: faults, SendBufferBytes: 16 << 10, ReceiveBufferBytes: 16 << 10,
			})
			p.clientConfig = channel.Config{
				MaxPendingRegions: 1 + rng.IntN(8), MaxPendingBytes: 128 << 10,
				CloseTimeout: time.Second, PausedCloseTimeout: time.Second,
			}
			p.serverConfig = channel.Config{CloseTimeout: time.Second, PausedCloseTimeout: time.Second}
			stalls := rng.IntN(2) == 0
			server := &probe{onActive: func(ctx *pipeline.Context) error {
				if stalls {
					ctx.Pause()
				}
				return nil
			}}
			p.listen(func() []any { return []any{server} })
			pending, flushes := -1, 0
			client := &probe{onInactive: func(ctx *pipeline.Context) error {
				pending = ctx.Pending()
				assert.Error(t, f.write(ctx, 10))
				return nil
			}}
			if _, err := p.tryDial(client); err != nil { // by a fault
				return
			}
			for range 60 {
				if client.ctx == nil || client.inactive > 0 {
					break
				}
				writeSomething(f, client.ctx, rng, &flushes)
				p.run(time.Duration(rng.IntN(2_000_000)))
			}
			end(p, server, client, rng)
			p.until("all is closed", func() bool { return client.inactive == client.active && f.open == 0 })
			if client.active == 1 {
				assert.Zero(t, pending)
			}
			p.until("every callback has run", func() bool { return flushes == 0 })
		})
	}
	assert.Zero(t, f.open)
}

func writeSomething(f *files, ctx *pipeline.Context, rng *rand.Rand, flushes *int) {
	switch rng.IntN(5) {
	case 0:
		b := ctx.Pool().Get(4000)
		b.Append(make([]byte, 1+rng.IntN(4000)))
		_ = ctx.Write(b)
		b.Release()
	case 1:
		_ = ctx.WriteBytes(make([]byte, rng.IntN(2000)))
	case 2, 3:
		_ = f.write(ctx, int64(rng.IntN(100_000)))
	case 4:
		*flushes++
		ctx.Flushed(func(error) { *flushes-- })
	}
}

// end ends the connection in one of the ways there are.
func end(p *pair, server, client *probe, rng *rand.Rand) {
	if client.ctx == nil {
		return
	}
	switch rng.IntN(5) {
	case 0:
		_ = client.ctx.Close()
	case 1:
		client.ctx.Abort(errTest)
	case 2:
		_ = client.ctx.CloseWrite()
		p.run(time.Millisecond)
		_ = client.ctx.Close()
	case 3:
		if server.ctx != nil {
			server.ctx.Abort(errTest)
		}
	case 4:
		if server.ctx != nil {
			_ = server.ctx.Close()
		}
	}
	p.run(3 * time.Second)
	client.ctx.Abort(errTest)
}

// TestARegionBehindTheLastOffsetIsRefused by the write, after which the channel goes on: the kernel would end it.
func TestARegionBehindTheLastOffsetIsRefused(t *testing.T) {
	file, err := os.Open(newFiles(t, 10).path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	const last = math.MaxInt64
	for _, m := range []pipeline.FileRegion{
		{Offset: last, Length: 1},
		{Offset: 1, Length: last},
		{Offset: last - 5, Length: 6},
		{Offset: last, Length: last},
		{Offset: -1, Length: 1},
		{Offset: 1, Length: -1},
	} {
		p := newPair(t, sim.Config{})
		client, server := dialPair(p)
		m.File = file
		m.Done = func(error) { t.Error("done for a region that was refused") }
		require.ErrorContains(t, client.ctx.Write(&m), "file region", "%d, %d", m.Offset, m.Length)
		require.NoError(t, client.ctx.WriteBytes([]byte("on")))
		p.until("what follows arrives", func() bool { return server.got.String() == "on" })
	}
	for _, offset := range []int64{last - 1, last} {
		p := newPair(t, sim.Config{})
		client, _ := dialPair(p)
		require.NoError(t, client.ctx.Write(&pipeline.FileRegion{File: file, Offset: offset, Length: last - offset}))
	}
}

func dialPair(p *pair) (client, server *probe) {
	client, server = &probe{}, &probe{}
	p.connect(server, client)
	p.until("both are active", func() bool { return client.active == 1 && server.active == 1 })
	return client, server
}
