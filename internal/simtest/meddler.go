package simtest

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirnet/weir/pipeline"
)

// meddler changes its pipeline in the middle of events: what it adds, removes and replaces has reasons to pause,
// watches, writability and timers, all of which must go with it.
type meddler struct {
	run  *run
	rate int // one event in so many; 1: each
}

// moments of an event in which a pipeline is changed.
const (
	inRead = iota
	inTimer
	inFlushed
	inWatch
	inWritability
	inSignal
	moments
)

func (m *meddler) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireRead(msg)
	return m.meddle(ctx, inRead)
}

func (m *meddler) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	ctx.FireWritabilityChanged()
	return m.meddle(ctx, inWritability)
}

// meddle changes the pipeline, if the dice say so.
func (m *meddler) meddle(ctx *pipeline.Context, moment int) error {
	if m.run.rng.IntN(m.rate) > 0 || !ctx.Open() {
		return nil
	}
	m.run.res.Meddled[moment]++
	p := ctx.Pipeline()
	var err error
	switch m.run.rng.IntN(8) {
	case 0:
		err = p.AddBefore(ctx.Name(), "guest", m.guest())
	case 1:
		err = p.AddAfter(ctx.Name(), "guest", m.guest())
	case 2:
		_, err = p.Remove("guest")
	case 3:
		_, err = p.Replace("guest", "guest", m.guest())
	case 4:
		if p.Context("framer") != nil { // what the old one holds goes to its successor
			var f any
			if f, err = m.run.shared.framing.split(); err == nil {
				_, err = p.Replace("framer", "framer", f)
			}
		}
	case 5:
		_, err = p.Remove([]string{"leaver", "watch", "pauser", "outer", "granter", "idle", "probe"}[m.run.rng.IntN(7)])
	case 6:
		m.later(ctx)
	default:
		if ctx.Pipeline().Context("meddler") == ctx { // it goes itself, and comes again
			_, err = p.Replace("meddler", "meddler", &meddler{run: m.run, rate: m.rate})
		}
	}
	if errors.Is(err, pipeline.ErrNoHandler) || errors.Is(err, pipeline.ErrDuplicateName) ||
		errors.Is(err, pipeline.ErrClosed) {
		return nil
	}
	return err
}

// later meddles from a timer, a Flushed callback and a signal.
func (m *meddler) later(ctx *pipeline.Context) {
	switch m.run.rng.IntN(3) {
	case 0:
		ctx.NewTimer(func(ctx *pipeline.Context) error { return m.meddle(ctx, inTimer) }).
			Reset(time.Duration(m.run.rng.IntN(300)) * time.Microsecond)
	case 1:
		ctx.Flushed(func(error) { _ = m.meddle(ctx, inFlushed) })
	default:
		s := &signal{run: m.run, ctx: ctx}
		s.signal = ctx.NewSignal(func(ctx *pipeline.Context) error {
			s.ran()
			return m.meddle(ctx, inSignal)
		})
		m.run.shared.signals = append(m.run.shared.signals, s)
	}
}

// guest is a handler that leaves something behind when it goes, if the pipeline lets it.
func (m *meddler) guest() any {
	switch m.run.rng.IntN(5) {
	case 0:
		return &holder{run: m.run, pauses: true}
	case 1:
		return &holder{run: m.run}
	case 2:
		return &watch{run: m.run, leaves: m.run.rng.IntN(2) == 0}
	case 3:
		return &granter{rng: m.run.rng}
	}
	return relay{}
}

// holder pauses reading or says that the channel is not writable, for a while.
type holder struct {
	run    *run
	pauses bool
}

func (h *holder) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireRead(msg)
	if h.run.rng.IntN(4) == 0 {
		h.hold(ctx)
	}
	return nil
}

func (h *holder) HandlerAdded(ctx *pipeline.Context) error {
	h.hold(ctx)
	return nil
}

func (h *holder) hold(ctx *pipeline.Context) {
	if h.pauses {
		h.run.res.Pauses++
		ctx.Pause()
	} else {
		h.run.res.Unwritable++
		ctx.SetWritable(false)
	}
	ctx.NewTimer(func(ctx *pipeline.Context) error {
		ctx.Resume()
		ctx.SetWritable(true)
		return nil
	}).Reset(time.Duration(h.run.rng.IntN(1000)) * time.Microsecond)
}

// signal is a Signal that must run after it was raised.
type signal struct {
	run    *run
	ctx    *pipeline.Context
	signal pipeline.Signal
	raised uint64 // the round in which it was raised and has not run since; 0: none
}

func (s *signal) raise() {
	if s.raised == 0 {
		s.raised = s.run.round
	}
	s.signal.Raise()
}

func (s *signal) ran() {
	s.raised = 0
	s.run.res.Signals++
}

// watch watches for marks of what is pending. One that leaves ends its watch, or its handler, inside the watch.
type watch struct {
	run    *run
	leaves bool

	ctx             *pipeline.Context
	atMost, atLeast int
	told            bool   // since what is pending was last found between the marks
	beyond          uint64 // the round that found it beyond them untold; 0: none has
	gone            bool
}

func (w *watch) HandlerAdded(ctx *pipeline.Context) error {
	w.ctx = ctx
	w.atMost, w.atLeast = -1, 1+w.run.rng.IntN(20_000)
	w.set(ctx)
	w.run.shared.watches = append(w.run.shared.watches, w)
	return nil
}

func (w *watch) HandlerRemoved(*pipeline.Context) error {
	w.gone = true
	return nil
}

// ChannelRead passes everything on: a watch is a handler of something.
func (w *watch) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireRead(msg)
	return nil
}

func (w *watch) set(ctx *pipeline.Context) {
	w.told, w.beyond = false, 0
	ctx.WatchPending(w.atMost, w.atLeast, w.pending)
}

// pending is told; it then watches for the other direction.
func (w *watch) pending(ctx *pipeline.Context, n int) error {
	if n > w.atMost && n < w.atLeast {
		w.run.fail(fmt.Errorf("a watch for %d and %d was told of %d", w.atMost, w.atLeast, n))
	}
	w.run.res.Watched++
	w.told = true
	if n >= w.atLeast {
		w.atMost, w.atLeast = w.run.rng.IntN(w.atLeast), math.MaxInt
	} else {
		w.atMost, w.atLeast = -1, n+1+w.run.rng.IntN(20_000)
	}
	if w.leaves && w.run.rng.IntN(2) == 0 {
		w.run.res.Left++
		if w.run.rng.IntN(2) == 0 {
			_, err := ctx.Pipeline().Remove(ctx.Name())
			return err
		}
		ctx.WatchPending(0, 0, nil)
		w.gone = true
		return nil
	}
	w.set(ctx)
	m := meddler{run: w.run, rate: 10}
	return m.meddle(ctx, inWatch)
}
