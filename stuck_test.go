//go:build linux

package weir_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// holdUp holds its loop up where it is called, until it is released.
type holdUp struct {
	entered chan uint64 // gets the ID of the channel
	release chan struct{}
}

func newHoldUp(t *testing.T) holdUp {
	h := holdUp{entered: make(chan uint64, 1), release: make(chan struct{})}
	t.Cleanup(func() { close(h.release) })
	return h
}

func (h holdUp) ChannelRead(ctx *pipeline.Context, _ any) error {
	h.entered <- ctx.ID()
	<-h.release
	return nil
}

// echoUnless echoes; who sends '!' gets the other handler.
type echoUnless struct{ other pipeline.ReadHandler }

func (e echoUnless) ChannelRead(ctx *pipeline.Context, msg any) error {
	if msg.(interface{ Bytes() []byte }).Bytes()[0] == '!' {
		return e.other.ChannelRead(ctx, msg)
	}
	return ctx.Write(msg)
}

// startStuck starts a server of two loops with clients on both, and holds up the loop of the first client.
func startStuck(t *testing.T, srv *weir.Server) (h holdUp, clients []net.Conn, id uint64) {
	h = newHoldUp(t)
	srv.Loops, srv.Logger = 2, quiet()
	srv.Init = only(func() any { return echoUnless{h} })
	require.NoError(t, ready(&weir.Dialer{Server: srv}))
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	for both := false; !both; {
		c := connect(t, "tcp", addr.String())
		require.NoError(t, ping(c, "x"))
		clients = append(clients, c)
		st, err := srv.Stats(background(t))
		require.NoError(t, err)
		both = st.Loops[0].Open > 0 && st.Loops[1].Open > 0
	}
	_, err = io.WriteString(clients[0], "!")
	require.NoError(t, err)
	return h, clients, receive(t, h.entered, "the handler")
}

func TestAServerEndsAtItsBoundAndNamesTheStuckHandler(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		t.Parallel()
		for name, end := range map[string]func(srv *weir.Server) error{
			"Close": (*weir.Server).Close,
			"Shutdown": func(srv *weir.Server) error {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				return srv.Shutdown(ctx)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				srv := &weir.Server{Transport: kind}
				_, clients, id := startStuck(t, srv)
				waited := make(chan error, 1)
				go func() { waited <- srv.Wait() }()
				ended := make(chan error, 1)
				go func() { ended <- end(srv) }()
				err := receive(t, ended, "the end")
				require.ErrorIs(t, err, loop.ErrStuck)
				assert.Equal(t, name == "Shutdown", errors.Is(err, context.Canceled))
				var stuck *loop.StuckError
				require.ErrorAs(t, err, &stuck)
				assert.Regexp(t, "^loop-[01]$", stuck.Loop)
				assert.Equal(t, fmt.Sprintf("weir_test.echoUnless.ChannelRead on channel %#x", id), stuck.Handler)
				require.ErrorIs(t, receive(t, waited, "Wait's result"), loop.ErrStuck)
				require.ErrorIs(t, end(srv), loop.ErrStuck, "a second time")
				_, err = srv.Listen("tcp", "127.0.0.1:0")
				require.ErrorIs(t, err, weir.ErrServerClosed)
				alive := 0
				for _, c := range clients { // those of the other loop have been closed
					require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
					if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
						alive++
					}
				}
				assert.Less(t, alive, len(clients))
			})
		}
	})
}

// What is no handler has a name, too.
func TestWhoeverHoldsALoopUpIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name string
		hold func(srv *weir.Server, h func())
		says string
	}{
		{"Init", func(srv *weir.Server, h func()) {
			srv.Init = func(*pipeline.Pipeline) error { h(); return nil }
		}, "weir_test.TestWhoeverHoldsALoopUpIsNamed"},
		{"Closed", func(srv *weir.Server, h func()) {
			srv.Init = func(*pipeline.Pipeline) error { return errors.New("not you") }
			srv.Channel.Closed = func(*channel.Channel) { h() }
		}, "weir_test.TestWhoeverHoldsALoopUpIsNamed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHoldUp(t)
			srv := &weir.Server{Loops: 1, Logger: quiet()}
			tc.hold(srv, func() {
				h.entered <- 0
				<-h.release
			})
			require.NoError(t, ready(&weir.Dialer{Server: srv}))
			addr, err := srv.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			if c, err := net.Dial("tcp", addr.String()); err == nil { // where Init fails it may be reset already
				defer c.Close()
			}
			receive(t, h.entered, "the callback")
			var stuck *loop.StuckError
			require.ErrorAs(t, srv.Close(), &stuck)
			assert.Contains(t, stuck.Handler, tc.says)
		})
	}
}

func TestADialerEndsAtItsBoundAndNamesTheStuckHandler(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		t.Parallel()
		h := newHoldUp(t)
		d := &weir.Dialer{Transport: kind, Logger: quiet()}
		require.NoError(t, ready(d))
		ref, err := d.Dial(background(t), "tcp", listen(t, "tcp", "127.0.0.1:0", echoing), only(func() any { return h }))
		require.NoError(t, err)
		require.NoError(t, ref.TryWrite([]byte("x")))
		id := receive(t, h.entered, "the handler")
		dialed := make(chan error, 1)
		go func() {
			_, err := d.Dial(background(t), "tcp", "127.0.0.1:1", nil)
			dialed <- err
		}()
		err = d.Close()
		var stuck *loop.StuckError
		require.ErrorAs(t, err, &stuck)
		assert.Equal(t, fmt.Sprintf("weir_test.holdUp.ChannelRead on channel %#x", id), stuck.Handler)
		require.ErrorIs(t, receive(t, dialed, "a Dial on the stuck loop"), weir.ErrDialerClosed)
	})
}

func TestStatsDoNotWaitForAStuckLoop(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, watchdog := range []time.Duration{time.Millisecond, -1} {
			srv := &weir.Server{Transport: kind, WatchdogAfter: watchdog}
			h, clients, _ := startStuck(t, srv)
			ctx, cancel := context.WithCancel(background(t))
			if watchdog < 0 {
				cancel() // nobody else finds it
			}
			st, err := srv.Stats(ctx)
			if watchdog < 0 {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
			cancel()
			stuck, other := st.Loops[0], st.Loops[1]
			if other.Stuck && !stuck.Stuck {
				stuck, other = other, stuck
			}
			assert.True(t, stuck.Stuck)
			assert.NotZero(t, stuck.Open)
			assert.Zero(t, stuck.Loop.Turns)
			if watchdog > 0 {
				assert.False(t, other.Stuck)
				assert.NotZero(t, other.Loop.Turns)
			}
			assert.EqualValues(t, len(clients), st.Accepted)
			h.release <- struct{}{}
			eventually(t, func() bool {
				st, err := srv.Stats(background(t))
				return err == nil && !st.Loops[0].Stuck && !st.Loops[1].Stuck
			}, "the loop goes on")
			require.NoError(t, srv.Close())
		}
	})
}
