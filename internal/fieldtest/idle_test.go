//go:build linux

package fieldtest

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// handful is how many turns a loop may take that has nothing to do, while it is asked twice how many it took.
const handful = 12

// asleep waits until the loops come to rest and then counts their turns in a window of time.
func (r *rig) asleep(window time.Duration) {
	r.t.Helper()
	loops := uint64(r.Server.Group().Len())
	last, lastEntered := r.wakeUps()
	r.eventually(func() bool {
		time.Sleep(20 * time.Millisecond)
		turns, entered := r.wakeUps()
		rest := turns-last <= handful*loops && entered-lastEntered <= handful*loops
		last, lastEntered = turns, entered
		return rest
	}, "the loops come to rest")
	turns, entered := r.wakeUps()
	time.Sleep(window) // in which nothing may happen; how long it really is does not matter
	turns2, entered2 := r.wakeUps()
	assert.LessOrEqual(r.t, turns2-turns, handful*loops, "turns of idle loops")
	assert.LessOrEqual(r.t, entered2-entered, handful*loops, "system calls of idle transports")
	r.t.Logf("%d turns, %d waits", turns2-turns, entered2-entered)
}

func TestChurnLeavesAnIdleServerIdle(t *testing.T) {
	covers(t, "panjf2000/gnet#526")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, atOnce := scaled(8000, 800), 8
		r := newRig(t, &weir.Server{Transport: kind, Loops: 2}, initEcho)
		require.NoError(t, all(atOnce, func(k int) error {
			for i := range conns / atOnce {
				c, err := r.tryDial()
				if err != nil {
					return err
				}
				if (i+k)%3 != 0 {
					if err := ping(c, "x"); err != nil {
						return err
					}
				}
				if i%2 == 0 {
					err = reset(c)
				} else {
					err = c.Close()
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
		r.eventually(func() bool { return r.stats().Open == 0 }, "all are closed")
		r.asleep(200 * time.Millisecond)
		require.NoError(t, ping(r.dial(), "still there"))
	})
}

// quietState is a state of a connection in which nothing happens until somebody does something.
type quietState struct {
	name    string
	network string // "" is all
	handler func(got *atomic.Int64) any
	enter   func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref)
	wake    func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) // makes it go on, when not nil
	want    int                                                      // bytes received in the end, for each connection
}

const unread = 100_000

// pauser pauses at the first read, and keeps a half-closed connection open.
func pauser(got *atomic.Int64) any {
	return &hooks{
		active: keep,
		read: func(ctx *pipeline.Context, b *buffer.Buf) error {
			if got.Add(int64(b.Len())) == int64(b.Len()) {
				ctx.Pause()
			}
			return nil
		},
	}
}

func pausedFromTheStart(got *atomic.Int64) any {
	return &hooks{
		active: func(ctx *pipeline.Context) error { ctx.Pause(); return keep(ctx) },
		read:   func(_ *pipeline.Context, b *buffer.Buf) error { got.Add(int64(b.Len())); return nil },
	}
}

func halfCloser(got *atomic.Int64) any {
	return &hooks{
		active:     keep,
		readClosed: ignore,
		read:       func(_ *pipeline.Context, b *buffer.Buf) error { got.Add(int64(b.Len())); return nil },
	}
}

func sends(t *testing.T, _ *rig, c net.Conn, _ pipeline.Ref) {
	_, err := c.Write(make([]byte, unread))
	require.NoError(t, err)
}

func resumes(_ *testing.T, r *rig, _ net.Conn, ref pipeline.Ref) {
	r.execute(ref, (*pipeline.Context).Resume)
}

// quietStates are the states that other frameworks spun in.
func quietStates() []quietState {
	finish := func(t *testing.T, c net.Conn) {
		require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
	}
	return []quietState{
		{
			name: "paused with unread data", handler: pauser, enter: sends, wake: resumes, want: unread,
		},
		{
			name: "paused before anything, with unread data", handler: pausedFromTheStart, enter: sends, wake: resumes,
			want: unread,
		},
		{
			name: "paused with unread data and output that the peer does not take", handler: pauser, want: unread,
			enter: func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
				sends(t, r, c, ref)
				r.stuff(ref, 8<<20)
			},
			wake: func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
				resumes(t, r, c, ref)
				_, err := io.CopyN(io.Discard, c, 8<<20)
				require.NoError(t, err)
			},
		},
		{
			name: "paused, and the peer has finished", handler: pausedFromTheStart, want: unread, wake: resumes,
			enter: func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
				sends(t, r, c, ref)
				finish(t, c)
			},
		},
		{
			name: "paused, and the peer is gone", handler: pausedFromTheStart, want: unread, wake: resumes,
			enter: func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
				sends(t, r, c, ref)
				require.NoError(t, c.Close())
			},
		},
		{
			name: "paused, and the peer has reset", network: "tcp", handler: pausedFromTheStart, wake: resumes, want: 10_000,
			enter: func(t *testing.T, _ *rig, c net.Conn, _ pipeline.Ref) {
				_, err := c.Write(make([]byte, 10_000))
				require.NoError(t, err)
				taken(t, c)
				require.NoError(t, reset(c))
			},
		},
		{
			name: "full send buffer", handler: halfCloser,
			enter: func(_ *testing.T, r *rig, _ net.Conn, ref pipeline.Ref) { r.stuff(ref, 8<<20) },
			wake: func(t *testing.T, _ *rig, c net.Conn, ref pipeline.Ref) {
				_, err := io.CopyN(io.Discard, c, 8<<20)
				require.NoError(t, err)
				require.NoError(t, ref.Close())
			},
		},
		{
			name: "the peer has finished and is written to", handler: halfCloser, want: unread,
			enter: func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
				sends(t, r, c, ref)
				finish(t, c)
			},
			wake: func(t *testing.T, _ *rig, c net.Conn, ref pipeline.Ref) {
				require.NoError(t, ref.TryWrite([]byte("farewell")))
				require.NoError(t, ref.Close())
				text, err := io.ReadAll(c)
				require.NoError(t, err)
				require.Equal(t, "farewell", string(text))
			},
		},
		{
			name: "our side has finished", handler: halfCloser, want: unread,
			enter: func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
				r.execute(ref, func(ctx *pipeline.Context) { assert.NoError(t, ctx.CloseWrite()) })
				_, err := c.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.EOF)
			},
			wake: func(t *testing.T, r *rig, c net.Conn, ref pipeline.Ref) {
				sends(t, r, c, ref)
				finish(t, c)
			},
		},
		{
			name: "closing with output that the peer does not take", handler: halfCloser,
			enter: func(t *testing.T, r *rig, _ net.Conn, ref pipeline.Ref) {
				r.stuff(ref, 8<<20)
				require.NoError(t, ref.Close())
			},
			wake: func(t *testing.T, _ *rig, c net.Conn, _ pipeline.Ref) {
				n, err := io.Copy(io.Discard, c)
				require.NoError(t, err)
				require.EqualValues(t, 8<<20, n)
				require.NoError(t, c.Close())
			},
		},
		{
			name: "closing, and the peer does not finish", handler: halfCloser,
			enter: func(t *testing.T, _ *rig, c net.Conn, ref pipeline.Ref) {
				require.NoError(t, ref.Close())
				_, err := c.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.EOF)
			},
			wake: func(t *testing.T, _ *rig, c net.Conn, _ pipeline.Ref) { require.NoError(t, c.Close()) },
		},
	}
}

