package loop

import (
	"time"

	"github.com/weirnet/weir/transport"
)

const (
	endTurnRounds = 4  // rounds of EndTurn in one turn
	clockEvery    = 16 // completions, or timers, between two looks at the clock, which costs about 50 ns
	postedEvery   = 4  // nodes, or tasks: each may be a batch
	// earlyTimeout is the shortest timeout after a wait that ended before its time for no reason: a transport that
	// rounds timeouts down would make the loop spin until the deadline.
	earlyTimeout = time.Millisecond
	forever      = time.Duration(-1)
)

// stage is what a turn is at.
type stage uint8

const (
	stageDone stage = iota
	stageDispatch
	stageTimers
	stageNodes
	stageTasks
	stageEndTurn
	stageAbort // not of a turn: the completers are aborted
)

// turn is how far the turn is. Everything is an index or a list with a place, so that work can go on behind whatever
// panicked. Loop goroutine only.
type turn struct {
	stage stage
	done  int  // things done
	early bool // the latest wait ended before the timer's deadline for no reason
	awake bool // the next wait only looks, see StayAwake

	batch []transport.Completion // dispatched up to pos
	pos   int
	// current is whom the completion at pos-1 was for. It is kept because the completer may unregister itself and panic
	// then.
	current Completer

	fired    *Timer // the one that runs
	sequence uint64 // timers set later run in the next turn
	budget   int    // timers or nodes that may still run

	list nodeList
	node *Node // the one that runs

	tasks   []func() // run up to taskPos
	taskPos int

	dirty    []Completer // asked for EndTurn
	ending   []Completer // this round's, done up to endPos
	endPos   int
	endRound int
}

// run does one turn and returns how many things it did. It waits no longer than limit (negative: without limit). An
// error means that the transport is beyond use; the turn goes on all the same with what needs none.
func (l *Loop) runTurn(limit time.Duration) (int, error) {
	var err error
	if l.usable {
		err = l.wait(limit)
	}
	l.turn.done = 0
	if l.turn.stage == stageDone {
		l.turn.stage = stageDispatch
	}
	for !l.work() {
	}
	return l.turn.done, err
}

// wait collects completions behind those that the turn before has left.
func (l *Loop) wait(limit time.Duration) error {
	t := &l.turn
	timeout, deadline := l.timeout(limit)
	if timeout != 0 {
		// See wake: first this, then a look at what others may have queued.
		l.state.Store(asleep)
		if l.queued() || l.stop.Load() && l.end.step == endNot {
			timeout = 0
		}
	}
	left := copy(t.batch, t.batch[t.pos:])
	t.batch, t.pos = t.batch[:left], 0
	batch, err := l.tr.Wait(t.batch, timeout)
	l.stats.Turns++
	t.awake = false
	before := l.state.Swap(stamps + l.stats.Turns)
	if err != nil {
		l.usable = false
		return err
	}
	t.batch = batch
	t.early = len(batch) == 0 && before != woken && timeout > 0 && l.tr.Now() < deadline
	return nil
}

// timeout returns how long the loop may sleep, at most limit, and the timer's deadline when it sleeps until then, else
// 0.
func (l *Loop) timeout(limit time.Duration) (timeout, deadline time.Duration) {
	t := &l.turn
	if limit == 0 || t.awake || l.unfinished() || l.queued() {
		return 0, 0
	}
	deadline, ok := l.timers.next()
	if !ok {
		return limit, 0
	}
	left := deadline - l.tr.Now()
	if left <= 0 {
		return 0, 0
	}
	if t.early {
		left = max(left, earlyTimeout)
	}
	if limit > 0 && limit < left {
		return limit, 0
	}
	return left, deadline
}

// unfinished reports whether the turn before has left something to do.
func (l *Loop) unfinished() bool {
	t := &l.turn
	return t.pos < len(t.batch) || l.unfinishedPosts() || len(t.dirty) > 0
}

// unfinishedPosts reports whether nodes or tasks of the turn before are left.
func (l *Loop) unfinishedPosts() bool {
	return l.turn.list.first != nil || l.turn.taskPos < len(l.turn.tasks)
}

// queued reports whether other goroutines have left something to do.
func (l *Loop) queued() bool { return !l.nodes.empty() || !l.tasks.empty() }

