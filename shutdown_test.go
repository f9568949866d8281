//go:build linux

package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

func TestAServerThatWasClosedBeforeItServedNeverServes(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(srv *weir.Server) error
	}{
		{"Shutdown", func(srv *weir.Server) error { return srv.Shutdown(context.Background()) }},
		{"Close", (*weir.Server).Close},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := &weir.Server{Init: initEcho}
			waited := make(chan error, 1)
			go func() { waited <- srv.Wait() }()
			require.NoError(t, tc.end(srv))
			require.NoError(t, tc.end(srv), "a second time")
			require.ErrorIs(t, receive(t, waited, "Wait's result"), weir.ErrServerClosed)
			require.ErrorIs(t, srv.ListenAndServe("tcp", "127.0.0.1:0"), weir.ErrServerClosed)
			_, err := srv.Listen("tcp", "127.0.0.1:0")
			require.ErrorIs(t, err, weir.ErrServerClosed)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			require.ErrorIs(t, srv.Serve(l), weir.ErrServerClosed)
			require.ErrorIs(t, l.Close(), net.ErrClosed, "Serve has closed it")
			assert.Nil(t, srv.Group())
		})
	}
}

// lateResponder responds to a request from another goroutine, when gate is closed, and keeps its channel open on
// shutdown until then.
type lateResponder struct {
	gate              chan struct{}
	requests, stopped *atomic.Int32
	answer            []byte
	busy, stopping    bool
}

func (r *lateResponder) ChannelRead(ctx *pipeline.Context, _ any) error {
	r.busy = true
	r.requests.Add(1)
	ref := ctx.Ref()
	go func() {
		<-r.gate
		_ = ref.Write(context.Background(), r.answer)
		_ = ref.Execute(func(ctx *pipeline.Context) {
			if r.busy = false; r.stopping {
				_ = ctx.Close()
			}
		})
	}()
	return nil
}

func (r *lateResponder) ChannelShutdown(ctx *pipeline.Context) error {
	r.stopping = true
	r.stopped.Add(1)
	if !r.busy {
		return ctx.Close()
	}
	return nil
}

func TestShutdownLosesNoResponseThatIsUnderWay(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const busy, idle = 1000, 50
		gate := make(chan struct{})
		var requests, stopped atomic.Int32
		answer := bytes.Repeat([]byte("answer "), 3000) // 21 kB: more than one piece
		srv := &weir.Server{Transport: kind, Logger: quiet(), Loops: 2, Init: only(func() any {
			return &lateResponder{gate: gate, requests: &requests, stopped: &stopped, answer: answer}
		})}
		addr := startTCP(t, srv)
		served := make(chan error, 1)
		go func() { served <- srv.Wait() }()
		clients := make([]net.Conn, busy+idle)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
			if i < busy {
				_, err := io.WriteString(clients[i], "request")
				require.NoError(t, err)
			}
		}
		eventually(t, func() bool { return requests.Load() == busy }, "%d requests", busy)

		down := make(chan error, 1)
		go func() { down <- srv.Shutdown(background(t)) }()
		eventually(t, func() bool { return stopped.Load() == busy+idle }, "everybody asked to stop")
		select {
		case err := <-down:
			require.FailNow(t, "Shutdown did not wait", "%v", err)
		default:
		}
		eventually(t, func() bool { return free(addr) }, "nobody listens any more")
		close(gate)
		require.NoError(t, all(len(clients), func(i int) error {
			want := answer
			if i >= busy {
				want = nil
			}
			got, err := io.ReadAll(clients[i])
			if err != nil || !bytes.Equal(got, want) {
				return fmt.Errorf("client %d: %d bytes of %d, then %w", i, len(got), len(want), err)
			}
			return clients[i].Close()
		}))
		require.NoError(t, receive(t, down, "Shutdown's result"))
		require.ErrorIs(t, receive(t, served, "Wait's result"), weir.ErrServerClosed)
		require.NoError(t, srv.Shutdown(background(t)), "a second time")
	})
}

// greeter sends a lot as soon as it can.
type greeter struct{ greeting []byte }

