//go:build linux

package fieldtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// taken waits until the peer's kernel has everything that c has sent (SIOCOUTQ of tcp(7)).
func taken(t testing.TB, c net.Conn) {
	t.Helper()
	eventually(t, func() bool {
		left := 0
		err := control(c.(syscall.Conn), func(fd int) (err error) {
			left, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
			return err
		})
		return err == nil && left == 0
	}, "the peer's kernel takes what was sent")
}

func TestEveryByteOfABurstComesBeforeTheEnd(t *testing.T) {
	covers(t, "netty/netty#4317")
	ends := []struct {
		name string
		end  func(t *testing.T, c net.Conn) error
	}{
		{"FIN", func(_ *testing.T, c net.Conn) error { return c.Close() }},
		{"FIN of one direction", func(_ *testing.T, c net.Conn) error { return c.(*net.TCPConn).CloseWrite() }},
		{"RST", func(t *testing.T, c net.Conn) error { taken(t, c); return reset(c) }},
	}
	for _, e := range ends {
		t.Run(e.name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				conns := scaled(200, 50)
				sizes := []int{1, 1000, 16 << 10, 16<<10 + 1, 50_000}
				type report struct {
					text  string
					cause error
				}
				reports := make(chan report, conns)
				r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, only(func() any {
					var text []byte
					return &hooks{
						active: keep,
						read: func(ctx *pipeline.Context, b *buffer.Buf) error {
							if ctx.Active() {
								text = append(text, b.Bytes()...)
							}
							return nil
						},
						inactive: func(ctx *pipeline.Context) error {
							reports <- report{string(text), ctx.Cause()}
							return nil
						},
					}
				}))
				for i := range conns { // some are known to the server before the burst, some are not even accepted
					r.dial()
					if i == conns/2-1 {
						r.kept(conns / 2)
					}
				}
				release := r.block(0)
				defer release()
				want := map[string]int{}
				for i, c := range r.clients {
					text := stream(uint64(i), sizes[i%len(sizes)])
					_, err := c.Write(text)
					require.NoError(t, err)
					require.NoError(t, e.end(t, c))
					want[string(text)]++
				}
				release()
				for range conns {
					got := receive(t, reports, "the end of a channel")
					want[got.text]--
					if e.name != "RST" {
						assert.NoError(t, got.cause)
					} else {
						assert.ErrorIs(t, got.cause, syscall.ECONNRESET)
					}
				}
				for text, n := range want {
					assert.Zero(t, n, "text of %d bytes", len(text))
				}
			})
		})
	}
}

// resetState is a state of a connection in which the peer resets it.
type resetState struct {
	name  string
	enter func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref)
	cause error // nil: anything
}

func resetStates() []resetState {
	fin := func(t *testing.T, c net.Conn) { require.NoError(t, c.(*net.TCPConn).CloseWrite()) }
	pause := func(_ *testing.T, r *rig, _ net.Conn, ref pipeline.Ref) { r.execute(ref, (*pipeline.Context).Pause) }
	write := func(t *testing.T, c net.Conn) {
		_, err := c.Write([]byte("unread"))
		require.NoError(t, err)
		taken(t, c)
	}
	closeWrite := func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
		r.execute(ref, func(ctx *pipeline.Context) { assert.NoError(t, ctx.CloseWrite()) })
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	return []resetState{
		{"idle", func(*testing.T, *rig, net.Conn, pipeline.Ref) {}, syscall.ECONNRESET},
		{"the peer has finished", func(t *testing.T, r *rig, c net.Conn, _ pipeline.Ref) {
			fin(t, c)
			r.eventually(func() bool { return r.finished.Load() > 0 }, "the FIN is told")
			r.finished.Store(0)
		}, channel.ErrPeerGone},
		{"our side has finished", closeWrite, syscall.ECONNRESET},
		{"paused", pause, channel.ErrPausedClose},
		{"paused with unread data", func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
			pause(t, r, c, ref)
			write(t, c)
		}, channel.ErrPausedClose},
		{"paused after the peer has finished", func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
			pause(t, r, c, ref)
			write(t, c)
			fin(t, c)
		}, channel.ErrPausedClose},
		{"paused with output", func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
			pause(t, r, c, ref)
			r.stuff(ref, 2<<20)
		}, nil},
		{"output that the peer does not take", func(_ *testing.T, r *rig, _ net.Conn, ref pipeline.Ref) {
			r.stuff(ref, 2<<20)
		}, nil},
		{"closing with output that the peer does not take", func(t *testing.T, r *rig, _ net.Conn, ref pipeline.Ref) {
			r.stuff(ref, 2<<20)
			require.NoError(t, ref.Close())
			r.execute(ref, func(*pipeline.Context) {})
		}, nil},
		{"closing, waiting for the peer", func(t *testing.T, _ *rig, c net.Conn, ref pipeline.Ref) {
			require.NoError(t, ref.Close())
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}, nil},
	}
}

