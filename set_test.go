//go:build linux

package weir_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// startSet starts a server whose connections are all members of the returned set, and n clients.
func startSet(t *testing.T, kind weir.Kind, n int) (*weir.Set, *weir.Server, []net.Conn) {
	t.Helper()
	srv := &weir.Server{Transport: kind, Loops: 2}
	set := &weir.Set{Server: srv}
	srv.Init = only(func() any { return set })
	return set, srv, startMembers(t, srv, set, n)
}

// startMembers connects n clients and waits until they are members.
func startMembers(t *testing.T, srv *weir.Server, set *weir.Set, n int) []net.Conn {
	t.Helper()
	addr := startTCP(t, srv)
	clients := make([]net.Conn, n)
	for i := range clients {
		clients[i] = connect(t, "tcp", addr)
	}
	eventually(t, func() bool { return set.Len() == n }, "%d members", n)
	return clients
}

// framed is a message with its length before it.
func framed(p []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	p := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(r, p)
	return p, err
}

func TestEveryMemberGetsEachBroadcastOnceAndInOrder(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const members, senders, messages = 60, 4, 100
		set, _, clients := startSet(t, kind, members)
		sent := make(chan error, 1)
		go func() {
			sent <- all(senders, func(s int) error {
				for m := range messages {
					// Up to 1 KiB is copied for each member, more is shared by them: both sizes, and the limit.
					size := []int{8, 1020, 1021, 3000}[m%4]
					p := bytes.Repeat([]byte{byte(s)}, size)
					binary.BigEndian.PutUint32(p, uint32(m))
					p = framed(p)
					if err := set.Broadcast(p); err != nil {
						return err
					}
					clear(p) // the set has its own copy
				}
				return nil
			})
		}()
		require.NoError(t, all(members, func(i int) error {
			next := make([]uint32, senders)
			for range senders * messages {
				p, err := readFrame(clients[i])
				if err != nil {
					return fmt.Errorf("client %d: %w", i, err)
				}
				s, m := p[len(p)-1], binary.BigEndian.Uint32(p)
				if int(s) >= senders || m != next[s] {
					return fmt.Errorf("client %d: message %d of sender %d, not %d", i, m, s, next[s])
				}
				next[s]++
			}
			return nil
		}))
		require.NoError(t, receive(t, sent, "all broadcasts"))
		assert.Zero(t, set.Missed())
	})
}

func TestALargeBroadcastReachesMembersOfEverySpeedUnchanged(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		// The members of a loop share the memory; each is somewhere else in it.
		const members, size = 20, 5 << 20
		set, _, clients := startSet(t, kind, members)
		message, err := io.ReadAll(noise(9, size))
		require.NoError(t, err)
		require.NoError(t, set.Broadcast(message))
		require.NoError(t, all(members, func(i int) error {
			piece := make([]byte, 100+977*i*i)
			for at := 0; at < size; {
				n, err := clients[i].Read(piece[:min(len(piece), size-at)])
				if err != nil {
					return fmt.Errorf("client %d at %d: %w", i, at, err)
				}
				if !bytes.Equal(piece[:n], message[at:at+n]) {
					return fmt.Errorf("client %d: other bytes at %d", i, at)
				}
				at += n
			}
			return nil
		}))
	})
}

// speaker broadcasts what it reads, to the others or to all.
type speaker struct {
	set    *weir.Set
	others bool
	ids    chan uint64
}

func (s speaker) ChannelActive(ctx *pipeline.Context) error {
	if s.ids != nil {
		s.ids <- ctx.ID()
	}
	return s.set.Add(ctx)
}

func (s speaker) ChannelRead(ctx *pipeline.Context, msg any) error {
	p := msg.(interface{ Bytes() []byte }).Bytes()
	if s.others {
		return s.set.BroadcastExcept(p, ctx.ID())
	}
	return errors.Join(s.set.Broadcast([]byte("<")), s.set.Broadcast(p), s.set.Broadcast([]byte(">")))
}