func (g greeter) ChannelActive(ctx *pipeline.Context) error { return ctx.Write(g.greeting) }

func TestShutdownDeliversWhatIsQueued(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		greeting, err := io.ReadAll(noise(3, 8<<20)) // more than the kernel takes while nobody reads
		require.NoError(t, err)
		srv := &weir.Server{Transport: kind, Init: only(func() any { return greeter{greeting} })}
		addr := startTCP(t, srv)
		const conns = 10
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
		}
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.Accepted == conns
		}, "all are accepted")
		down := make(chan error, 1)
		go func() { down <- srv.Shutdown(background(t)) }()
		eventually(t, func() bool { return free(addr) }, "the listeners are closed")
		require.NoError(t, all(conns, func(i int) error {
			defer clients[i].Close()
			return compare(clients[i], bytes.NewReader(greeting))
		}))
		require.NoError(t, receive(t, down, "Shutdown's result"))
	})
}

// stalled holds its loop up in ChannelActive of its first connection.
type stalled struct {
	entered, release chan struct{}
	first            *atomic.Bool
}

func (s stalled) ChannelActive(ctx *pipeline.Context) error {
	if s.first.CompareAndSwap(false, true) {
		close(s.entered)
		<-s.release
	}
	return ctx.WriteBytes([]byte("served"))
}

func TestShutdownAcceptsWhatTheKernelHasConnected(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		for _, adopted := range []bool{false, true} {
			h := stalled{entered: make(chan struct{}), release: make(chan struct{}), first: new(atomic.Bool)}
			srv := &weir.Server{Transport: kind, Loops: 1, Logger: quiet(), Init: only(func() any { return h })}
			var addr string
			if adopted {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				addr = l.Addr().String()
				t.Cleanup(func() { srv.Close() })
				require.NoError(t, ready(&weir.Dialer{Server: srv}))
				go srv.Serve(l)
			} else {
				addr = startTCP(t, srv)
			}
			first := connect(t, "tcp", addr)
			receive(t, h.entered, "the first connection")
			const waiting = 300 // more than a turn accepts
			clients := []net.Conn{first}
			for range waiting {
				clients = append(clients, connect(t, "tcp", addr))
			}
			down := make(chan error, 1)
			go func() { down <- srv.Shutdown(background(t)) }()
			close(h.release)
			require.NoError(t, all(len(clients), func(i int) error {
				got, err := io.ReadAll(clients[i])
				if err != nil || string(got) != "served" {
					return fmt.Errorf("client %d: %q, %w", i, got, err)
				}
				return clients[i].Close()
			}), "adopted %v", adopted)
			require.NoError(t, receive(t, down, "Shutdown's result"))
		}
	})
}

// stubborn does not stop when it is asked to.
type stubborn struct{ asked *atomic.Int32 }

func (s stubborn) ChannelShutdown(*pipeline.Context) error {
	s.asked.Add(1)
	return nil
}

func TestShutdownAbortsWhatIsLeftWhenItsContextIsDone(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns = 20
		var asked atomic.Int32
		srv := &weir.Server{Transport: kind, Init: only(func() any { return stubborn{&asked} })}
		addr := startTCP(t, srv)
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
		}
		ctx, cancel := context.WithCancel(background(t))
		down := make(chan error, 1)
		go func() { down <- srv.Shutdown(ctx) }()
		eventually(t, func() bool { return asked.Load() == conns }, "everybody asked")
		cancel()
		require.ErrorIs(t, receive(t, down, "Shutdown's result"), context.Canceled)
		require.NoError(t, all(conns, func(i int) error {
			if _, err := clients[i].Read(make([]byte, 1)); err == nil {
				return errors.New("bytes from an aborted connection")
			}
			return nil
		}))
		require.ErrorIs(t, srv.Wait(), weir.ErrServerClosed)
	})
}