func TestAResetInAnyStateEndsTheChannelOnce(t *testing.T) {
	for _, state := range resetStates() {
		t.Run(state.name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				conns := scaled(8, 4)
				causes := make(chan error, conns)
				srv := &weir.Server{Transport: kind, Loops: 1, Socket: smallBuffers, Channel: channel.Config{
					CloseTimeout: time.Minute, PausedCloseTimeout: 50 * time.Millisecond,
				}}
				isNeighbour := atomic.Bool{}
				isNeighbour.Store(true)
				r := newRig(t, srv, only(func() any {
					if isNeighbour.Load() {
						return echo{}
					}
					return &hooks{
						active:     keep,
						readClosed: func(ctx *pipeline.Context) error { rigOf(ctx).finished.Add(1); return nil },
						inactive:   func(ctx *pipeline.Context) error { causes <- ctx.Cause(); return nil },
					}
				}))
				neighbour := r.dial()
				require.NoError(t, ping(neighbour, "before"))
				isNeighbour.Store(false)
				for i := range conns {
					c := r.dial()
					ref := r.kept(i + 1)[i]
					state.enter(t, r, c, ref)
					require.NoError(t, reset(c))
					cause := receive(t, causes, "the end")
					if state.cause != nil {
						require.ErrorIs(t, cause, state.cause)
					}
					receive(t, ref.Closed(), "Closed")
					require.NoError(t, ping(neighbour, fmt.Sprint("after ", i)))
				}
				r.settled()
				assert.Empty(t, r.log.Lines("level=ERROR"))
			})
		})
	}
}

func TestWhatAPauseHeldBackIsGivenBackHoweverTheChannelEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c net.Conn, ref pipeline.Ref) error{
		"Close": func(_ *testing.T, _ net.Conn, ref pipeline.Ref) error { return ref.Close() },
		"Abort": func(_ *testing.T, _ net.Conn, ref pipeline.Ref) error {
			return ref.Execute(func(ctx *pipeline.Context) { ctx.Abort(errTest) })
		},
		"RST": func(_ *testing.T, c net.Conn, _ pipeline.Ref) error { return reset(c) },
		"FIN": func(_ *testing.T, c net.Conn, _ pipeline.Ref) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				const conns, size = 5, 60_000
				srv := &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{PausedCloseTimeout: 20 * time.Millisecond}}
				var got atomic.Int64
				r := newRig(t, srv, func(p *pipeline.Pipeline) error {
					return errors.Join(p.AddLast("", grant(2*size)), p.AddLast("", &hooks{
						active: keep,
						read: func(ctx *pipeline.Context, b *buffer.Buf) error {
							got.Add(int64(b.Len()))
							ctx.Pause()
							return nil
						},
					}))
				})
				for range conns {
					r.dial()
				}
				refs := r.kept(conns)
				release := r.block(0)
				defer release()
				for _, c := range r.clients { // more than one block, at once
					_, err := c.Write(make([]byte, size))
					require.NoError(t, err)
				}
				release()
				r.eventually(func() bool { return got.Load() > 0 }, "the first reads")
				for i, c := range r.clients {
					require.NoError(t, end(t, c, refs[i]))
				}
				for i, ref := range refs {
					if name == "Close" {
						r.clients[i].Close()
					}
					receive(t, ref.Closed(), "the end")
				}
				r.settled()
			})
		})
	}
}

func TestAResetBeforeItIsAcceptedEndsTheConnection(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns = 50
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, initEcho)
		release := r.block(0)
		defer release()
		for i := range conns {
			c := r.dial()
			if i%2 == 0 {
				_, err := c.Write([]byte("hello"))
				require.NoError(t, err)
			}
			require.NoError(t, reset(c))
		}
		release()
		require.NoError(t, ping(r.dial(), "those behind are served"))
		r.eventually(func() bool { return r.stats().Open == 1 }, "the others are gone")
	})
}

func TestAResetWhileConnectingFailsTheDial(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, initEcho)
		// A socket that is bound and does not listen answers SYN with RST.
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer syscall.Close(fd)
		require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		sa, err := syscall.Getsockname(fd)
		require.NoError(t, err)
		address := fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
		dialer := &weir.Dialer{Server: r.Server}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for range 50 {
			_, err := dialer.Dial(ctx, "tcp", address, initEcho)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		require.NoError(t, ping(r.dial(), "the loop goes on"))
		assert.Equal(t, 1, r.stats().Open)
	})
}
