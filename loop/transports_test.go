package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/epoll"
	"github.com/weirnet/weir/transport/sim"
)

// transports are real ones for the tests below. The suite of package transporttest holds them to their contract; here
// it is about what the loop makes of it.
func transports() map[string]func(raw bool) (transport.Transport, error) {
	return map[string]func(raw bool) (transport.Transport, error){
		"epoll": func(raw bool) (transport.Transport, error) { return epoll.Open(epoll.Config{Raw: raw}) },
		"sim":   func(bool) (transport.Transport, error) { return sim.NewWorld(1, sim.Config{}).Open(), nil },
	}
}

func onTransports(t *testing.T, test func(t *testing.T, l *loop.Loop)) {
	for name, open := range transports() {
		t.Run(name, func(t *testing.T) {
			l, err := loop.New(loop.Config{Open: open, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			if err := l.Open(); errors.Is(err, transport.ErrNotSupported) {
				t.Skip(err)
			} else {
				require.NoError(t, err)
			}
			defer func() { assert.NoError(t, l.Close()) }()
			test(t, l)
		})
	}
}

// socket is a Completer on one handle; it keeps what it received and closes on Abort.
type socket struct {
	l        *loop.Loop
	reg      loop.Registration
	handle   transport.Handle
	accepted []transport.Handle
	got      []byte
	sent     int
	panics   int
	closed   bool
	onData   func()
}

func newSocket(t *testing.T, l *loop.Loop, h transport.Handle) *socket {
	t.Helper()
	s := &socket{l: l, handle: h}
	reg, err := l.Register(s)
	require.NoError(t, err)
	s.reg = reg
	return s
}

func (s *socket) submit(op transport.Op) {
	op.Token = s.reg.Token(uint8(op.Kind))
	if op.Kind != transport.Connect {
		op.Handle = s.handle
	}
	s.l.Submit(op)
}

func (s *socket) Complete(c *transport.Completion) {
	switch transport.Kind(c.Token.Tag()) {
	case transport.Accept:
		if c.Handle != 0 {
			s.accepted = append(s.accepted, c.Handle)
		}
	case transport.Connect:
		s.handle = c.Handle
	case transport.Recv:
		if c.Buf != nil {
			s.got = append(s.got, c.Buf.Bytes()...)
			call(s.onData)
		}
	case transport.Send:
		s.sent += c.N
	case transport.Close:
		s.closed = true
		s.l.Unregister(s.reg)
	}
}

func (s *socket) RunNode(*loop.Node) {}
func (s *socket) EndTurn()           {}

func (s *socket) Panicked(any, []byte) {
	s.panics++
	s.submit(transport.Op{Kind: transport.Close, Reset: true})
}

func (s *socket) Abort(error) { s.submit(transport.Op{Kind: transport.Close, Reset: true}) }

// turnUntil turns the loop until ok, with a bound.
func turnUntil(t *testing.T, l *loop.Loop, what string, ok func() bool) {
	t.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		_, err := l.RunOnce(10 * time.Millisecond)
		require.NoError(t, err)
	}
	require.FailNow(t, "not in 10000 turns: "+what)
}

// pair returns a listener and the two ends of a connection through it.
func pair(t *testing.T, l *loop.Loop) (listener, client, server *socket) {
	t.Helper()
	h, err := l.Transport().Listen(transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0"})
	require.NoError(t, err)
	listener = newSocket(t, l, h)
	listener.submit(transport.Op{Kind: transport.Accept})
	client = newSocket(t, l, 0)
	client.submit(transport.Op{Kind: transport.Connect, Dial: &transport.DialConfig{
		Network: "tcp", Address: l.Transport().LocalAddr(h).String(),
	}})
	turnUntil(t, l, "connected", func() bool { return len(listener.accepted) == 1 && client.handle != 0 })
	return listener, client, newSocket(t, l, listener.accepted[0])
}

func TestTransportDataAndPanic(t *testing.T) {
	onTransports(t, func(t *testing.T, l *loop.Loop) {
		_, client, server := pair(t, l)
		server.submit(transport.Op{Kind: transport.Recv, Limit: 1 << 20})
		out := l.Pool().Get(5)
		out.AppendString("hello")
		client.submit(transport.Op{Kind: transport.Send, Bufs: []*buffer.Buf{out}})
		turnUntil(t, l, "received", func() bool { return string(server.got) == "hello" && client.sent == 5 })

		server.onData = explode
		client.submit(transport.Op{Kind: transport.Send, Bufs: []*buffer.Buf{out}})
		turnUntil(t, l, "closed after the panic", func() bool { return server.closed && client.sent == 10 })
		assert.Equal(t, 1, server.panics)
		assert.False(t, client.closed)
		out.Release()
		assert.Zero(t, l.Pool().Outstanding(), "the loop has released what the panic left")
		require.NoError(t, l.Close())
		assert.True(t, client.closed, "closing the loop aborts and waits")
	})
}

func TestTransportConnectionForNobodyIsClosed(t *testing.T) {
	onTransports(t, func(t *testing.T, l *loop.Loop) {
		h, err := l.Transport().Listen(transport.ListenConfig{Network: "tcp", Address: "127.0.0.1:0"})
		require.NoError(t, err)
		gone := newSocket(t, l, h)
		gone.submit(transport.Op{Kind: transport.Accept})
		client := newSocket(t, l, 0)
		client.submit(transport.Op{Kind: transport.Connect, Dial: &transport.DialConfig{
			Network: "tcp", Address: l.Transport().LocalAddr(h).String(),
		}})
		l.Unregister(gone.reg)
		turnUntil(t, l, "accepted for nobody", func() bool { return l.Stats().Stale > 0 && client.handle != 0 })
		turnUntil(t, l, "closed", func() bool { return l.Transport().Stats().Open == 2 }) // listener and client
	})
}

func TestTransportTimersKeepTheirTime(t *testing.T) {
	onTransports(t, func(t *testing.T, l *loop.Loop) {
		start := l.Now()
		var at time.Duration
		l.NewTimer(nil, func() { at = l.Now() }).Reset(1500 * time.Microsecond)
		turns := l.Stats().Turns
		for at == 0 {
			_, err := l.RunOnce(forever)
			require.NoError(t, err)
		}
		assert.GreaterOrEqual(t, at-start, 1500*time.Microsecond)
		assert.LessOrEqual(t, l.Stats().Turns-turns, uint64(5), "it does not spin until the deadline")
	})
}

// On epoll with real threads: loops sleep, are woken by posts, and end.
func TestGroupOnEpoll(t *testing.T) {
	g, err := loop.NewGroup(2, func(int) loop.Config {
		return loop.Config{Open: transports()["epoll"], Logger: slog.New(slog.DiscardHandler)}
	})
	require.NoError(t, err)
	if err := g.Start(); errors.Is(err, transport.ErrNotSupported) {
		t.Skip(err)
	} else {
		require.NoError(t, err)
	}
	var ran atomic.Int64
	const each = 20_000
	for i := range g.Len() {
		l := g.Loop(i)
		items := make([]item, each)
		done := make(chan struct{})
		for n := range items {
			items[n].run = func(int, int) {
				if ran.Add(1)%each == 0 {
					close(done)
				}
			}
			items[n].node.Init(&items[n])
			require.True(t, l.Post(&items[n].node))
		}
		closesInTime(t, done, "the nodes")
		var first, second uint64
		step := make(chan struct{})
		require.NoError(t, l.Execute(func() { first = l.Stats().Turns; close(step) }))
		closesInTime(t, step, "a task")
		step = make(chan struct{})
		timer := time.NewTimer(20 * time.Millisecond)
		<-timer.C // time in which an idle loop that polls would turn often
		require.NoError(t, l.Execute(func() { second = l.Stats().Turns; close(step) }))
		closesInTime(t, step, "another task")
		assert.LessOrEqual(t, second-first, uint64(3))
	}
	g.Stop()
	require.NoError(t, g.Wait(context.Background()))
	assert.Equal(t, int64(2*each), ran.Load())
}