func TestEveryCallThatEndsAServerReturns(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var asked atomic.Int32
		srv := &weir.Server{Transport: kind, Init: only(func() any { return stubborn{&asked} })}
		addr := startTCP(t, srv)
		served := make(chan error, 1)
		go func() { served <- srv.Wait() }()
		connect(t, "tcp", addr)
		downs := make(chan error, 8)
		for range cap(downs) {
			go func() { downs <- srv.Shutdown(background(t)) }()
		}
		eventually(t, func() bool { return asked.Load() == 1 }, "the channel asked once")
		require.NoError(t, all(4, func(int) error { return srv.Close() }))
		for range cap(downs) { // they were draining when somebody else aborted
			require.ErrorIs(t, receive(t, downs, "Shutdown's result"), weir.ErrServerClosed)
		}
		require.ErrorIs(t, receive(t, served, "Wait's result"), weir.ErrServerClosed)
		assert.EqualValues(t, 1, asked.Load())
		_, err := srv.Listen("tcp", "127.0.0.1:0")
		require.ErrorIs(t, err, weir.ErrServerClosed)
	})
}

// suicidal panics on shutdown, every other one.
type suicidal struct{ n *atomic.Int32 }

func (s suicidal) ChannelShutdown(ctx *pipeline.Context) error {
	if s.n.Add(1)%2 == 0 {
		panic("not me")
	}
	_ = ctx.WriteBytes([]byte("bye"))
	return ctx.Close()
}

func TestAPanicInChannelShutdownKeepsNobodyElseFromFinishing(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		const conns = 40
		var n, byes atomic.Int32
		srv := &weir.Server{Transport: kind, Loops: 1, Init: only(func() any { return suicidal{&n} })}
		addr := startTCP(t, srv)
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr)
		}
		down := make(chan error, 1)
		go func() { down <- srv.Shutdown(background(t)) }()
		_ = all(conns, func(i int) error {
			defer clients[i].Close()
			if got, err := io.ReadAll(clients[i]); err == nil && string(got) == "bye" {
				byes.Add(1)
			}
			return nil
		})
		require.NoError(t, receive(t, down, "Shutdown's result"))
		assert.EqualValues(t, conns/2, byes.Load())
	})
}

// quitter ends its loop's goroutine, which no recover can undo.
type quitter struct{}

func (quitter) ChannelRead(*pipeline.Context, any) error {
	runtime.Goexit()
	return nil
}

func TestALoopThatDiesEndsTheServerWithItsError(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind, Loops: 3, Logger: quiet(), Init: only(func() any { return quitter{} })}
		require.NoError(t, ready(&weir.Dialer{Server: srv}))
		addr, err := srv.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var clients []net.Conn
		for range 30 {
			clients = append(clients, connect(t, "tcp", addr.String()))
		}
		eventually(t, func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.Accepted == uint64(len(clients))
		}, "all are accepted")
		_, err = io.WriteString(clients[0], "x")
		require.NoError(t, err)
		require.ErrorIs(t, srv.Wait(), loop.ErrGoexit)
		for _, c := range clients { // also those of the other loops
			_, err := c.Read(make([]byte, 1))
			require.Error(t, err)
		}
		require.ErrorIs(t, srv.Shutdown(background(t)), loop.ErrGoexit)
		require.ErrorIs(t, srv.Close(), loop.ErrGoexit)
		st, err := srv.Stats(background(t))
		require.NoError(t, err)
		assert.EqualValues(t, len(clients), st.Accepted)
		for i, l := range st.Loops {
			assert.NotZero(t, l.Loop.Turns, "the counters of loop %d stay", i)
		}
	})
}

// boss calls what waits for loops from a handler.
type boss struct {
	srv     *weir.Server
	answers chan error
}

func (b boss) ChannelRead(ctx *pipeline.Context, _ any) error {
	b.answers <- b.srv.Shutdown(context.Background())
	b.answers <- b.srv.Close()
	b.answers <- b.srv.Wait()
	_, err := b.srv.Listen("tcp", "127.0.0.1:0")
	b.answers <- err
	_, err = b.srv.Stats(context.Background())
	b.answers <- err
	go func() { b.answers <- b.srv.Shutdown(context.Background()) }()
	return nil
}

