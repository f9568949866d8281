//go:build linux

package watermark_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	weirchannel "github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

const patience = servertest.Patience

var (
	eachTransport = servertest.Each
	eventually    = servertest.Eventually
)

// smallBuffers make the kernel hold little of what a peer does not take.
var smallBuffers = transport.SocketConfig{SendBufferBytes: 8 << 10, ReceiveBufferBytes: 8 << 10}

// rig is a server each of whose channels is held at its level.
type rig struct {
	servertest.Rig
	t     *testing.T
	kind  weir.Kind
	stats watermark.Stats
	sides chan *side // of the channels that became active
}

// side is the server's side of one connection.
type side struct {
	rig *rig
	h   *watermark.Handler
	ref pipeline.Ref

	most  atomic.Int64 // bytes pending
	cause atomic.Value // of the close, error
}

// first stands at the beginning of the pipeline.
type first struct{ *side }

// ChannelActive hands the side to the test.
func (s first) ChannelActive(ctx *pipeline.Context) error {
	s.ref = ctx.Ref()
	ctx.WatchPending(-1, 0, func(_ *pipeline.Context, n int) error { s.note(n); return nil })
	s.rig.sides <- s.side
	ctx.FireActive()
	return nil
}

// last stands at the end of the pipeline: what comes there has passed all handlers.
type last struct{ *side }

// ChannelInactive keeps the cause.
func (s last) ChannelInactive(ctx *pipeline.Context) error {
	if err := ctx.Cause(); err != nil {
		s.cause.Store(err)
	}
	return nil
}

// note remembers the most that was pending.
func (s *side) note(n int) { s.most.Store(max(s.most.Load(), int64(n))) }

// closeCause waits for the end of the channel and returns why it ended, nil for an orderly end.
func (s *side) closeCause() error {
	s.rig.t.Helper()
	servertest.Receive(s.rig.t, s.ref.Closed(), "the end of the channel")
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

// serve starts a server. At the end of the test all its channels must have closed and nothing may be left.
func serve(t *testing.T, kind weir.Kind, s setup) *rig {
	t.Helper()
	servertest.Balance(t)
	r := &rig{t: t, kind: kind, sides: make(chan *side, 1024)}
	if s.cfg.Stats == nil {
		s.cfg.Stats = &r.stats
	}
	srv := &weir.Server{Transport: kind, Loops: max(1, s.loops), Socket: smallBuffers, Channel: s.channel}
	r.Start(t, "tcp", srv, servertest.Chain(func() ([]any, error) {
		h, err := watermark.New(s.cfg)
		side := &side{rig: r, h: h}
		return append(append([]any{first{side}, h}, s.behind(side)...), last{side}), err
	}))
	return r
}

func (r *rig) held() int {
	_, bytes := r.Held()
	return bytes
}

// connect returns a connection whose reads and writes end within the patience, and the server's side of it.
func (r *rig) connect() (*net.TCPConn, *side) {
	r.t.Helper()
	return dial(r.t, r.Address), servertest.Receive(r.t, r.sides, "a channel that is active")
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

// blocked waits until the peer of c takes nothing any more, because its level is HIGH, and c has something to send. The
// level comes first: a window also closes on a loop that is late.
func blocked(t testing.TB, c *net.TCPConn, level func() watermark.Level) {
	t.Helper()
	eventually(t, func() bool { return level() == watermark.High }, "the level is HIGH")
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
