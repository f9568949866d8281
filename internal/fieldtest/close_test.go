//go:build linux

package fieldtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// stuff fills what the kernel takes for a peer that does not read, until more is pending than before for good.
func (r *rig) stuff(ref pipeline.Ref, bytes int) {
	r.t.Helper()
	require.NoError(r.t, ref.TryWrite(make([]byte, bytes)))
	last := -1
	r.eventually(func() bool {
		now := ref.Pending()
		halted := now == last && now > 0
		last = now
		time.Sleep(5 * time.Millisecond)
		return halted
	}, "the kernel takes no more")
}

func TestClosingIsBoundedWhenThePeerTakesNothing(t *testing.T) {
	covers(t, "panjf2000/gnet#341", "panjf2000/gnet#368")
	for _, tc := range []struct {
		name  string
		end   func(ctx *pipeline.Context)
		cause error
	}{
		{"Close", func(ctx *pipeline.Context) { _ = ctx.Close() }, channel.ErrCloseTimeout},
		{"Abort", func(ctx *pipeline.Context) { ctx.Abort(errTest) }, errTest},
		{"CloseWrite, then Close", func(ctx *pipeline.Context) {
			_ = ctx.CloseWrite()
			_ = ctx.Close()
		}, channel.ErrCloseTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				const stalled = 20
				causes := make(chan error, stalled+1)
				srv := &weir.Server{
					Transport: kind, Loops: 1, Socket: smallBuffers, Channel: channel.Config{CloseTimeout: 300 * time.Millisecond},
				}
				r := newRig(t, srv, func(p *pipeline.Pipeline) error {
					return errors.Join(p.AddLast("", &hooks{
						active:   keep,
						inactive: func(ctx *pipeline.Context) error { causes <- ctx.Cause(); return nil },
					}), p.AddLast("", echo{}))
				})
				for range stalled {
					require.NoError(t, shrink(r.dial()))
				}
				refs := r.kept(stalled)
				for _, ref := range refs {
					r.stuff(ref, 2<<20)
				}
				neighbour := r.dial()
				for _, ref := range refs {
					require.NoError(t, ref.Execute(tc.end))
				}
				open := stalled
				for trips := 0; open > 0 || trips < 1000; trips++ { // the neighbour goes on meanwhile
					require.NoError(t, ping(neighbour, fmt.Sprint("round trip ", trips)))
					for len(causes) > 0 {
						require.ErrorIs(t, <-causes, tc.cause)
						open--
					}
				}
			})
		})
	}
}

var errTest = errors.New("the test's error")

func TestClosingWithManyWritesQueuedIsOneClose(t *testing.T) {
	covers(t, "panjf2000/gnet#398")
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("the peer resets=%v", gone), func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				writes := scaled(100_000, 20_000)
				r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, func(p *pipeline.Pipeline) error {
					return errors.Join(p.AddLast("", &hooks{
						active: keep,
					}), p.AddLast("", echo{}))
				})
				c := r.dial()
				ref := r.kept(1)[0]
				neighbour := r.dial()
				require.NoError(t, ping(neighbour, "before"))
				stop, pinged := make(chan struct{}), make(chan error, 1)
				go func() {
					for {
						select {
						case <-stop:
							pinged <- nil
							return
						default:
						}
						if err := ping(neighbour, "meanwhile"); err != nil {
							pinged <- err
							return
						}
					}
				}()
				release := r.block(0)
				message := make([]byte, 32)
				for i := range writes {
					binary.BigEndian.PutUint64(message, uint64(i))
					require.NoError(t, ref.TryWrite(message))
				}
				require.NoError(t, ref.Close())
				if gone {
					require.NoError(t, reset(c))
				}
				release()
				if !gone {
					for i := range writes {
						_, err := io.ReadFull(c, message)
						require.NoError(t, err)
						require.EqualValues(t, i, binary.BigEndian.Uint64(message))
					}
					_, err := c.Read(message)
					require.ErrorIs(t, err, io.EOF)
					c.Close()
				}
				receive(t, ref.Closed(), "the end")
				close(stop)
				require.NoError(t, receive(t, pinged, "the neighbour"))
				assert.Empty(t, r.log.Lines(""), "nothing is logged")
				// counted after Closed was told
				r.eventually(func() bool { return r.stats().Open == 1 }, "only the neighbour is left")
			})
		})
	}
}