func TestNothingWakesALoopWhoseConnectionsWait(t *testing.T) {
	covers(t, "cloudwego/netpoll#422", "cloudwego/netpoll#201", "Allenxuxu/gev#101", "panjf2000/gnet#341")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, network := range []string{"tcp", "unix"} {
			for _, state := range quietStates() {
				if state.network == "" || state.network == network {
					t.Run(network+"/"+state.name, func(t *testing.T) {
						t.Parallel()
						nothingWakes(t, kind, network, state)
					})
				}
			}
		}
	})
}

func nothingWakes(t *testing.T, kind weir.Kind, network string, state quietState) {
	const conns = 5
	var got [conns]atomic.Int64
	var next atomic.Int64
	srv := &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{
		CloseTimeout: time.Minute, PausedCloseTimeout: time.Minute, MaxPendingBytes: 64 << 20,
	}}
	r := newRigOn(t, network, srv, only(func() any { return state.handler(&got[next.Add(1)-1]) }))
	clients := make([]net.Conn, conns)
	for i := range clients {
		clients[i] = r.dial()
		ref := r.kept(i + 1)[i]
		state.enter(t, r, clients[i], ref)
	}
	r.asleep(200 * time.Millisecond)
	for i, ref := range r.kept(conns) {
		state.wake(t, r, clients[i], ref)
	}
	for i := range got {
		r.eventually(func() bool { return got[i].Load() >= int64(state.want) }, "%d bytes, not %d", state.want,
			got[i].Load())
	}
	r.closeClients()
	r.eventually(func() bool { return r.Closed.Load() == conns }, "all are closed")
	for i := range got {
		assert.EqualValues(t, state.want, got[i].Load(), "each byte once")
	}
}

func TestAReadOfLessThanIsThereIsFollowedByTheRest(t *testing.T) {
	covers(t, "xtaci/gaio#17")
	for _, most := range []int{1, 100, 5000} {
		t.Run("", func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				total := min(200*most, 150_000)
				done := make(chan string, 1)
				r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, func(p *pipeline.Pipeline) error {
					if err := p.AddLast("", grant(most)); err != nil {
						return err
					}
					return p.AddLast("", &counting{want: total, done: done})
				})
				c := r.dial()
				_, err := c.Write(stream(4, total)) // once, and then nothing happens any more
				require.NoError(t, err)
				assert.True(t, string(stream(4, total)) == receive(t, done, "the rest"))
				r.asleep(100 * time.Millisecond)
			})
		})
	}
}

// counting sends back what it has received when it is as much as it wants.
type counting struct {
	want int
	text []byte
	done chan<- string
}

func (c *counting) ChannelRead(_ *pipeline.Context, msg any) error {
	if c.text = append(c.text, msg.(*buffer.Buf).Bytes()...); len(c.text) == c.want {
		c.done <- string(c.text)
	}
	return nil
}
