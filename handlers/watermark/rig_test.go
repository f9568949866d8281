//go:build linux

package watermark_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	weirchannel "github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// patience bounds every wait of the tests over sockets.
const patience = 60 * time.Second

// smallBuffers make the kernel hold little of what a peer does not take.
var smallBuffers = transport.SocketConfig{SendBufferBytes: 8 << 10, ReceiveBufferBytes: 8 << 10}

// rig is a server each of whose channels is held at its level, and the account of these channels.
type rig struct {
	t       *testing.T
	kind    weir.Kind
	srv     *weir.Server
	address string
	loops   []*loop.Loop
	pools   []*buffer.Pool
	stats   watermark.Stats
	sides   chan *side // of the channels that became active

	active, inactive, closed, wrong atomic.Int64
}

// side is the server's side of one connection.
type side struct {
	rig *rig
	h   *watermark.Handler
	ref pipeline.Ref

	most             atomic.Int64 // bytes pending
	cause            atomic.Value // of the close, error
	active, inactive int          // loop goroutine only
}

// first stands at the beginning of the pipeline.
type first struct{ *side }

// ChannelActive counts, and hands the side to the test.
func (s first) ChannelActive(ctx *pipeline.Context) error {
	if s.active++; s.active > 1 {
		s.rig.wrong.Add(1)
	}
	s.ref = ctx.Ref()
	ctx.WatchPending(-1, 0, func(_ *pipeline.Context, n int) error { s.note(n); return nil })
	s.rig.active.Add(1)
	s.rig.sides <- s.side
	ctx.FireActive()
	return nil
}

// last stands at the end of the pipeline: what comes there has passed all handlers.
type last struct{ *side }

// ChannelInactive counts.
func (s last) ChannelInactive(ctx *pipeline.Context) error {
	if s.inactive++; s.inactive > 1 || s.active == 0 {
		s.rig.wrong.Add(1)
	}
	if err := ctx.Cause(); err != nil {
		s.cause.Store(err)
	}
	s.rig.inactive.Add(1)
	return nil
}

// note remembers the most that was pending.
func (s *side) note(n int) { s.most.Store(max(s.most.Load(), int64(n))) }

// closeCause waits for the end of the channel and returns why it ended, nil for an orderly end.
func (s *side) closeCause() error {
	s.rig.t.Helper()
	select {
	case <-s.ref.Closed():
	case <-time.After(patience):
		require.FailNow(s.rig.t, "the channel does not close")
	}
	err, _ := s.cause.Load().(error)
	return err
}

// setup is what a rig is made of.
type setup struct {
	loops   int // zero means 1
	cfg     watermark.Config
	channel weirchannel.Config
	behind  func(s *side) []any // the handlers behind the watermark Handler
}