func TestAHandlerBroadcastsInOrder(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2}
		set := &weir.Set{Server: srv}
		srv.Init = only(func() any { return speaker{set: set} })
		clients := startMembers(t, srv, set, 20)
		_, err := io.WriteString(clients[3], "x")
		require.NoError(t, err)
		require.NoError(t, all(len(clients), func(i int) error {
			got := make([]byte, 3)
			if _, err := io.ReadFull(clients[i], got); err != nil || string(got) != "<x>" {
				return fmt.Errorf("client %d: %q, %w", i, got, err)
			}
			return nil
		}))
	})
}

func TestBroadcastExceptLeavesOnlyThatChannelOut(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2}
		set := &weir.Set{Server: srv}
		srv.Init = only(func() any { return speaker{set: set, others: true} })
		clients := startMembers(t, srv, set, 20)
		require.NoError(t, all(len(clients), func(i int) error {
			_, err := clients[i].Write([]byte{byte(i)})
			return err
		}))
		require.NoError(t, all(len(clients), func(i int) error {
			got := make([]byte, len(clients)-1)
			if _, err := io.ReadFull(clients[i], got); err != nil {
				return err
			}
			if bytes.IndexByte(got, byte(i)) >= 0 {
				return fmt.Errorf("client %d heard itself", i)
			}
			seen := map[byte]bool{}
			for _, b := range got {
				seen[b] = true
			}
			if len(seen) != len(got) {
				return fmt.Errorf("client %d: %v", i, got)
			}
			return nil
		}))
	})
}

func TestAClosedOrRemovedChannelIsNoMember(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2}
		set := &weir.Set{Server: srv}
		removed := make(chan []bool, 1)
		var leaver atomic.Bool
		srv.Init = func(p *pipeline.Pipeline) error {
			return p.AddLast("member", readFunc(func(ctx *pipeline.Context, _ any) error {
				if leaver.CompareAndSwap(false, true) {
					removed <- []bool{set.Remove(ctx), set.Remove(ctx), len(ctx.Pipeline().Names()) == 1}
					return nil
				}
				return errors.Join(set.Add(ctx), set.Add(ctx)) // twice is once
			}))
		}
		addr := startTCP(t, srv)
		clients := make([]net.Conn, 10)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
			leaver.Store(true)
			_, err := io.WriteString(clients[i], "join")
			require.NoError(t, err)
		}
		eventually(t, func() bool { return set.Len() == 10 }, "10 members")
		leaver.Store(false)
		_, err := io.WriteString(clients[0], "leave")
		require.NoError(t, err)
		assert.Equal(t, []bool{true, false, true}, receive(t, removed, "Remove's results, and a pipeline as before"))
		assert.Equal(t, 9, set.Len())
		for _, c := range clients[1:5] {
			c.Close()
		}
		eventually(t, func() bool { return set.Len() == 5 }, "5 members")
		require.NoError(t, set.Broadcast([]byte("x")))
		require.NoError(t, all(5, func(i int) error {
			_, err := clients[5+i].Read(make([]byte, 1))
			return err
		}))
		require.NoError(t, srv.Shutdown(closing(t, clients)))
		assert.Zero(t, set.Len())
		require.ErrorIs(t, set.Broadcast([]byte("nobody listens")), loop.ErrStopped)
	})
}

// readFunc is a handler of one func.
type readFunc func(ctx *pipeline.Context, msg any) error

func (f readFunc) ChannelRead(ctx *pipeline.Context, msg any) error { return f(ctx, msg) }

// explosive panics when a message of the size comes through.
type explosive struct{ size int }

func (e explosive) Write(ctx *pipeline.Context, msg any) error {
	if b, ok := msg.(interface{ Len() int }); ok && b.Len() == e.size {
		panic("cannot encode this")
	}
	return ctx.Write(msg)
}

func TestAPanicInOneMembersHandlerKeepsTheMessageFromNobodyElse(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const members = 9
		srv := &weir.Server{Transport: kind, Loops: 1}
		set := &weir.Set{Server: srv}
		var n atomic.Int32
		srv.Init = func(p *pipeline.Pipeline) error {
			if n.Add(1)%3 == 0 {
				if err := p.AddLast("bomb", explosive{5}); err != nil {
					return err
				}
			}
			return p.AddLast("set", set)
		}
		clients := startMembers(t, srv, set, members)
		require.NoError(t, set.Broadcast([]byte("hello")))
		var heard atomic.Int32
		_ = all(members, func(i int) error {
			got := make([]byte, 5)
			if _, err := io.ReadFull(clients[i], got); err == nil && string(got) == "hello" {
				heard.Add(1)
			}
			return nil
		})
		assert.EqualValues(t, members-members/3, heard.Load())
		eventually(t, func() bool { return set.Len() == members-members/3 }, "who panicked is out")
		require.NoError(t, set.Broadcast([]byte("and on")))
	})
}

