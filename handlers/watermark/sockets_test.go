//go:build linux

package watermark_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// amplifier answers each request with the next piece of a stream, and looks whether the requests are one, too.
type amplifier struct {
	side    *side
	reply   int // bytes
	in, out int
	buf     []byte
}

const requestsSeed, repliesSeed = 1, 2

func (a *amplifier) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf)
	want := make([]byte, b.Len())
	pattern(want, requestsSeed, a.in)
	if string(want) != string(b.Bytes()) {
		return fmt.Errorf("wrong request at %d", a.in)
	}
	a.in += b.Len()
	a.buf = append(a.buf[:0], make([]byte, a.reply)...)
	pattern(a.buf, repliesSeed, a.out)
	a.out += a.reply
	err := ctx.WriteBytes(a.buf)
	a.side.note(ctx.Pending())
	return err
}

// unstoppable is a framer that does not ask ctx.Reading.
type unstoppable struct {
	frame int // bytes
	rest  []byte
}

func (u *unstoppable) ChannelRead(ctx *pipeline.Context, msg any) error {
	u.rest = append(u.rest, msg.(*buffer.Buf).Bytes()...)
	for len(u.rest) >= u.frame {
		b := ctx.Pool().Get(u.frame)
		b.Append(u.rest[:u.frame])
		u.rest = u.rest[u.frame:]
		ctx.FireRead(b)
		b.Release()
	}
	return nil
}

// With the numbers that the documentation tells to choose, nothing but a standstill happens to such a peer.
func TestAPeerThatDoesNotReadIsHeldUpAndLosesNothing(t *testing.T) {
	for _, tc := range []struct {
		name           string
		request, reply int // bytes
		requests       int
		framer         func(request int) any
	}{
		{"a framer that stops", 256, 4096, 2048, func(request int) any {
			framer, err := codec.NewFixedLength(codec.FixedLengthConfig{Bytes: request})
			check(err)
			return framer
		}},
		{"a framer that never stops", 64, 1024, 8192, func(request int) any { return &unstoppable{frame: request} }},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			cfg := watermark.Config{HighBytes: 16 << 10, LowBytes: 4 << 10, BudgetBytes: 4 << 10}
			cfg.HardLimitBytes = cfg.HighBytes + tc.reply/tc.request*cfg.BudgetBytes + 64<<10
			eachTransport(t, func(t *testing.T, kind weir.Kind) {
				r := serve(t, kind, setup{cfg: cfg, behind: func(s *side) []any {
					return []any{tc.framer(tc.request), watermark.NewProbe(s.h), &amplifier{side: s, reply: tc.reply}}
				}})
				c, s := r.connect()
				sent := make(chan error, 1)
				go func() {
					_, err := c.Write(stream(requestsSeed, tc.requests*tc.request))
					sent <- err
				}()
				blocked(t, c, s.h.Level)
				held := r.held()
				assert.LessOrEqual(t, held, cfg.HardLimitBytes+tc.reply+cfg.BudgetBytes+64<<10, "memory that is held")
				eventually(t, func() bool { // a receive may have been under way
					acked := tcpInfo(t, c).Bytes_acked
					r.held() // takes a turn
					return tcpInfo(t, c).Bytes_acked == acked
				}, "nothing is read")
				assert.Empty(t, sent, "the peer's write waits")
				t.Logf("at a standstill %d bytes are pending, %d held; most pending %d of %d",
					s.ref.Pending(), held, s.most.Load(), cfg.HardLimitBytes)

				require.NoError(t, expect(c, repliesSeed, 0, tc.requests*tc.reply))
				require.NoError(t, <-sent)
				eventually(t, func() bool { return s.h.Level() == watermark.Normal && s.ref.Pending() == 0 }, "it is normal again")
				assert.LessOrEqual(t, s.most.Load(), int64(cfg.HardLimitBytes), "pending, at most")
				snap := r.stats.Snapshot()
				assert.Positive(t, snap.Pauses)
				assert.Equal(t, snap.Pauses, snap.Resumes)
				assert.Positive(t, snap.High)
			})
		})
	}
}

