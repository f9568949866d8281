//go:build linux

package fieldtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

func TestAPeerThatNeverReadsBoundsWhatIsHeldForIt(t *testing.T) {
	covers(t, "panjf2000/gnet#420")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const limit, piece = 1 << 20, 16 << 10
		total := scaled(1<<30, 64<<20)
		var unwritable atomic.Int64
		var told atomic.Bool // what the handler heard last
		srv := &weir.Server{Transport: kind, Loops: 1, Channel: channel.Config{MaxPendingBytes: limit}}
		r := newRig(t, srv, only(func() any {
			return &hooks{
				active: keep,
				writability: func(ctx *pipeline.Context) error {
					told.Store(ctx.Writable())
					if !ctx.Writable() {
						unwritable.Add(1)
					}
					return nil
				},
			}
		}))
		c := r.dial()
		ref := r.kept(1)[0]
		before := residentBytes(t)
		sent, refused := 0, 0
		buf := make([]byte, piece)
		write := func() {
			pattern(buf, 1, sent)
			switch err := ref.TryWrite(buf); {
			case err == nil:
				sent += piece
			case errors.Is(err, pipeline.ErrFull):
				refused++
			default:
				require.NoError(t, err)
			}
		}
		for range total / piece {
			write()
		}
		r.eventually(func() bool { // a loop that was late has not filled the kernel yet
			before := sent
			write()
			r.OnLoop(0, func(*loop.Loop) {})
			write()
			return sent == before && !ref.Writable() && !told.Load()
		}, "the kernel takes no more")
		require.NotZero(t, refused)
		assert.LessOrEqual(t, ref.Pending(), limit+64<<10, "the limit, and the room of the block that is open")
		_, bytes := r.Held()
		assert.LessOrEqual(t, bytes, limit+128<<10, "bytes that the pool has handed out")
		assert.Less(t, residentBytes(t)-before, 64<<20, "growth of the process")
		// It became false a few times while the kernel still had room, how often is the scheduler's matter, then once for
		// good.
		assert.Less(t, unwritable.Load(), int64(sent/piece/2), "of %d writes that were taken", sent/piece)

		got := make([]byte, piece)
		want := make([]byte, piece)
		for at := 0; at < sent; at += piece {
			_, err := io.ReadFull(c, got)
			require.NoError(t, err)
			pattern(want, 1, at)
			if string(got) != string(want) {
				require.FailNow(t, "wrong bytes", "at %d", at)
			}
		}
		r.eventually(func() bool { return ref.Pending() == 0 && ref.Writable() && told.Load() },
			"it is told that it may go on")
		t.Logf("%d MiB sent, %d writes refused", sent>>20, refused)
	})
}

// smallBuffers keeps what the kernel takes of a stalled peer small.
var smallBuffers = transport.SocketConfig{SendBufferBytes: 8 << 10, ReceiveBufferBytes: 8 << 10}

// shrink does for a client what smallBuffers does for the server. It fails where the socket is none of TCP or Unix.
func shrink(c net.Conn) error {
	s := c.(interface {
		SetReadBuffer(int) error
		SetWriteBuffer(int) error
	})
	return errors.Join(s.SetReadBuffer(8<<10), s.SetWriteBuffer(8<<10))
}