func TestCallsThatWaitAnswerInsteadOfDeadlockingOnALoop(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{Transport: kind}
		answers := make(chan error, 10)
		srv.Init = only(func() any { return boss{srv, answers} })
		c := connect(t, "tcp", startTCP(t, srv))
		_, err := io.WriteString(c, "x")
		require.NoError(t, err)
		for _, call := range []string{"Shutdown", "Close", "Wait", "Listen", "Stats"} {
			require.ErrorIs(t, receive(t, answers, call), pipeline.ErrWouldDeadlock, call)
		}
		_, err = io.ReadAll(c)
		require.NoError(t, err)
		c.Close()
		require.NoError(t, receive(t, answers, "Shutdown on a new goroutine"))
	})
}

func TestAListenThatShutdownOvertakesLeavesNoListener(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		var asked atomic.Int32
		srv := &weir.Server{Transport: kind, Loops: 2, Init: only(func() any { return stubborn{&asked} })}
		down := make(chan error, 1)
		ctx, cancel := context.WithCancel(background(t))
		defer cancel()
		var overtake atomic.Bool
		srv.Control = func(string, string, syscall.RawConn) error { // on the first loop, before the second one's turn
			if overtake.CompareAndSwap(true, false) {
				go func() { down <- srv.Shutdown(ctx) }()
				for deadline := time.Now().Add(patience); asked.Load() == 0 && time.Now().Before(deadline); {
					sleepABit() // until the second loop has begun to shut down
				}
			}
			return nil
		}
		addr := startTCP(t, srv)
		both := func() bool {
			st, err := srv.Stats(background(t))
			return err == nil && st.Loops[0].Open > 0 && st.Loops[1].Open > 0
		}
		for !both() {
			connect(t, "tcp", addr)
		}
		l, err := net.Listen("tcp", "127.0.3.1:0") // an address of which nobody else takes a free port
		require.NoError(t, err)
		second := l.Addr().String()
		require.NoError(t, l.Close())
		overtake.Store(true)
		_, err = srv.Listen("tcp", second)
		require.ErrorIs(t, err, weir.ErrServerClosed)
		eventually(t, func() bool { return free(second) && free(addr) }, "nobody listens")
		select {
		case err := <-down:
			require.FailNow(t, "Shutdown did not wait", "%v", err)
		default:
		}
		cancel()
		require.ErrorIs(t, receive(t, down, "Shutdown's result"), context.Canceled)
	})
}

// hookedListener runs a function before each time that a loop adopts it.
type hookedListener struct {
	*net.TCPListener
	adopt func()
}

func (l *hookedListener) SyscallConn() (syscall.RawConn, error) {
	l.adopt()
	return l.TCPListener.SyscallConn()
}

// The third loop has begun to shut down and refuses to listen, so the others take back what they have begun to drain.
func TestShutdownOvertakesAServeThatIsAddingLoops(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		srv := &weir.Server{
			Transport: kind, Loops: 3, Accept: weir.AcceptExclusive, Init: only(func() any { return echo{} }),
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		release, down := make(chan struct{}), make(chan error, 1)
		adopted := 0
		hooked := &hookedListener{l.(*net.TCPListener), func() {
			if adopted++; adopted != 2 {
				return
			}
			// The first loop comes to its drain when all the others have come so far.
			group := srv.Group()
			assert.NoError(t, group.Loop(0).Execute(func() { <-release }))
			go func() { down <- srv.Shutdown(background(t)) }()
			for closed := false; !closed; runtime.Gosched() {
				_, err := srv.Listen("tcp", "127.0.0.1:0")
				closed = errors.Is(err, weir.ErrServerClosed)
			}
			for range 100 { // and the third one to its own
				ran := make(chan struct{})
				assert.NoError(t, group.Loop(2).Execute(func() { close(ran) }))
				<-ran
			}
		}}
		require.ErrorIs(t, srv.Serve(hooked), weir.ErrServerClosed)
		close(release)
		assert.NoError(t, receive(t, down, "Shutdown's result"))
	})
}
