package pipelinetest

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

const (
	// maxTurns is after how many turns in a row without coming to rest a test fails.
	maxTurns = 100_000
	// awaitTimeout bounds RunUntil.
	awaitTimeout = 10 * time.Second
	awaitPoll    = time.Millisecond
)

// Loop is a loop on a simulated network, with a clock that only the test moves, for tests with several channels: a
// proxy's two sides, a handler that dials. It belongs to the test's goroutine.
type Loop struct {
	t         testing.TB
	world     *sim.World
	loop      *loop.Loop
	channels  []*Channel
	of        map[*channel.Channel]*Channel
	handles   map[transport.Handle]*Channel
	finishing []*Channel   // whose FIN is on its way
	dials     []*Dial      // that handlers asked for
	next      *Channel     // whose connection is made now
	log       bytes.Buffer // errors that the loop and the channels logged
	failure   string       // found where the test could not be ended

	depth    int // of calls that may be a handler's
	manual   bool
	finished bool
}

// NewLoop returns a loop whose clock stands at one hour. Finish runs by itself at the end of the test.
func NewLoop(t testing.TB) *Loop {
	t.Helper()
	l := &Loop{
		t: t, of: map[*channel.Channel]*Channel{}, handles: map[transport.Handle]*Channel{},
	}
	l.world = sim.NewWorld(1, sim.Config{
		Latency: -1, TurnTime: -1, SegmentBytes: 1 << 20, BlockBytes: 64 << 10, Blocks: 1024, SendNow: true, Scrub: true,
		Answer: l.answer,
	})
	var err error
	l.loop, err = loop.New(loop.Config{
		Open:   func(bool) (transport.Transport, error) { return kernel{l.world.Open(), l}, nil },
		Logger: slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err == nil {
		err = l.loop.Open()
	}
	if err != nil {
		t.Fatalf("pipelinetest: %v", err)
	}
	l.Advance(time.Hour)
	t.Cleanup(l.Finish)
	return l
}

// Now is the clock.
func (l *Loop) Now() time.Duration { return l.loop.Now() }

// Pool is the pool that all buffers come from.
func (l *Loop) Pool() *buffer.Pool { return l.loop.Pool() }

// RunTasks turns the loop until there is nothing left to do. The clock stands still. It returns the number of turns
// that did something. A loop that does not come to rest fails the test.
func (l *Loop) RunTasks() int {
	l.t.Helper()
	if l.depth > 0 || l.finished {
		return 0 // inside a handler: the turn that runs will go on with it
	}
	for turns := 0; ; turns++ {
		if turns == maxTurns {
			l.t.Fatalf("pipelinetest: the loop did not come to rest in %d turns", maxTurns)
		}
		if !l.turn(0) {
			return turns
		}
	}
}

// RunUntil turns the loop until done reports true, for what other goroutines post. The test fails when that takes more
// than 10 s of real time.
func (l *Loop) RunUntil(done func() bool) {
	l.t.Helper()
	deadline := time.Now().Add(awaitTimeout)
	for l.RunTasks(); !done(); l.RunTasks() {
		if time.Now().After(deadline) {
			l.t.Fatalf("pipelinetest: nothing happened within %v", awaitTimeout)
		}
		time.Sleep(awaitPoll)
	}
}

// Advance lets d pass: timers fire in their order, each at its time, and the loop turns after each.
func (l *Loop) Advance(d time.Duration) {
	l.t.Helper()
	if l.depth > 0 {
		l.t.Fatalf("pipelinetest: Advance inside a handler")
	}
	until := l.Now() + d
	for l.RunTasks(); l.Now() < until; l.RunTasks() {
		l.turn(until - l.Now())
	}
}

// Finish closes the channels that are still open, and the loop, and checks what they leave behind. It runs by itself at
// the end of the test; calling it before makes it check earlier.
func (l *Loop) Finish() {
	l.t.Helper()
	if l.finished {
		return
	}
	for _, c := range l.channels {
		if c.ctx != nil && !c.closed {
			c.ctx.Abort(nil)
		}
	}
	l.RunTasks()
	l.finished = true
	err := errors.Join(l.loop.Close(), l.world.Check())
	if l.t.Failed() {
		return
	}
	for _, c := range l.channels {
		c.complain()
	}
	pool := l.Pool()
	if n := pool.Outstanding(); n != 0 {
		l.t.Errorf("pipelinetest: %d buffers (%d bytes) were never released%s",
			n, pool.OutstandingBytes(), strings.Join(append([]string{""}, pool.Leaks()...), "\n\t"))
	}
	if err != nil {
		l.t.Errorf("pipelinetest: %v", err)
	}
}

// turn is one turn of the loop, which waits up to timeout. It reports whether there was something to do.
func (l *Loop) turn(timeout time.Duration) bool {
	l.t.Helper()
	n, err := l.runOnce(timeout)
	if err != nil {
		l.failure = err.Error()
	}
	l.finishing = slices.DeleteFunc(l.finishing, func(c *Channel) bool {
		switch {
		case c.peerEnd != nil || c.peer.Broken():
			return true
		case !c.peer.Finished():
			return false
		}
		c.peerCloses()
		n++
		return true
	})
	if l.failure != "" {
		failure := l.failure
		l.failure = ""
		l.t.Fatalf("pipelinetest: %s", failure)
	}
	return n > 0
}

func (l *Loop) runOnce(timeout time.Duration) (int, error) {
	l.depth++
	defer func() { l.depth-- }() // tests may fail inside
	return l.loop.RunOnce(timeout)
}

// act is something the test does, and the turns after it.
func (l *Loop) act(fn func()) {
	l.t.Helper()
	l.enter(fn)
	if !l.manual {
		l.RunTasks()
	}
}

// enter marks that handlers may run.
func (l *Loop) enter(fn func()) {
	l.depth++
	defer func() { l.depth-- }()
	fn()
}
