package pipelinetest

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

const (
	// maxTurns is after how many turns in a row without coming to rest a test fails.
	maxTurns = 10_000
	// awaitTimeout bounds RunUntil.
	awaitTimeout = 10 * time.Second
	awaitPoll    = time.Millisecond
)

// Loop is a loop without a kernel and with a fake clock, for tests with several channels: a proxy's two sides, a handler
// that dials. It belongs to the test's goroutine.
type Loop struct {
	t        testing.TB
	pool     *buffer.Pool
	now      time.Duration
	channels []*Channel
	timers   []*timer
	seq      uint64
	lastID   uint64
	raised   raised // any goroutine
	thread   string // the test's goroutine

	depth    int  // of calls into handlers
	manual   bool // a channel wants to be run by hand
	finished bool
}

// NewLoop answers a loop whose clock stands at one hour. Finish runs by itself at the end of the test.
func NewLoop(t testing.TB) *Loop {
	l := &Loop{t: t, pool: buffer.NewPool(buffer.PoolConfig{}), now: time.Hour, thread: goroutine()}
	t.Cleanup(l.Finish)
	return l
}

// Now is the clock.
func (l *Loop) Now() time.Duration { return l.now }

// Pool is the pool that all buffers come from.
func (l *Loop) Pool() *buffer.Pool { return l.pool }

// RunTasks turns the loop until there is nothing left to do: signals, posted tasks, resumes, the end of turns with its flush,
// writability events and callbacks. The clock stands still. It answers the number of turns that did something. A loop
// that does not come to rest fails the test.
func (l *Loop) RunTasks() int {
	if l.depth > 0 {
		return 0 // inside a handler: the turn that runs will go on with it
	}
	for turns := 0; ; turns++ {
		if turns == maxTurns {
			l.t.Fatalf("pipelinetest: the loop did not come to rest in %d turns", maxTurns)
		}
		if !l.turn() {
			return turns
		}
	}
}

// RunUntil turns the loop until done answers true, for what other goroutines post. The test fails when that takes more
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
	until := l.now + d
	for {
		t := l.nextTimer()
		if t == nil || t.at > until {
			break
		}
		l.now = max(l.now, t.at)
		t.armed = false
		l.enter(t.fn)
		l.settle()
	}
	l.now = until
	l.settle()
}

// Finish closes the channels that are still open and checks what they leave behind. It runs by itself at the end of the
// test; calling it before makes it check earlier.
func (l *Loop) Finish() {
	l.t.Helper()
	if l.finished {
		return
	}
	l.finished = true
	l.depth = 0 // a handler may have panicked
	for i := 0; i < len(l.channels); i++ {
		l.channels[i].finishTest()
	}
	if n := l.pool.Outstanding(); n != 0 && !l.t.Failed() {
		l.t.Errorf("pipelinetest: %d buffers (%d bytes) were never released%s", n, l.pool.OutstandingBytes(), list(l.pool.Leaks()))
	}
}

// turn is one turn of the loop. It answers false when there was nothing to do.
func (l *Loop) turn() bool {
	did := l.runSignals()
	for i := 0; i < len(l.channels); i++ { // Dial may append
		c := l.channels[i]
		if c.runPosted() {
			did = true
		}
	}
	for i := 0; i < len(l.channels); i++ {
		c := l.channels[i]
		if c.dirty {
			c.dirty = false
			did = true
			l.enter(c.endTurn)
		}
	}
	return did
}

// act is something the test does to a channel, and the turns after it.
func (l *Loop) act(fn func()) {
	l.enter(fn)
	l.settle()
}

func (l *Loop) settle() {
	if !l.manual {
		l.RunTasks()
	}
}

// enter marks that handlers run.
func (l *Loop) enter(fn func()) {
	l.depth++
	defer func() { l.depth-- }() // tests may recover what a handler panics
	fn()
}

// timer is a pipeline.Timer on the fake clock.
type timer struct {
	l     *Loop
	at    time.Duration
	seq   uint64
	armed bool
	fn    func()
}

var _ pipeline.Timer = (*timer)(nil)

func (l *Loop) newTimer(fn func()) *timer {
	t := &timer{l: l, fn: fn}
	l.timers = append(l.timers, t)
	return t
}

// Reset makes t fire once, after d.
func (t *timer) Reset(d time.Duration) {
	t.l.seq++
	t.at, t.seq, t.armed = t.l.now+max(d, 0), t.l.seq, true
}

// Stop answers whether t was going to fire.
func (t *timer) Stop() bool {
	was := t.armed
	t.armed = false
	return was
}

// nextTimer is the armed timer that fires first; of several at one time, the one that was set first.
func (l *Loop) nextTimer() *timer {
	var next *timer
	for _, t := range l.timers {
		if t.armed && (next == nil || t.at < next.at || t.at == next.at && t.seq < next.seq) {
			next = t
		}
	}
	return next
}

// goroutine names the running goroutine. Production code has no use for that; here it tells the loop's from others.
func goroutine() string {
	var stack [64]byte
	text := stack[:runtime.Stack(stack[:], false)]
	name, _, _ := bytes.Cut(text, []byte(" ["))
	return string(name)
}

func list(lines []string) string {
	var b bytes.Buffer
	for _, line := range lines {
		b.WriteString("\n\t")
		b.WriteString(line)
	}
	return b.String()
}
