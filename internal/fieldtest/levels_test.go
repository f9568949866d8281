//go:build linux

package fieldtest

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/handlers/logging"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// doubler sends back what it receives twice, now and then with a detour that crosses the marks.
type doubler struct{ rnd *rand.Rand }

func (d *doubler) ChannelRead(ctx *pipeline.Context, msg any) error {
	switch d.rnd.IntN(8) {
	case 0:
		ctx.Hold(20 << 10)
		ctx.Hold(-20 << 10)
	case 1:
		if err := ctx.Flush(); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Write(msg), ctx.Write(msg))
}

func TestChannelsAtTheirMarksNeverStall(t *testing.T) {
	covers(t, "netty/netty#8427")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, size := scaled(12, 4), 256<<10
		var stats watermark.Stats
		var made atomic.Uint64
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1, Socket: smallBuffers}, func(p *pipeline.Pipeline) error {
			h, err := watermark.New(watermark.Config{
				HighBytes: 16 << 10, LowBytes: 4 << 10, HardLimitBytes: 1 << 20, BudgetBytes: 8 << 10,
				Stats: &stats,
			})
			if err != nil {
				return err
			}
			return errors.Join(p.AddLast("level", h), p.AddLast("doubler", &doubler{rand.New(rand.NewPCG(made.Add(1), 9))}))
		})
		for range conns {
			require.NoError(t, shrink(r.dial()))
		}
		require.NoError(t, all(conns, func(i int) error {
			c := r.clients[i]
			go func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 31))
				for sent := 0; sent < size; {
					n, err := c.Write(make([]byte, min(size-sent, between(rnd, 1, 30_000))))
					if sent += n; err != nil {
						return // the reader finds out
					}
				}
				_ = c.(*net.TCPConn).CloseWrite()
			}()
			rnd := rand.New(rand.NewPCG(uint64(i), 32))
			buf, got := make([]byte, 32<<10), 0
			for {
				n, err := c.Read(buf[:between(rnd, 1, len(buf))])
				got += n
				if err == io.EOF && got == 2*size {
					return c.Close()
				}
				if err != nil {
					return fmt.Errorf("client %d: after %d of %d bytes: %w", i, got, 2*size, err)
				}
				if rnd.IntN(50) == 0 {
					time.Sleep(time.Duration(rnd.IntN(1000)) * time.Microsecond)
				}
			}
		}))
		s := stats.Snapshot()
		assert.Greater(t, s.Pauses, uint64(conns), "the marks were reached")
		assert.Zero(t, s.OverLimits)
	})
}

func TestAPeerThatNeverReadsIsLetGoAtTheHardLimit(t *testing.T) {
	covers(t, "panjf2000/gnet#420", "lesismal/nbio#40")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const hard, piece = 256 << 10, 1000
		cause := make(chan error, 1)
		srv := &weir.Server{Transport: kind, Loops: 1, Socket: smallBuffers}
		r := newRig(t, srv, func(p *pipeline.Pipeline) error {
			h, err := watermark.New(watermark.Config{HighBytes: 64 << 10, HardLimitBytes: hard})
			if err != nil {
				return err
			}
			return errors.Join(p.AddLast("level", h), p.AddLast("end", &hooks{
				active: keep,
				inactive: func(ctx *pipeline.Context) error {
					if ctx.Cause() != nil {
						cause <- ctx.Cause()
					}
					return nil
				},
				read: func(ctx *pipeline.Context, b *buffer.Buf) error { return ctx.Write(b) },
			}))
		})
		c, neighbour := r.dial(), r.dial()
		require.NoError(t, shrink(c))
		refs := r.kept(2)
		ref := refs[0]
		if c.LocalAddr().String() != remote(r, ref) {
			ref = refs[1]
		}
		most := 0
		for i := 0; ; i++ { // each write is a turn of its own, so the newest one is what exceeds the limit
			if err := ref.TryWrite(make([]byte, piece)); err != nil {
				require.ErrorIs(t, err, pipeline.ErrClosed)
				break
			}
			if i%50 == 0 {
				require.NoError(t, ping(neighbour, "still there"))
			}
			r.OnLoop(0, func(*loop.Loop) { most = max(most, ref.Pending()) })
		}
		t.Logf("%d bytes were pending", most)
		assert.ErrorIs(t, receive(t, cause, "the end"), watermark.ErrOverLimit)
		assert.Greater(t, most, hard, "not before")
		assert.Less(t, most, hard+piece+blockBytes, "not later")
		require.NoError(t, ping(neighbour, "and now"))
	})
}

// blockBytes is the block that small writes are gathered in, which pending counts whole.
const blockBytes = 64 << 10