func TestStalledPeersDoNotHoldTheirNeighbourUp(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		peers, trips, each := scaled(2048, 256), scaled(10_000, 1000), 128<<10
		srv := &weir.Server{
			Transport: kind, Loops: 1, Socket: smallBuffers,
			Channel: channel.Config{WriteHighBytes: 16 << 10, WriteLowBytes: 8 << 10},
		}
		r := newRig(t, srv, initEcho)
		neighbour := r.dial()
		before := residentBytes(t)
		var requests atomic.Int64
		var writers sync.WaitGroup
		stalled := make([]net.Conn, peers)
		for i := range stalled {
			stalled[i] = r.dial()
			require.NoError(t, shrink(stalled[i]))
			writers.Go(func() { // never reads; its write ends when the connection is closed
				for sent := 0; sent < each; {
					n, err := stalled[i].Write(make([]byte, 4<<10))
					sent += n
					requests.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
		}
		for i := range trips {
			require.NoError(t, ping(neighbour, fmt.Sprintf("round trip %8d of a client that reads", i)))
		}
		last := int64(-1)
		r.eventually(func() bool { // it comes to a halt
			now := requests.Load()
			halted := now == last
			last = now
			time.Sleep(20 * time.Millisecond)
			return halted
		}, "all peers stall")
		assert.Less(t, requests.Load(), int64(peers*each), "they were held up")
		_, bytes := r.Held()
		grown := residentBytes(t) - before
		t.Logf("%d peers, %d KiB requested each; per peer: %d bytes of pool, %d of RSS", peers,
			int(requests.Load())/peers>>10, bytes/peers, grown/peers)
		assert.Less(t, bytes, peers*(64<<10), "a stalled peer holds at most 64 KiB of the pool")
		assert.Less(t, grown, peers*(96<<10)+64<<20, "and as much of the process's memory, goroutines of the test included")
		require.NoError(t, ping(neighbour, "after all that"))
		for _, c := range stalled {
			_ = reset(c)
		}
		writers.Wait()
		r.eventually(func() bool { return r.Closed.Load() == int64(peers) }, "the stalled channels close")
		r.settled()
		require.NoError(t, ping(neighbour, "and after their end"))
	})
}

// relay is one side of a proxy: it writes what it receives to the other side, and pauses while that is not writable.
type relay struct{ other *pipeline.Context }

func (s *relay) ChannelRead(_ *pipeline.Context, msg any) error { return s.other.Write(msg) }

func (s *relay) ChannelReadComplete(ctx *pipeline.Context) error {
	if !s.other.Writable() {
		ctx.Pause()
	}
	return nil
}

func (s *relay) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() && s.other != nil {
		s.other.Resume()
	}
	return nil
}

func (s *relay) ChannelReadClosed(*pipeline.Context) error { return s.other.CloseWrite() }

func (s *relay) ChannelInactive(*pipeline.Context) error {
	if s.other != nil {
		_ = s.other.Close()
	}
	return nil
}

// entrance is the side of the proxy that was connected to: it connects the other one first.
type entrance struct {
	relay
	address string
}

func (s *entrance) ChannelActive(ctx *pipeline.Context) error {
	ctx.Pause()
	return ctx.Dial("tcp", s.address, func(p *pipeline.Pipeline) error {
		if err := p.AddLast("exit", &relay{other: ctx}); err != nil {
			return err
		}
		s.other = p.Context("exit")
		ctx.Resume()
		return s.other.Control(func(fd uintptr) error {
			return syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 32<<10)
		})
	}, ctx.Abort)
}

func TestAProxyPassesThePressureOfSlowSinksOn(t *testing.T) {
	covers(t, "cloudwego/netpoll#422", "panjf2000/gnet#722")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, each := scaled(40, 10), 2<<20
		listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10)
			})
		}}
		sink, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer sink.Close()
		srv := &weir.Server{Transport: kind, Loops: 1, Socket: smallBuffers}
		r := newRig(t, srv, only(func() any { return &entrance{address: sink.Addr().String()} }))

		var written atomic.Int64
		sums := make(chan [32]byte, conns)
		var sources sync.WaitGroup
		for i := range conns {
			c := r.dial()
			require.NoError(t, shrink(c))
			data := stream(uint64(i), each)
			sums <- sha256.Sum256(data)
			sources.Go(func() {
				for len(data) > 0 {
					n, err := c.Write(data[:min(len(data), 32<<10)])
					written.Add(int64(n))
					if err != nil {
						return
					}
					data = data[n:]
				}
				_ = c.(*net.TCPConn).CloseWrite()
			})
		}
		sinks := make([]net.Conn, conns)
		for i := range sinks {
			sinks[i], err = sink.Accept()
			require.NoError(t, err)
			defer sinks[i].Close()
		}
		last := int64(-1)
		r.eventually(func() bool {
			now := written.Load()
			halted := now == last
			last = now
			time.Sleep(50 * time.Millisecond)
			return halted
		}, "the sources feel it")
		assert.Less(t, written.Load(), int64(conns)*int64(each)*3/4, "the sources were held up")
		_, held := r.Held()
		t.Logf("held up after %d KiB for each source, with %d KiB of pool each", written.Load()>>10/int64(conns),
			held>>10/conns)
		assert.Less(t, held, conns*(256<<10), "the proxy holds at most 256 KiB for each")

		want := map[[32]byte]int{}
		for range conns {
			want[<-sums]++
		}
		got := make([][32]byte, conns)
		require.NoError(t, all(conns, func(i int) error {
			h := sha256.New()
			_, err := io.Copy(h, sinks[i])
			copy(got[i][:], h.Sum(nil))
			return errors.Join(err, sinks[i].Close())
		}))
		for _, sum := range got {
			want[sum]--
		}
		for _, n := range want {
			assert.Zero(t, n, "each source's bytes arrive at one sink")
		}
		sources.Wait()
	})
}

