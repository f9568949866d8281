package loop

import "time"

const (
	// abortTime is how long the completers have to close after Abort, by the transport's clock.
	abortTime = time.Second
	// idleTurns is how many turns in a row that do nothing end that time too, on a transport whose clock stands still.
	idleTurns = 1000
)

// The steps of a loop's end, in order. Each can be taken up again where a callback ended it.
const (
	endNot     = iota
	endQuiet   // tasks are refused; those accepted run
	endAbort   // every completer is aborted, none can be registered any more
	endDrain   // turns, until the completers are gone or their time is over
	endForsake // those that are still there get their last call and are unregistered
	endNodes   // nodes are refused; those accepted run
	endClose   // the transport is closed
	endOver
)

// ending is how far the loop's end is. Loop goroutine only.
type ending struct {
	step  int
	cause error
	sweep int           // slots before it have been aborted
	until time.Duration // end of the drain; 0: not begun
	idle  int           // turns that did nothing, in a row
	left  int           // completers that did not close in time
	err   error         // of closing the transport
}

// shutDown ends the loop. What a callback does to its goroutine (runtime.Goexit) or the transport to us (panic) ends
// the step under way, not the whole: the deferred call takes up again where it stopped, still inside the goroutine that
// goes away. That is bounded, because whatever ended the step is not called again.
func (l *Loop) shutDown(cause error) {
	if l.end.step == endNot {
		l.end.step, l.end.cause = endQuiet, cause
		l.stop.Store(true)
		l.tasks.close()
	}
	defer func() {
		if v := recover(); v != nil {
			_ = l.strayPanic(v)
		}
		if l.end.step != endOver {
			l.dropCurrent()
			l.shutDown(cause)
		}
	}()
	for l.end.step != endOver {
		l.endStep()
	}
}

// endStep does the present step, or a part of it.
func (l *Loop) endStep() {
	e := &l.end
	switch e.step {
	case endQuiet:
		_, _ = l.runTurn(0)
		if l.tasks.empty() && l.turn.taskPos == len(l.turn.tasks) {
			e.step++
		}
	case endAbort:
		l.finishTurn()
		e.step++ // no Register from here on
		e.sweep = 1
		l.turn.stage = stageAbort
		l.finishTurn()
	case endDrain:
		l.finishTurn()
		if l.drained() {
			e.step++
			e.left, e.sweep = l.registered, 1
		}
	case endForsake:
		if e.left > 0 && l.usable { // else they could not
			l.log.Warn("completers that did not close when the loop stopped", "count", e.left)
		}
		l.finishTurn()
		e.step++
		l.turn.stage = stageAbort
		l.finishTurn()
	case endNodes:
		l.finishTurn()
		l.forsake()
		l.runLastNodes()
		e.step++
	case endClose:
		e.step++
		l.closeTransport()
	}
}

// finishTurn does what is left of a turn that was ended in the middle.
func (l *Loop) finishTurn() {
	for !l.work() {
	}
}

// abortAll tells Abort to all that are registered, from the sweep on.
func (l *Loop) abortAll() {
	for e := &l.end; e.sweep < len(l.slots); {
		c := l.slots[e.sweep].completer
		e.sweep++
		if c != nil {
			c.Abort(e.cause)
		}
	}
}

// forsake unregisters everybody.
func (l *Loop) forsake() {
	for i := 1; i < len(l.slots); i++ {
		if l.slots[i].completer != nil {
			l.freeSlotAt(uint32(i))
		}
	}
}

// drained does one turn, if there is anybody to wait for, and reports whether the waiting is over.
func (l *Loop) drained() bool {
	e := &l.end
	if l.registered == 0 || !l.usable {
		return true
	}
	now := l.Now()
	if e.until == 0 {
		e.until = now + abortTime
	}
	if now >= e.until || e.idle >= idleTurns {
		return true
	}
	done, _ := l.runTurn(e.until - now)
	e.idle++
	if done > 0 || l.Now() != now {
		e.idle = 0
	}
	return false
}

// runLastNodes refuses nodes from here on and runs those that were accepted.
func (l *Loop) runLastNodes() {
	t := &l.turn
	l.nodes.close(&t.list)
	for {
		t.stage, t.budget = stageNodes, l.cfg.TasksPerTurn
		l.finishTurn()
		if t.list.first == nil {
			return
		}
	}
}

func (l *Loop) closeTransport() {
	t := &l.turn
	for ; t.pos < len(t.batch); t.pos++ {
		if b := t.batch[t.pos].Buf; b != nil {
			t.batch[t.pos].Buf = nil
			b.Release()
		}
	}
	l.state.Store(woken)
	l.usable = false
	l.giveRawPlace()
	defer func() {
		l.life.Store(lifeClosed)
		close(l.done)
	}()
	if l.tr != nil {
		l.end.err = l.tr.Close()
	}
}