// greeter writes a lot at first, and keeps what it reads.
type greeter struct {
	greeting int
	read     atomic.Int64
}

func (g *greeter) ChannelActive(ctx *pipeline.Context) error {
	return ctx.WriteBytes(stream(repliesSeed, g.greeting))
}

func (g *greeter) ChannelRead(_ *pipeline.Context, msg any) error {
	g.read.Add(int64(bytesOf(msg)))
	return nil
}

func TestRepliesGoOnWhileReadingIsPaused(t *testing.T) {
	const greeting = 1 << 20
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		g := &greeter{greeting: greeting}
		r := serve(t, kind, setup{
			cfg:    watermark.Config{HighBytes: 64 << 10, LowBytes: 1, HardLimitBytes: 2 << 20},
			behind: func(*side) []any { return []any{g} },
		})
		c, s := r.connect()
		_, err := io.WriteString(c, "hello?")
		require.NoError(t, err)
		eventually(t, func() bool { return s.h.Level() == watermark.High }, "it is paused")
		for at := 0; at < greeting/2; at += greeting / 8 {
			require.NoError(t, expect(c, repliesSeed, at, greeting/8))
			assert.Equal(t, watermark.High, s.h.Level(), "after %d bytes", at)
			assert.Zero(t, g.read.Load(), "after %d bytes", at)
		}
		require.NoError(t, expect(c, repliesSeed, greeting/2, greeting/2))
		eventually(t, func() bool { return s.h.Level() == watermark.Normal && g.read.Load() == 6 },
			"what the peer sent is read")
	})
}

var echo = onRead(func(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) })

// all runs n functions at once and wants none to fail.
func all(t *testing.T, n int, fn func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { assert.NoError(t, fn(i), "peer %d", i) })
	}
	wg.Wait()
}

func TestPeersThatReadNowFastNowSlowlyGetEverything(t *testing.T) {
	const peers, each = 64, 256 << 10
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		r := serve(t, kind, setup{
			loops:  2,
			cfg:    watermark.Config{HighBytes: 16 << 10, LowBytes: 4 << 10, BudgetBytes: 8 << 10},
			behind: func(*side) []any { return []any{echo} },
		})
		clients, sides := make([]*net.TCPConn, peers), make([]*side, peers)
		for i := range clients {
			clients[i], sides[i] = r.connect()
		}
		var writers sync.WaitGroup
		defer writers.Wait()
		all(t, peers, func(i int) error {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			writers.Go(func() { _, _ = clients[i].Write(stream(i, each)) })
			for at := 0; at < each; {
				n := min(1+rng.IntN(32<<10), each-at)
				if err := expect(clients[i], i, at, n); err != nil {
					return err
				}
				at += n
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
				}
			}
			return nil
		})
		for i, s := range sides {
			eventually(t, func() bool { return s.h.Level() == watermark.Normal }, "peer %d is not held any more", i)
		}
		snap := r.stats.Snapshot()
		t.Logf("%d pauses", snap.Pauses)
		assert.GreaterOrEqual(t, snap.Pauses, uint64(peers), "each was held up now and then")
		assert.Equal(t, snap.Pauses, snap.Resumes)
		assert.Zero(t, snap.OverLimits)
	})
}

// lossyFrame returns frame i: its length, its number, and bytes of a stream that is its own.
func lossyFrame(i, n int) []byte {
	f := make([]byte, 8+n)
	binary.BigEndian.PutUint32(f, uint32(4+n))
	binary.BigEndian.PutUint32(f[4:], uint32(i))
	pattern(f[8:], i, 0)
	return f
}