// babbler writes a stream in random pieces whenever it may.
type babbler struct {
	seed     uint64
	at, size int
	rnd      *rand.Rand
}

func (b *babbler) ChannelActive(ctx *pipeline.Context) error { return b.babble(ctx) }

func (b *babbler) ChannelWritabilityChanged(ctx *pipeline.Context) error { return b.babble(ctx) }

func (b *babbler) babble(ctx *pipeline.Context) error {
	for ctx.Writable() && b.at < b.size {
		n := min(between(b.rnd, 1, 20_000), b.size-b.at)
		p := make([]byte, n)
		pattern(p, b.seed, b.at)
		b.at += n
		if err := ctx.WriteBytes(p); err != nil {
			return err
		}
		switch b.rnd.IntN(8) {
		case 0: // crosses the watermarks within the turn
			ctx.Hold(80 << 10)
			ctx.Hold(-80 << 10)
		case 1:
			if err := ctx.Flush(); err != nil {
				return err
			}
		}
	}
	if b.at == b.size {
		b.at++
		return ctx.Close()
	}
	return nil
}

func TestRandomWritersAndDrainersNeverStall(t *testing.T) {
	covers(t, "netty/netty#8427")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns, size := scaled(40, 10), 3<<20
		var next atomic.Int64
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1, Socket: smallBuffers}, only(func() any {
			seed := uint64(next.Add(1))
			return &babbler{seed: seed, size: size, rnd: rand.New(rand.NewPCG(seed, 7))}
		}))
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = r.dial()
			r.eventually(func() bool { return r.Active.Load() == int64(i+1) }, "it is active")
		}
		require.NoError(t, all(conns, func(i int) error {
			rnd := rand.New(rand.NewPCG(uint64(i), 8))
			want := stream(uint64(i+1), size)
			buf := make([]byte, 64<<10)
			for at := 0; ; {
				n, err := clients[i].Read(buf[:between(rnd, 1, len(buf))])
				if !bytes.Equal(buf[:n], want[at:min(at+n, size)]) {
					return fmt.Errorf("client %d: wrong bytes at %d", i, at)
				}
				at += n
				if err == io.EOF && at == size {
					return clients[i].Close()
				}
				if err != nil {
					return fmt.Errorf("client %d: after %d of %d bytes: %w", i, at, size, err)
				}
				if rnd.IntN(50) == 0 {
					time.Sleep(time.Duration(rnd.IntN(1000)) * time.Microsecond)
				}
			}
		}))
	})
}

func TestAStreamSurvivesTinySendBuffersAndRandomWakes(t *testing.T) {
	covers(t, "tidwall/evio#72")
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				size := scaled(4<<20, 1<<20)
				sum := sha256.New()
				r := newRigOn(t, network, &weir.Server{
					Transport: kind, Loops: 1,
					Socket: transport.SocketConfig{SendBufferBytes: 4 << 10},
				}, only(func() any {
					return &hooks{
						active: keep,
						read: func(ctx *pipeline.Context, b *buffer.Buf) error {
							sum.Write(b.Bytes())
							return ctx.Write(b)
						},
						writability: func(ctx *pipeline.Context) error { return echo{}.ChannelWritabilityChanged(ctx) },
					}
				}))
				c := r.dial()
				ref := r.kept(1)[0]
				stop := make(chan struct{})
				var others sync.WaitGroup
				others.Go(func() {
					for rnd := rand.New(rand.NewPCG(1, 1)); ; {
						select {
						case <-stop:
							return
						default:
						}
						_ = ref.Execute(func(ctx *pipeline.Context) { _ = ctx.Flush() })
						time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
					}
				})
				data := stream(9, size)
				sent := make(chan error, 1)
				go func() {
					rnd := rand.New(rand.NewPCG(2, 2))
					for rest := data; len(rest) > 0; {
						n, err := c.Write(rest[:min(len(rest), between(rnd, 1, 30_000))])
						if err != nil {
							sent <- err
							return
						}
						rest = rest[n:]
					}
					sent <- c.(interface{ CloseWrite() error }).CloseWrite()
				}()
				got, err := io.ReadAll(c)
				require.NoError(t, err)
				require.NoError(t, receive(t, sent, "the end of sending"))
				close(stop)
				others.Wait()
				assert.True(t, bytes.Equal(data, got), "what came back is what was sent, %d and %d bytes", len(got), len(data))
				c.Close()
				receive(t, ref.Closed(), "the end")
				want := sha256.Sum256(data)
				assert.Equal(t, want[:], sum.Sum(nil), "and so is what was received")
			})
		})
	}
}