func TestASetKnowsOnlyChannelsOfItsLoops(t *testing.T) {
	other := &weir.Server{Init: initEcho, Loops: 1}
	startTCP(t, other)
	set := &weir.Set{Server: other}
	answers := make(chan error, 1)
	srv := &weir.Server{Loops: 1, Init: only(func() any {
		return readFunc(func(ctx *pipeline.Context, _ any) error {
			answers <- set.Add(ctx)
			return nil
		})
	})}
	_, err := io.WriteString(connect(t, "tcp", startTCP(t, srv)), "x")
	require.NoError(t, err)
	require.ErrorIs(t, receive(t, answers, "Add's result"), weir.ErrForeign)
	assert.Zero(t, set.Len())
}

func TestASetOfDialedChannels(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		addr := startTCP(t, &weir.Server{Transport: kind, Init: initEcho})
		d := startDialer(t, &weir.Dialer{Transport: kind, Loops: 2})
		set := &weir.Set{Dialer: d}
		got := make(chan string, 10)
		for range 4 {
			_, err := d.Dial(background(t), "tcp", addr, func(p *pipeline.Pipeline) error {
				return errors.Join(p.AddLast("set", set), p.AddLast("got", collector{got}))
			})
			require.NoError(t, err)
		}
		eventually(t, func() bool { return set.Len() == 4 }, "4 members")
		require.NoError(t, set.Broadcast([]byte("x")))
		for range 4 {
			assert.Equal(t, "x", receive(t, got, "the echo"))
		}
	})
}

// blockLoops keeps every loop of srv from running tasks until release is closed.
func blockLoops(t *testing.T, srv *weir.Server) (release chan struct{}) {
	release = make(chan struct{})
	g := srv.Group()
	for i := range g.Len() {
		entered := make(chan struct{})
		require.NoError(t, g.Loop(i).Execute(func() {
			close(entered)
			<-release
		}))
		receive(t, entered, "the loop")
	}
	return release
}

func TestABurstMakesNobodyMissAnything(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		// Together more than a member may be behind and more than its watermark, and less than the kernel takes.
		const messages, size, behind, kernel = 500, 1000, 60_000, 1 << 20
		srv := &weir.Server{Transport: kind, Loops: 2, Socket: transport.SocketConfig{SendBufferBytes: kernel}}
		set := &weir.Set{Server: srv, MaxBehindBytes: behind}
		srv.Init = only(func() any { return set })
		clients := startMembers(t, srv, set, 4)
		for _, c := range clients {
			require.NoError(t, c.(*net.TCPConn).SetReadBuffer(kernel))
		}
		release := blockLoops(t, srv)
		for range messages {
			require.NoError(t, set.Broadcast(make([]byte, size)))
		}
		close(release)
		require.NoError(t, all(len(clients), func(i int) error {
			_, err := io.ReadFull(clients[i], make([]byte, messages*size))
			return err
		}))
		assert.Zero(t, set.Missed())
	})
}

func TestAClosingChannelMissesNothing(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 1}
		set := &weir.Set{Server: srv, MaxBehindBytes: 10, Slow: func(*pipeline.Context) {}}
		closed := make(chan struct{})
		srv.Init = func(p *pipeline.Pipeline) error {
			return errors.Join(p.AddLast("set", set), p.AddLast("closer", readFunc(func(ctx *pipeline.Context, _ any) error {
				defer close(closed)
				return ctx.Close()
			})))
		}
		clients := startMembers(t, srv, set, 2)
		_, err := io.WriteString(clients[0], "x") // and keeps its side open: the channel goes on closing
		require.NoError(t, err)
		receive(t, closed, "the close")
		for range 5 {
			require.NoError(t, set.Broadcast(make([]byte, 10)))
		}
		_, err = io.ReadFull(clients[1], make([]byte, 50))
		require.NoError(t, err)
		assert.Zero(t, set.Missed())
		assert.Equal(t, 1, set.Len())
	})
}