// work goes on with the turn where it stands, to its end (true) or to a panic (false), which rescue has dealt with. The
// deferred call is the only one of a turn without panics.
func (l *Loop) work() (done bool) {
	defer l.rescue()
	t := &l.turn
	for {
		switch t.stage {
		case stageDispatch:
			l.dispatch()
			if l.timers.len() == 0 && !l.unfinishedPosts() && !l.queued() {
				t.stage, t.endRound = stageEndTurn, 0 // most turns: the stages between would find nothing
				continue
			}
			t.stage, t.budget, t.sequence = stageTimers, l.cfg.TasksPerTurn, l.timers.sequence
		case stageTimers:
			l.fire()
			l.nodes.take(&t.list)
			t.stage, t.budget = stageNodes, l.cfg.TasksPerTurn
		case stageNodes:
			l.runNodes()
			if t.taskPos == len(t.tasks) {
				t.tasks, t.taskPos = l.tasks.take(t.tasks[:0]), 0
			}
			t.stage = stageTasks
		case stageTasks:
			l.runTasks()
			t.stage, t.endRound = stageEndTurn, 0
		case stageEndTurn:
			l.endTurns()
			t.stage = stageDone
		case stageAbort:
			l.abortAll()
			t.stage = stageDone
		default:
			return true
		}
	}
}

// share is the time that one kind of work has in a turn. Each kind has its own, counted from behind its first pieces,
// so that it gets on whatever the others take.
type share struct{ until time.Duration }

// over reports whether the share is used up. Where time does not pass during a turn, only the counts bound it.
func (s *share) over(l *Loop) bool {
	if l.clock == nil {
		return false
	}
	now := l.clock.Clock()
	if s.until == 0 {
		s.until = now + l.cfg.TurnTime
	}
	return now >= s.until
}

func (l *Loop) dispatch() {
	t := &l.turn
	var until time.Duration
	if l.clock != nil && len(t.batch)-t.pos > clockEvery {
		until = l.tr.Now() + l.cfg.TurnTime
	}
	for t.pos < len(t.batch) {
		if until > 0 && t.pos%clockEvery == 0 && t.pos > 0 && l.clock.Clock() >= until {
			return
		}
		c := &t.batch[t.pos]
		t.pos++
		completer := l.completerOf(c.Token)
		t.current = completer
		if completer == nil {
			l.dropStale(c)
			continue
		}
		t.done++
		l.stats.Completions++
		completer.Complete(c)
		if b := c.Buf; b != nil {
			c.Buf = nil // first: what panics in Release is not released again
			b.Release()
		}
	}
	t.current = nil
}

// dropStale gives back what a completion carries for which there is nobody.
func (l *Loop) dropStale(c *transport.Completion) {
	if c.Token.Slot() != 0 { // slot 0 is the loop's own
		l.stats.Stale++
	}
	if b := c.Buf; b != nil {
		c.Buf = nil
		b.Release()
	}
	if c.Handle != 0 {
		// A connection that was accepted for a listener, or made for a dialer, that is gone. As the kernel does with
		// those that wait in the queue of a listener that is closed, the peer is told at once.
		nobody := transport.MakeToken(0, 0, 0)
		l.Submit(transport.Op{Kind: transport.Close, Handle: c.Handle, Token: nobody, Reset: true})
	}
}

func (l *Loop) fire() {
	t := &l.turn
	if l.timers.len() == 0 {
		return
	}
	now := l.Now()
	var time share
	for n := 1; t.budget > 0; n++ {
		timer := l.timers.popDue(now, t.sequence)
		if timer == nil {
			break
		}
		t.budget--
		t.fired = timer
		t.done++
		l.stats.Timers++
		timer.fn()
		if n%clockEvery == 0 && time.over(l) {
			break
		}
	}
	t.fired = nil
}

func (l *Loop) runNodes() {
	t := &l.turn
	var time share
	for i := 1; t.budget > 0; i++ {
		n := t.list.pop()
		if n == nil {
			break
		}
		t.budget--
		t.node = n
		t.done++
		l.stats.Nodes++
		n.owner.RunNode(n)
		if i%postedEvery == 0 && time.over(l) {
			break
		}
	}
	t.node = nil
}

func (l *Loop) runTasks() {
	t := &l.turn
	var time share
	for i := 1; t.taskPos < len(t.tasks); i++ {
		fn := t.tasks[t.taskPos]
		t.tasks[t.taskPos] = nil
		t.taskPos++
		t.done++
		l.stats.Tasks++
		fn()
		if i%postedEvery == 0 && time.over(l) {
			break
		}
	}
}

// endTurns calls EndTurn of the dirty, and of those that it makes dirty, for some rounds.
func (l *Loop) endTurns() {
	t := &l.turn
	for {
		for t.endPos < len(t.ending) {
			c := t.ending[t.endPos]
			t.endPos++
			t.done++
			l.stats.EndTurns++
			c.EndTurn()
		}
		clear(t.ending)
		t.ending, t.endPos = t.ending[:0], 0
		if len(t.dirty) == 0 || t.endRound == endTurnRounds {
			return
		}
		t.endRound++
		t.ending, t.dirty = t.dirty, t.ending
	}
}