func TestQueuedWritesOfAResetPeerAreReleasedAndAnswered(t *testing.T) {
	covers(t, "panjf2000/gnet#672")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const writes = 10_000
		srv := &weir.Server{
			Transport: kind, Loops: 1, Socket: smallBuffers,
			Channel: channel.Config{MaxPendingBytes: 64 << 20},
		}
		r := newRig(t, srv, keeper)
		c := r.dial()
		require.NoError(t, shrink(c))
		ref := r.kept(1)[0]
		r.stuff(ref, 4<<20)
		answers := make([]int, writes)
		var fine, failed atomic.Int64
		r.execute(ref, func(ctx *pipeline.Context) {
			for i := range writes {
				b := ctx.Pool().Get(2000)
				b.Append(make([]byte, 1+(i*37)%2000))
				if err := ctx.Write(b); err != nil {
					t.Errorf("write %d: %v", i, err)
				}
				b.Release()
				ctx.Flushed(func(err error) {
					answers[i]++
					if err == nil {
						fine.Add(1)
					} else if errors.Is(err, pipeline.ErrClosed) {
						failed.Add(1)
					}
				})
			}
		})
		bufs, bytes := r.Held()
		assert.Greater(t, bytes, 5<<20)
		assert.Greater(t, bufs, writes/4)
		require.NoError(t, reset(c))
		receive(t, ref.Closed(), "the end")
		r.settled()
		assert.Zero(t, fine.Load(), "what the kernel never took")
		assert.EqualValues(t, writes, failed.Load())
		for i, n := range answers {
			if n != 1 {
				require.Equal(t, 1, n, "answers to write %d", i)
			}
		}
	})
}

func TestFiveThousandBuffersAreFlushedInOrder(t *testing.T) {
	covers(t, "panjf2000/gnet#303")
	for name, size := range map[string]func(i int) int{
		"tiny":          func(int) int { return 1 },
		"a piece each":  func(i int) int { return 1025 + i%7 },
		"small, larger": func(i int) int { return 1 + (i%3)*600 },
	} {
		t.Run(name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				const buffers = 5000
				r := newRig(t, &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{MaxPendingBytes: 64 << 20}}, keeper)
				c := r.dial()
				ref := r.kept(1)[0]
				total := 0
				answers := make(chan error, 1)
				r.execute(ref, func(ctx *pipeline.Context) {
					for i := range buffers {
						b := ctx.Pool().Get(size(i))
						p := make([]byte, size(i))
						pattern(p, 5, total)
						b.Append(p)
						total += len(p)
						err := ctx.Write(b)
						if b.Release(); err != nil {
							t.Errorf("write %d: %v", i, err)
							break
						}
					}
					if err := ctx.Flush(); err != nil {
						t.Error(err)
					}
					ctx.Flushed(func(err error) { answers <- err })
				})
				got := make([]byte, total)
				_, err := io.ReadFull(c, got)
				require.NoError(t, err)
				assert.True(t, string(got) == string(stream(5, total)), "%d bytes in order", total)
				require.NoError(t, receive(t, answers, "the answer of Flushed"))
				r.settled()
			})
		})
	}
}

func TestHeadersBetweenBodiesDoNotMultiplyMemory(t *testing.T) {
	covers(t, "panjf2000/gnet#420")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const messages, head, body = 1000, 12, 2000
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, keeper)
		c := r.dial()
		ref := r.kept(1)[0]
		pending := 0
		r.execute(ref, func(ctx *pipeline.Context) {
			for i := range messages {
				if err := ctx.WriteBytes(make([]byte, head)); err != nil {
					t.Errorf("message %d: %v", i, err)
					return
				}
				if err := ctx.WriteBytes(make([]byte, body)); err != nil {
					t.Errorf("message %d: %v", i, err)
					return
				}
				b := ctx.Pool().Get(body)
				b.Append(make([]byte, body))
				if err := ctx.Write(b); err != nil {
					t.Errorf("message %d: %v", i, err)
				}
				b.Release()
			}
			pending = ctx.Pending()
		})
		assert.Less(t, pending, 4*messages*(head+2*body), "what is pending for %d bytes", messages*(head+2*body))
		_, err := io.CopyN(io.Discard, c, messages*(head+2*body))
		require.NoError(t, err)
	})
}

func TestASendThatFailsClosesAndAnswers(t *testing.T) {
	covers(t, "cloudwego/netpoll#355", "cloudwego/kitex#427")
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				const conns = 10
				causes := make(chan error, conns)
				srv := &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{CloseTimeout: 50 * time.Millisecond}}
				r := newRigOn(t, network, srv, only(func() any {
					return &hooks{
						active:   keep,
						inactive: func(ctx *pipeline.Context) error { causes <- ctx.Cause(); return nil },
					}
				}))
				answers := make(chan error, 3*conns)
				for i := range conns {
					r.dial()
					ref := r.kept(i + 1)[i]
					r.execute(ref, func(ctx *pipeline.Context) {
						// The kernel refuses to send on a socket whose write side is shut down: EPIPE.
						if err := ctx.Control(func(fd uintptr) error { return syscall.Shutdown(int(fd), syscall.SHUT_WR) }); err != nil {
							t.Error(err)
						}
						for range 3 {
							if err := ctx.Write("nobody gets it"); err != nil {
								t.Error(err)
							}
							ctx.Flushed(func(err error) { answers <- err })
						}
					})
					receive(t, ref.Closed(), "the end")
					require.ErrorIs(t, receive(t, causes, "the cause"), syscall.EPIPE)
					for range 3 {
						require.ErrorIs(t, receive(t, answers, "the answer"), syscall.EPIPE)
					}
				}
				assert.Empty(t, answers)
				r.OnLoop(0, func(l *loop.Loop) { assert.Zero(t, l.Stats().Panics) })
			})
		})
	}
}
