//go:build linux

package watermark_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	weirchannel "github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

var errOurs = errors.New("enough")

// whole reads the greeting and wants an orderly end behind it.
func whole(t *testing.T, c *net.TCPConn, n int) {
	t.Helper()
	require.NoError(t, expect(c, repliesSeed, 0, n))
	_, err := c.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
}

// ends are the ways in which a channel that is paused because its peer does not read may end.
var ends = []struct {
	name     string
	deadline time.Duration // of the channel, for peers that do nothing
	end      func(t *testing.T, r *rig, c *net.TCPConn, s *side)
	cause    error // nil: orderly
	read     bool  // what the peer had sent was read before
	either   bool  // cause and read depend on what is noticed first
}{
	{name: "the peer closes", either: true, end: func(t *testing.T, _ *rig, c *net.TCPConn, _ *side) {
		require.NoError(t, c.Close()) // with unread input: a reset
	}},
	{name: "the peer resets", either: true, end: func(t *testing.T, _ *rig, c *net.TCPConn, _ *side) {
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
	}},
	{name: "the peer finishes, then reads", read: true, end: func(t *testing.T, _ *rig, c *net.TCPConn, _ *side) {
		require.NoError(t, c.CloseWrite())
		whole(t, c, greetingBytes)
	}},
	{
		name: "the peer finishes and never reads", deadline: 50 * time.Millisecond, cause: weirchannel.ErrPausedClose,
		end: func(t *testing.T, _ *rig, c *net.TCPConn, _ *side) { require.NoError(t, c.CloseWrite()) },
	},
	{name: "we close and the peer reads", end: func(t *testing.T, _ *rig, c *net.TCPConn, s *side) {
		require.NoError(t, s.ref.Close())
		whole(t, c, greetingBytes)
		require.NoError(t, c.Close())
	}},
	{
		name: "we close and the peer never reads", deadline: 50 * time.Millisecond, cause: weirchannel.ErrCloseTimeout,
		end: func(t *testing.T, _ *rig, _ *net.TCPConn, s *side) { require.NoError(t, s.ref.Close()) },
	},
	{name: "we abort", cause: errOurs, end: func(t *testing.T, _ *rig, _ *net.TCPConn, s *side) {
		require.NoError(t, s.ref.Execute(func(ctx *pipeline.Context) { ctx.Abort(errOurs) }))
	}},
	{name: "the server shuts down and the peer reads", end: func(t *testing.T, r *rig, c *net.TCPConn, s *side) {
		ended := make(chan error, 1)
		go func() { ended <- r.Server.Shutdown(context.Background()) }()
		eventually(t, func() bool { return errors.Is(s.ref.TryWrite(nil), pipeline.ErrClosed) }, "it has begun")
		whole(t, c, greetingBytes)
		require.NoError(t, c.Close())
		assert.NoError(t, <-ended)
	}},
	{
		name: "the server shuts down and the peer never reads", deadline: 50 * time.Millisecond,
		cause: weirchannel.ErrCloseTimeout,
		end: func(t *testing.T, r *rig, _ *net.TCPConn, _ *side) {
			assert.NoError(t, r.Server.Shutdown(context.Background()))
		},
	},
	{name: "the server closes", either: true, end: func(t *testing.T, r *rig, _ *net.TCPConn, _ *side) {
		assert.NoError(t, r.Server.Close())
	}},
}

const greetingBytes = 1 << 20

func TestAPausedChannelEndsOnceHoweverItEnds(t *testing.T) {
	for _, tc := range ends {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			eachTransport(t, func(t *testing.T, kind weir.Kind) {
				shared := newShared(t, watermark.SharedConfig{HighBytes: 1 << 20})
				g := &greeter{greeting: greetingBytes}
				r := serve(t, kind, setup{
					cfg:     watermark.Config{HighBytes: 64 << 10, HardLimitBytes: 2 << 20, Shared: []*watermark.Shared{shared}},
					channel: weirchannel.Config{CloseTimeout: tc.deadline, PausedCloseTimeout: tc.deadline},
					behind:  func(*side) []any { return []any{g} },
				})
				c, s := r.connect()
				_, err := io.WriteString(c, "hello?")
				require.NoError(t, err)
				eventually(t, func() bool { return s.h.Level() == watermark.High }, "it is paused")
				tc.end(t, r, c, s)
				cause := s.closeCause()
				if !tc.either {
					assert.ErrorIs(t, cause, tc.cause)
					assert.Equal(t, tc.read, g.read.Load() > 0)
				}
				assert.Equal(t, watermark.Closed, s.h.Level())
				assert.Zero(t, shared.ReservedBytes())
			})
		})
	}
}

