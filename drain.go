package weir

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
)

const (
	// quietTurns is how many turns in a row must bring no new connection before a listener is closed; a turn may hand
	// out what an earlier one has found, so one is not enough.
	quietTurns = 4
	// sweepTurns and sweepTime bound that: under a steady stream of connections there is no quiet turn.
	sweepTurns = 256
	sweepTime  = 500 * time.Millisecond
	// tellPerTurn is how many channels one turn tells to shut down.
	tellPerTurn = 256
)

// drain is a worker's orderly end. It belongs to the loop.
//
// First accepting goes on until the kernel's queues are empty: closing a listener resets what waits in them. Then the
// listeners are closed. Then each channel is told, and when the last has closed, done is called.
type drain struct {
	begun   bool // nothing new is listened on or dialed
	waiting bool // all have been told
	of      origin
	done    func()
	timer   *loop.Timer
	step    func() // what the timer does

	quiet, turns int
	seen         uint64 // accepted, as of the last turn
	until        time.Duration
	closing      int // listeners
	todo         []*channel.Channel
}

// drainAccepted ends listening and the accepted channels.
func (w *worker) drainAccepted(done func()) {
	d := &w.drain
	if w.gone {
		return
	}
	d.begun, d.of, d.done = true, fromAccept, done
	d.timer = w.loop.NewTimer(w, func() { d.step() })
	if len(w.listeners) == 0 {
		w.tellReceived()
		return
	}
	for _, ln := range w.listeners { // whatever Pause, or the turn of another loop, has stopped: it is the last chance
		ln.Resume()
	}
	d.seen, d.until = w.taken(), w.loop.Now()+sweepTime
	d.next(w.sweep)
}

// drainDialed ends the dialed channels.
func (w *worker) drainDialed(done func()) {
	d := &w.drain
	if w.gone {
		return
	}
	d.of, d.done = fromDial, done
	w.tell()
}

// next makes step run in the next turn, after its completions.
func (d *drain) next(step func()) {
	d.step = step
	d.timer.Reset(0)
}

func (d *drain) stop() {
	d.waiting = false
	if d.timer != nil {
		d.timer.Stop()
	}
}

// sweep looks whether the last turn has accepted anything. A turn that is busy with what earlier ones have found says
// nothing: it has not asked for connections.
func (w *worker) sweep() {
	d := &w.drain
	d.turns++
	d.quiet++
	if n := w.taken(); n != d.seen || !w.loop.CaughtUp() {
		d.seen, d.quiet = n, 0
	}
	if d.quiet < quietTurns && d.turns < sweepTurns && w.loop.Now() < d.until {
		d.next(w.sweep)
		return
	}
	d.closing = len(w.listeners)
	for _, ln := range w.listeners {
		ln.Close(func() {
			if d.closing--; d.closing == 0 && !w.gone {
				w.tellReceived()
			}
		})
	}
	w.listeners = nil
	if d.closing == 0 { // a Listen that could not be had on all loops has taken its own back
		w.tellReceived()
	}
}

// taken is how many connections the listeners have accepted.
func (w *worker) taken() (n uint64) {
	for _, ln := range w.listeners {
		n += ln.Accepted
	}
	return n
}

// tellReceived is tell, once what the front has handed over has become channels. It hands over no more.
func (w *worker) tellReceived() {
	if r := w.receiver.Load(); r != nil && r.Waiting() > 0 {
		w.drain.next(w.tellReceived)
		return
	}
	w.tell()
}

// tell tells all channels of the origin to shut down, beginning with the next turn.
func (w *worker) tell() {
	d := &w.drain
	d.todo = w.channels[d.of].Channels()
	d.next(w.tellSome)
}

func (w *worker) tellSome() {
	d := &w.drain
	for range tellPerTurn {
		if len(d.todo) == 0 {
			break
		}
		c := d.todo[0]
		d.todo[0] = nil
		d.todo = d.todo[1:]
		w.shutDown(c)
	}
	if len(d.todo) > 0 {
		d.next(w.tellSome)
		return
	}
	d.todo = nil
	d.waiting = true
	w.drain.channelLeft(w)
}

// channelLeft is called whenever a channel has closed.
func (d *drain) channelLeft(w *worker) {
	if d.waiting && w.channels[d.of].Len() == 0 {
		d.waiting = false
		d.done()
	}
}

// shutDown tells one channel. A handler that panics here closes its own channel, as anywhere else.
func (w *worker) shutDown(c *channel.Channel) {
	defer func() {
		if v := recover(); v != nil {
			w.loop.Logger().Error("weir: handler panicked in ChannelShutdown, channel closed",
				"panic", v, "channel", c.ID(), "stack", string(debug.Stack()))
			c.Abort(fmt.Errorf("%w: in ChannelShutdown: %v", channel.ErrPanic, v))
		}
	}()
	c.Shutdown()
}