func TestBroadcastBoundsWhatWaitsForTheLoops(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const limit, each = 10_000, weir.BroadcastOverheadBytes
		srv := &weir.Server{Transport: kind, Loops: 2}
		set := &weir.Set{Server: srv, MaxQueuedBytes: limit}
		srv.Init = only(func() any { return set })
		clients := startMembers(t, srv, set, 8)
		require.ErrorIs(t, set.Broadcast(make([]byte, limit-each+1)), pipeline.ErrFull, "more than fits at all")
		for _, tc := range []struct {
			first, second int
			fits          bool
		}{
			{5000, limit - 5000 - 2*each - 1, true},
			{5000, limit - 5000 - 2*each, true},
			{5000, limit - 5000 - 2*each + 1, false},
			{limit - each, 1, false},
		} {
			release := blockLoops(t, srv)
			require.NoError(t, set.Broadcast(make([]byte, tc.first)))
			err := set.Broadcast(make([]byte, tc.second))
			want := tc.first
			if tc.fits {
				require.NoError(t, err, "%d bytes after %d", tc.second, tc.first)
				want += tc.second
			} else {
				require.ErrorIs(t, err, pipeline.ErrFull, "%d bytes after %d", tc.second, tc.first)
			}
			close(release)
			for _, c := range clients {
				_, err := io.ReadFull(c, make([]byte, want))
				require.NoError(t, err)
			}
			eventually(t, func() bool { // the last byte is read before the loop has counted it off
				if err := set.Broadcast(make([]byte, limit-each)); err != nil {
					return false
				}
				for _, c := range clients {
					_, err := io.ReadFull(c, make([]byte, limit-each))
					require.NoError(t, err)
				}
				return true
			}, "all of the room again")
			eventually(t, func() bool { return set.Queued() == 0 }, "nothing queued")
		}
	})
}

func BenchmarkBroadcast(b *testing.B) {
	for _, size := range []int{64, 4096} {
		b.Run(fmt.Sprintf("members=100/size=%d", size), func(b *testing.B) {
			srv := &weir.Server{Loops: 1}
			set := &weir.Set{Server: srv}
			srv.Init = only(func() any { return set })
			addr := startTCP(b, srv)
			for range 100 {
				c := connect(b, "tcp", addr)
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
			eventually(b, func() bool { return set.Len() == 100 }, "members")
			message := make([]byte, size)
			done := make(chan struct{})
			b.ReportAllocs()
			b.SetBytes(int64(100 * size))
			for b.Loop() {
				if err := set.Broadcast(message); err != nil {
					b.Fatal(err)
				}
				if err := srv.Group().Loop(0).Execute(func() { done <- struct{}{} }); err != nil {
					b.Fatal(err)
				}
				<-done
			}
		})
	}
}

// A broadcast is one message to the handlers before the members, however many come in a turn.
func TestBroadcastsBehindAPrependerAreFrames(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 2}
		set := &weir.Set{Server: srv}
		srv.Init = func(p *pipeline.Pipeline) error {
			prepender, err := codec.NewLengthFieldPrepender(codec.LengthFieldPrependerConfig{Width: 4})
			if err != nil {
				return err
			}
			return errors.Join(p.AddLast("", prepender), p.AddLast("", set))
		}
		clients := startMembers(t, srv, set, 4)
		sizes := []int{1, 1024, 1025, 64 << 10, 70_000}
		for range 20 {
			for i, n := range sizes {
				require.NoError(t, set.Broadcast(bytes.Repeat([]byte{byte(i)}, n)))
			}
		}
		for _, c := range clients {
			for range 20 {
				for i, n := range sizes {
					p, err := readFrame(c)
					require.NoError(t, err)
					require.True(t, bytes.Equal(bytes.Repeat([]byte{byte(i)}, n), p), "%d bytes are a frame of %d", n, len(p))
				}
			}
		}
	})
}