// Those who wait for a shared level come and go; the last one, which waits behind them all, goes on.
func TestNobodyWaitsBehindAChannelThatEndedAtASharedLevel(t *testing.T) {
	for name, end := range map[string]func(c *net.TCPConn, s *side) error{
		"the peer resets":   func(c *net.TCPConn, _ *side) error { return errors.Join(c.SetLinger(0), c.Close()) },
		"the peer finishes": func(c *net.TCPConn, _ *side) error { return c.CloseWrite() },
		"we close":          func(c *net.TCPConn, s *side) error { return errors.Join(s.ref.Close(), c.CloseWrite()) },
		"we abort": func(_ *net.TCPConn, s *side) error {
			return s.ref.Execute(func(ctx *pipeline.Context) { ctx.Abort(errOurs) })
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			eachTransport(t, func(t *testing.T, kind weir.Kind) {
				const high = 1 << 20
				shared := newShared(t, watermark.SharedConfig{HighBytes: high})
				r := serve(t, kind, setup{
					cfg:     watermark.Config{Shared: []*watermark.Shared{shared}},
					channel: weirchannel.Config{PausedCloseTimeout: 50 * time.Millisecond},
					behind:  func(*side) []any { return []any{echo} },
				})
				const n = 8
				clients, sides := make([]*net.TCPConn, n), make([]*side, n)
				for i := range clients {
					clients[i], sides[i] = r.connect()
				}
				shared.Add(high)
				for i, c := range clients { // each notices at its next read
					_, err := io.WriteString(c, "a")
					require.NoError(t, err)
					eventually(t, func() bool { return sides[i].h.Level() == watermark.High }, "channel %d waits", i)
				}
				_, err := io.WriteString(clients[n-1], "b")
				require.NoError(t, err)
				for i := range n - 1 {
					require.NoError(t, end(clients[i], sides[i]))
				}
				for i := range n - 1 {
					sides[i].closeCause()
					assert.Equal(t, watermark.Closed, sides[i].h.Level())
				}
				assert.Equal(t, watermark.High, sides[n-1].h.Level())
				shared.Add(-high)
				got := make([]byte, 2)
				_, err = io.ReadFull(clients[n-1], got)
				require.NoError(t, err)
				assert.Equal(t, "ab", string(got))
				eventually(t, func() bool { return sides[n-1].h.Level() == watermark.Normal }, "the last one goes on")
				require.NoError(t, clients[n-1].Close())
				_ = sides[n-1].closeCause()
				assert.Zero(t, shared.ReservedBytes())
				assert.Zero(t, shared.Value())
			})
		})
	}
}

// flood is an application that answers "flood" with far too much, and anything else with itself.
var flood = onRead(func(ctx *pipeline.Context, msg any) error {
	if bytesOf(msg) != len("flood") {
		return ctx.Write(msg)
	}
	return ctx.WriteBytes(stream(repliesSeed, 128<<10))
})

// many is a decoder that finds 100 messages in each read and never stops.
var many = onRead(func(ctx *pipeline.Context, msg any) error {
	for range 100 {
		ctx.FireRead(msg)
	}
	return nil
})

func TestAChannelOverItsLimitIsClosedAndTheServerLives(t *testing.T) {
	cfg := watermark.Config{HighBytes: 128 << 10, HardLimitBytes: 512 << 10}
	for _, tc := range []struct {
		name   string
		behind func(s *side) []any
		cause  func(t *testing.T, c *net.TCPConn, s *side)
	}{
		{
			name:   "by the replies to one read",
			behind: func(s *side) []any { return []any{many, watermark.NewProbe(s.h), flood} },
			cause: func(t *testing.T, c *net.TCPConn, _ *side) {
				_, err := io.WriteString(c, "flood")
				require.NoError(t, err)
			},
		},
		{
			name:   "by another goroutine",
			behind: func(*side) []any { return []any{flood} },
			cause: func(t *testing.T, _ *net.TCPConn, s *side) {
				eventually(t, func() bool {
					err := s.ref.TryWrite(make([]byte, 16<<10))
					runtime.Gosched()
					return errors.Is(err, pipeline.ErrClosed)
				}, "writes are refused")
			},
		},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			eachTransport(t, func(t *testing.T, kind weir.Kind) {
				r := serve(t, kind, setup{cfg: cfg, behind: tc.behind})
				c, s := r.connect()
				tc.cause(t, c, s)
				assert.ErrorIs(t, s.closeCause(), watermark.ErrOverLimit)
				assert.Equal(t, watermark.OverLimit, s.h.Level())
				_, err := io.Copy(io.Discard, c)
				assert.Error(t, err, "the peer is reset")
				assert.EqualValues(t, 1, r.stats.Snapshot().OverLimits)

				next, _ := r.connect()
				_, err = io.WriteString(next, "hi")
				require.NoError(t, err)
				got := make([]byte, 2)
				_, err = io.ReadFull(next, got)
				require.NoError(t, err)
				assert.Equal(t, "hi", string(got))
			})
		})
	}
}

// Posted, a message counts its bytes, and written the blocks that it lies in. That is one message all the same.
func TestOnePostedMessageMayExceedTheHardLimit(t *testing.T) {
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		r := serve(t, kind, setup{
			cfg: watermark.Config{HighBytes: 16 << 10, HardLimitBytes: 300 << 10},
			behind: func(*side) []any {
				return []any{onRead(func(ctx *pipeline.Context, _ any) error {
					return ctx.Ref().Execute(func(ctx *pipeline.Context) {
						check(ctx.Ref().TryWrite(make([]byte, 400_000)))
						check(ctx.Ref().Execute(func(*pipeline.Context) {})) // one more turn that finds it
					})
				})}
			},
		})
		c, _ := r.connect()
		_, err := io.WriteString(c, "go")
		require.NoError(t, err)
		n, err := io.CopyN(io.Discard, c, 400_000)
		require.NoError(t, err, "after %d bytes", n)
		require.NoError(t, c.Close())
	})
}
