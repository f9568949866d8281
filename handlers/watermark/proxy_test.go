//go:build linux

package watermark_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// relay is one side of a proxy: it writes what it receives to the other side. It does not look at what is pending.
type relay struct{ other *pipeline.Context }

func (r *relay) ChannelRead(_ *pipeline.Context, msg any) error { return r.other.Write(msg) }

func (r *relay) ChannelReadClosed(*pipeline.Context) error { return r.other.CloseWrite() }

func (r *relay) ChannelInactive(ctx *pipeline.Context) error {
	if r.other != nil {
		_ = r.other.Close()
	}
	ctx.FireInactive()
	return nil
}

// entrance is the side of the proxy that was connected to: it connects the other one first.
type entrance struct {
	relay
	side    *side
	cfg     watermark.Config
	address string
	far     atomic.Pointer[watermark.Handler]
}

func (e *entrance) ChannelActive(ctx *pipeline.Context) error {
	ctx.Pause()
	return ctx.Dial("tcp", e.address, func(p *pipeline.Pipeline) error {
		h, err := watermark.New(e.cfg)
		if err != nil {
			return err
		}
		if err := p.AddLast("watermark", h); err != nil {
			return err
		}
		if err := p.AddLast("exit", &relay{other: ctx}); err != nil {
			return err
		}
		e.other = p.Context("exit")
		e.side.h.Follow(h)
		h.Follow(e.side.h)
		e.far.Store(h)
		ctx.Resume()
		return e.other.Control(func(fd uintptr) error {
			return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF,
				8<<10)
		})
	}, ctx.Abort)
}

func TestASlowFarSideOfAProxyHoldsTheNearSideUp(t *testing.T) {
	const each = 1 << 20
	cfg := watermark.Config{HighBytes: 64 << 10, BudgetBytes: 16 << 10}
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<10) })
		}}
		sink, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { sink.Close() })
		entrances := make(chan *entrance, 1)
		r := serve(t, kind, setup{cfg: cfg, behind: func(s *side) []any {
			e := &entrance{side: s, cfg: cfg, address: sink.Addr().String()}
			entrances <- e
			return []any{e}
		}})
		c, s := r.connect()
		accepted, err := sink.Accept()
		require.NoError(t, err)
		far := accepted.(*net.TCPConn)
		t.Cleanup(func() { far.Close() })
		require.NoError(t, far.SetDeadline(time.Now().Add(patience)))
		require.NoError(t, far.SetWriteBuffer(8<<10))
		e := <-entrances

		for i, way := range []struct {
			from, to *net.TCPConn
			level    func() watermark.Level // of the side that is held up
		}{
			{c, far, s.h.Level},
			{far, c, func() watermark.Level { return e.far.Load().Level() }},
		} {
			var writer sync.WaitGroup
			writer.Go(func() {
				_, err := way.from.Write(stream(i, each))
				assert.NoError(t, err)
				assert.NoError(t, way.from.CloseWrite())
			})
			blocked(t, way.from, way.level)
			held := r.held()
			assert.LessOrEqual(t, held, cfg.HighBytes+cfg.BudgetBytes+64<<10, "memory that is held, way %d", i)
			t.Logf("way %d: %d bytes are held, %d of them pending at the near side", i, held, s.ref.Pending())
			if i == 0 {
				assert.Zero(t, s.ref.Pending(), "it is held up for the far side alone")
			}
			require.NoError(t, expect(way.to, i, 0, each), "way %d", i)
			writer.Wait()
		}
		assert.NoError(t, s.closeCause(), "both have finished")
		assert.Zero(t, r.stats.Snapshot().OverLimits)
	})
}

// A sink that many channels on two loops fill takes a small piece at a time.
func TestASinkThatManyFillServesEverybodyAndLeavesNobodyPaused(t *testing.T) {
	const peers, each, piece = 200, 32 << 10, 4 << 10
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		shared := newShared(t, watermark.SharedConfig{
			HighBytes: 64 << 10, LowBytes: 16 << 10, FloorBytes: 512,
			ResumesPerTurn: 8,
		})
		var queued atomic.Int64
		stop := make(chan struct{})
		var sink sync.WaitGroup
		sink.Go(func() {
			for {
				if n := min(queued.Load(), piece); n > 0 {
					queued.Add(-n)
					shared.Add(-n)
					continue
				}
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Microsecond):
				}
			}
		})
		r := serve(t, kind, setup{
			loops: 2,
			cfg:   watermark.Config{BudgetBytes: 8 << 10, Shared: []*watermark.Shared{shared}},
			behind: func(*side) []any {
				got := 0
				return []any{onRead(func(ctx *pipeline.Context, msg any) error {
					n := bytesOf(msg)
					got += n
					shared.Add(int64(n))
					queued.Add(int64(n))
					if got == each {
						return ctx.WriteBytes(stream(repliesSeed, 8))
					}
					return nil
				})}
			},
		})
		clients, sides := make([]*net.TCPConn, peers), make([]*side, peers)
		for i := range clients {
			clients[i], sides[i] = r.connect()
		}
		all(t, peers, func(i int) error {
			if _, err := clients[i].Write(stream(i, each)); err != nil {
				return err
			}
			return expect(clients[i], repliesSeed, 0, 8)
		})
		for i, s := range sides {
			eventually(t, func() bool { return s.h.Level() == watermark.Normal }, "channel %d is not held", i)
		}
		assert.Positive(t, shared.Rises())
		assert.Positive(t, r.stats.Snapshot().Pauses)
		t.Logf("%d rises, %d pauses", shared.Rises(), r.stats.Snapshot().Pauses)
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
		for _, s := range sides {
			_ = s.closeCause()
		}
		close(stop)
		sink.Wait()
		assert.Zero(t, shared.Value(), "the sink is empty")
		assert.Zero(t, shared.ReservedBytes())
	})
}