// The gate echoes what it lets through. Replies are read only when all has been sent.
func TestALossyPeerIsNeverHeldUpAndEveryFrameIsDeliveredOrCounted(t *testing.T) {
	const frames = 4000
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		r := serve(t, kind, setup{
			cfg: watermark.Config{
				HighBytes: 16 << 10, LowBytes: 4 << 10, HardLimitBytes: 256 << 10, BudgetBytes: 8 << 10,
				KeepReading: true,
			},
			behind: func(s *side) []any {
				framer, err := codec.NewLengthField(codec.LengthFieldConfig{Width: 4})
				check(err)
				return []any{framer, watermark.NewDropGate(s.h), echo}
			},
		})
		c, s := r.connect()
		rng := rand.New(rand.NewPCG(1, uint64(len(kind))))
		bytes := 0
		for i := range frames {
			n, err := c.Write(lossyFrame(i, rng.IntN(3000)))
			require.NoError(t, err, "nobody reads, and yet it can send")
			bytes += n
		}
		counted := func() (n uint64) {
			snap := r.stats.Snapshot()
			n = snap.Delivered.Frames
			for _, c := range snap.Dropped {
				n += c.Frames
			}
			return n
		}
		eventually(t, func() bool { return counted() == frames }, "all frames have come")
		require.NoError(t, c.CloseWrite())
		last, delivered, deliveredBytes := -1, uint64(0), 0
		for {
			var header [8]byte
			if _, err := io.ReadFull(c, header[:]); err == io.EOF {
				break
			} else {
				require.NoError(t, err)
			}
			i, n := int(binary.BigEndian.Uint32(header[4:])), int(binary.BigEndian.Uint32(header[:]))-4
			require.Greater(t, i, last)
			require.Less(t, i, frames)
			require.GreaterOrEqual(t, n, 0)
			require.NoError(t, expect(c, i, 0, n), "frame %d", i)
			last, delivered, deliveredBytes = i, delivered+1, deliveredBytes+8+n
		}
		assert.NoError(t, s.closeCause())
		snap := r.stats.Snapshot()
		assert.Equal(t, watermark.Count{Frames: delivered, Bytes: uint64(deliveredBytes)}, snap.Delivered)
		assert.Equal(t, map[watermark.Reason]watermark.Count{
			watermark.ReasonPending: {Frames: frames - delivered, Bytes: uint64(bytes - deliveredBytes)},
		}, snap.Dropped)
		assert.Positive(t, delivered)
		assert.Less(t, delivered, uint64(frames))
		t.Logf("%d delivered, %d dropped; most pending %d", delivered, frames-delivered, s.most.Load())
	})
}

func TestTheRateIsNeverExceeded(t *testing.T) {
	const peers, each = 3, 96 << 10
	const rate, burst, block = 64 << 10, 8 << 10, 16 << 10
	eachTransport(t, func(t *testing.T, kind weir.Kind) {
		began := time.Now()
		most := make(chan string, 1)
		r := serve(t, kind, setup{
			cfg: watermark.Config{RateBytesPerSecond: rate, BurstBytes: burst},
			behind: func(*side) []any {
				got := int64(0)
				return []any{onRead(func(ctx *pipeline.Context, msg any) error {
					got += int64(bytesOf(msg))
					if may := burst + int64(time.Since(began).Seconds()*rate) + block; got > may {
						select {
						case most <- fmt.Sprintf("%d bytes where %d were allowed", got, may):
						default:
						}
					}
					return ctx.Write(msg)
				})}
			},
		})
		clients := make([]*net.TCPConn, peers)
		for i := range clients {
			clients[i], _ = r.connect()
		}
		var writers sync.WaitGroup
		defer writers.Wait()
		all(t, peers, func(i int) error {
			writers.Go(func() { _, _ = clients[i].Write(stream(i, each)) })
			return expect(clients[i], i, 0, each)
		})
		select {
		case what := <-most:
			assert.Fail(t, what)
		default:
		}
	})
}