// eachTransport runs test on each transport, forced.
func eachTransport(t *testing.T, test func(t *testing.T, kind weir.Kind)) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		t.Run("transport="+string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// serve starts a server. At the end of the test all its channels must have closed and nothing may be left.
func serve(t *testing.T, kind weir.Kind, s setup) *rig {
	t.Helper()
	balance(t)
	r := &rig{t: t, kind: kind, sides: make(chan *side, 1024)}
	if s.cfg.Stats == nil {
		s.cfg.Stats = &r.stats
	}
	s.channel.Closed = func(*weirchannel.Channel) { r.closed.Add(1) }
	r.srv = &weir.Server{
		Transport: kind, Loops: max(1, s.loops), Socket: smallBuffers, Channel: s.channel,
		Logger: slog.New(slog.DiscardHandler),
		Init: func(p *pipeline.Pipeline) error {
			h, err := watermark.New(s.cfg)
			if err != nil {
				return err
			}
			side := &side{rig: r, h: h}
			for _, handler := range append([]any{first{side}, h}, s.behind(side)...) {
				if err := p.AddLast("", handler); err != nil {
					return err
				}
			}
			return p.AddLast("", last{side})
		},
	}
	addr, err := r.srv.Listen("tcp", "127.0.0.1:0")
	testenv.Require(t, string(kind), err)
	r.address = addr.String()
	t.Cleanup(r.end)
	for i := range r.srv.Group().Len() {
		l := r.srv.Group().Loop(i)
		done := make(chan struct{})
		require.NoError(t, l.Execute(func() { r.pools = append(r.pools, l.Pool()); close(done) }))
		<-done
		r.loops = append(r.loops, l)
	}
	return r
}

// balance checks at the end of the test that there are no more goroutines and descriptors than now.
func balance(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the first use of package net opens descriptors for good
	require.NoError(t, err)
	require.NoError(t, l.Close())
	goroutines, descriptors := runtime.NumGoroutine(), testenv.OpenDescriptors()
	t.Cleanup(func() {
		ok := func() bool { return runtime.NumGoroutine() <= goroutines && testenv.OpenDescriptors() <= descriptors }
		assert.True(t, poll(ok), "left over: goroutines %d, at first %d; descriptors %d, at first %d",
			runtime.NumGoroutine(), goroutines, testenv.OpenDescriptors(), descriptors)
	})
}

func (r *rig) end() {
	assert.True(r.t, poll(func() bool {
		return r.inactive.Load() >= r.active.Load() && r.closed.Load() >= r.active.Load()
	}), "channels stay open: %d active, %d inactive, %d closed", r.active.Load(), r.inactive.Load(), r.closed.Load())
	assert.NoError(r.t, r.srv.Close())
	assert.Equal(r.t, r.active.Load(), r.inactive.Load(), "Inactive comes once for each Active")
	assert.Zero(r.t, r.wrong.Load(), "channels whose Active or Inactive came at a wrong time")
	for i, p := range r.pools {
		assert.Zero(r.t, p.Outstanding(), "buffers of loop %d: %v", i, p.Leaks())
		assert.Zero(r.t, p.OutstandingBytes(), "bytes of loop %d", i)
	}
}

// held returns how many bytes the pools have handed out.
func (r *rig) held() (bytes int) {
	r.t.Helper()
	for i, l := range r.loops {
		done := make(chan struct{})
		require.NoError(r.t, l.Execute(func() { bytes += r.pools[i].OutstandingBytes(); close(done) }))
		<-done
	}
	return bytes
}

// connect returns a connection whose reads and writes end within the patience, and the server's side of it.
func (r *rig) connect() (*net.TCPConn, *side) {
	r.t.Helper()
	c := dial(r.t, r.address)
	select {
	case s := <-r.sides:
		return c, s
	case <-time.After(patience):
		require.FailNow(r.t, "no channel becomes active")
		return nil, nil
	}
}

// dial returns a connection with small buffers.
func dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) (failed error) {
		err := c.Control(func(fd uintptr) {
			failed = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<10))
		})
		return errors.Join(err, failed)
	}}
	c, err := d.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*net.TCPConn)
}

// poll reports whether ok becomes true within the patience.
func poll(ok func() bool) bool {
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func eventually(t testing.TB, ok func() bool, what string, args ...any) {
	t.Helper()
	require.True(t, poll(ok), "does not happen: "+fmt.Sprintf(what, args...))
}

// tcpInfo returns what the kernel says about a connection (tcp(7), TCP_INFO).
func tcpInfo(t testing.TB, c *net.TCPConn) (info *unix.TCPInfo) {
	t.Helper()
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	var failed error
	require.NoError(t, raw.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}))
	require.NoError(t, failed)
	return info
}

// blocked waits until the peer of c takes nothing any more and c has something to send.
func blocked(t testing.TB, c *net.TCPConn) {
	t.Helper()
	eventually(t, func() bool {
		info := tcpInfo(t, c)
		return info.Snd_wnd == 0 && info.Notsent_bytes > 0
	}, "the window is closed")
}

// pattern fills p with a stream from position at on; it differs everywhere, and from those of other seeds.
func pattern(p []byte, seed, at int) {
	for i := range p {
		x := (uint64(at+i) + uint64(seed)<<40) * 0x9e3779b97f4a7c15
		p[i] = byte(x>>56) ^ byte(x>>32)
	}
}

func stream(seed, n int) []byte {
	p := make([]byte, n)
	pattern(p, seed, 0)
	return p
}

// expect reads n bytes of a stream from position at on.
func expect(c io.Reader, seed, at, n int) error {
	got, want := make([]byte, 16<<10), make([]byte, 16<<10)
	for end := at + n; at < end; {
		k, err := c.Read(got[:min(len(got), end-at)])
		pattern(want[:k], seed, at)
		if string(got[:k]) != string(want[:k]) {
			return fmt.Errorf("wrong bytes in [%d,%d)", at, at+k)
		}
		at += k
		if err != nil && at < end {
			return fmt.Errorf("%d bytes before the end: %w", end-at, err)
		}
	}
	return nil
}