// remote returns the address of a channel's peer.
func remote(r *rig, ref pipeline.Ref) (addr string) {
	r.execute(ref, func(ctx *pipeline.Context) { addr = ctx.RemoteAddr().String() })
	return addr
}

func TestSilentPeersAreLetGoAndLeaveNoTimer(t *testing.T) {
	covers(t, "panjf2000/gnet#526", "xtaci/gaio#17")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns := scaled(500, 100)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, func(p *pipeline.Pipeline) error {
			h, err := idle.New(idle.Config{Reader: 20 * time.Millisecond, All: time.Hour})
			if err != nil {
				return err
			}
			return errors.Join(p.AddLast("idle", h), p.AddLast("end", &closeWhenIdle{}))
		})
		for range conns {
			_, err := io.WriteString(r.dial(), "hello")
			require.NoError(t, err)
		}
		require.NoError(t, all(conns, func(i int) error {
			text, err := io.ReadAll(r.clients[i])
			if err != nil || string(text) != "too silent" {
				return fmt.Errorf("client %d: %q, %w", i, text, err)
			}
			return r.clients[i].Close()
		}))
		r.eventually(func() bool { return r.Closed.Load() == int64(conns) }, "all are closed")
		r.OnLoop(0, func(l *loop.Loop) { assert.Zero(t, l.Stats().TimersSet) })
		r.asleep(100 * time.Millisecond)
	})
}

// closeWhenIdle says goodbye to a peer that says nothing.
type closeWhenIdle struct{}

func (closeWhenIdle) ChannelEvent(ctx *pipeline.Context, event any) error {
	if e, ok := event.(*idle.Event); ok && e.Kind == idle.Reader && e.First {
		return errors.Join(ctx.Write("too silent"), ctx.Close())
	}
	return nil
}

func TestPeersThatAreTurnedAwayLeaveNothing(t *testing.T) {
	covers(t, "panjf2000/gnet#546")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns := scaled(4000, 400)
		filter, err := ipfilter.New(ipfilter.Config{Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		require.NoError(t, err)
		var told atomic.Int64
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2, Logger: quiet()}, func(p *pipeline.Pipeline) error {
			tell := func(*pipeline.Context) error { told.Add(1); return nil }
			return errors.Join(p.AddLast("filter", filter), p.AddLast("app", &hooks{
				active: tell, inactive: tell, readClosed: tell,
				read: func(*pipeline.Context, *buffer.Buf) error { told.Add(1); return nil },
			}))
		})
		require.NoError(t, all(8, func(int) error {
			for range conns / 8 {
				c, err := r.tryDial()
				if errors.Is(err, syscall.ECONNRESET) {
					continue // turned away before connect has returned
				}
				if err != nil {
					return err
				}
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
				if _, err = c.Read(make([]byte, 1)); err == nil {
					return errors.New("a denied peer got an answer")
				}
				c.Close()
			}
			return nil
		}))
		r.eventually(func() bool { return r.Closed.Load() == int64(conns) }, "all are closed")
		r.settled()
		assert.EqualValues(t, conns, filter.Stats().Rejected)
		assert.Zero(t, told.Load(), "what the handlers behind were told")
	})
}

func TestEachEndIsLoggedOnce(t *testing.T) {
	covers(t, "panjf2000/gnet#398", "panjf2000/gnet#29")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, writes := scaled(60, 20), 500
		var log logbook
		logger := slog.New(slog.NewTextHandler(&log, nil))
		srv := &weir.Server{Transport: kind, Loops: 2, Logger: logger, Socket: smallBuffers}
		r := newRig(t, srv, func(p *pipeline.Pipeline) error {
			h, err := logging.New(logging.Config{})
			if err != nil {
				return err
			}
			return errors.Join(p.AddLast("end", &hooks{active: func(ctx *pipeline.Context) error {
				ctx.FireActive()
				return keep(ctx)
			}}), p.AddLast("log", h))
		})
		for range conns {
			r.dial()
		}
		refs := r.kept(conns)
		require.NoError(t, all(conns, func(i int) error {
			for k := range writes {
				if err := refs[i].TryWrite(make([]byte, 1000)); err != nil && !errors.Is(err, pipeline.ErrClosed) {
					return err
				}
				switch k {
				case writes / 3:
					_ = refs[i].Close()
				case writes / 2:
					if err := reset(r.clients[i]); err != nil {
						return err
					}
				}
			}
			return nil
		}))
		r.eventually(func() bool { return r.Closed.Load() == int64(conns) }, "all are closed")
		assert.Len(t, log.Lines("msg=active"), conns)
		assert.Len(t, log.Lines("msg=inactive"), conns)
		assert.LessOrEqual(t, len(log.Lines("msg=error")), conns, "an error is said once")
		assert.Empty(t, log.Lines("level=ERROR"))
	})
}
