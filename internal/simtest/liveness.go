package simtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

const (
	// patience is how many rounds of the loops what is due may take: budgets put it off, nothing else does.
	patience = 100
	// standstill is after how much virtual time without progress something is stuck, although timers go on. Everything
	// that the handlers of a run wait for on purpose takes milliseconds.
	standstill = 10 * time.Second
)

// alive returns what stands still although it could move.
func (r *run) alive() error {
	if err := r.signalsRun(); err != nil {
		return err
	}
	if err := r.watchesTold(); err != nil {
		return err
	}
	if err := r.levelsFall(); err != nil {
		return err
	}
	if r.progress != r.seen || r.dialing() {
		r.seen, r.movedAt = r.progress, r.world.Now()
	}
	if quiet := r.world.Now() - r.movedAt; quiet > standstill {
		return fmt.Errorf("stuck: nothing has moved for %v: %s", quiet, r.describe())
	}
	return nil
}

// dialing reports whether a connection is being made: the network may take its time.
func (r *run) dialing() bool {
	return r.dials > 0 || slices.ContainsFunc(r.conns, func(c *conn) bool { return !c.dialed })
}

// overdue reports whether something that is so has been so for too many rounds. since is where that is kept.
func (r *run) overdue(is bool, since *uint64) bool {
	switch {
	case !is:
		*since = 0
	case *since == 0:
		*since = r.round
	}
	return is && r.round-*since > patience
}

// signalsRun checks that a signal that was raised runs.
func (r *run) signalsRun() error {
	s := &r.shared
	s.signals = slices.DeleteFunc(s.signals, func(g *signal) bool {
		return !g.ctx.Active() ||
			g.ctx.Pipeline().Context(g.ctx.Name()) != g.ctx
	})
	for _, g := range s.signals {
		if g.raised > 0 && r.round-g.raised > patience {
			return fmt.Errorf("a signal of channel %x was raised %d rounds ago and has not run", g.ctx.ID(), r.round-g.raised)
		}
	}
	return nil
}

// watchesTold checks that whoever watches for marks learns that they are passed.
func (r *run) watchesTold() error {
	s := &r.shared
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool { return w.gone || !w.ctx.Open() })
	for _, w := range s.watches {
		n := w.ctx.Pending()
		if n > w.atMost && n < w.atLeast {
			w.told = false
		}
		if !w.ctx.Active() {
			continue
		}
		if r.overdue(!w.told && (n <= w.atMost || n >= w.atLeast), &w.beyond) {
			return fmt.Errorf("a watch of channel %x for %d and %d was not told of %d", w.ctx.ID(), w.atMost, w.atLeast, n)
		}
	}
	return nil
}

// levelsFall checks that no watermark stays high when nothing is: neither what is pending nor a shared level, and
// nobody waits at one.
func (r *run) levelsFall() error {
	s := &r.shared
	s.marks = slices.DeleteFunc(s.marks, func(m *leveled) bool { return !m.ctx.Open() })
	busy := slices.ContainsFunc(s.levels, func(l *sink) bool { return l.level.High() || l.level.Waiting() > 0 })
	for _, m := range s.marks {
		stays := !busy && m.h.Level() == watermark.High && m.ctx.Active() && m.ctx.Pending() <= m.low
		if r.overdue(stays, &m.high) {
			return fmt.Errorf("stuck: the watermark of channel %x stays HIGH with %d pending", m.ctx.ID(), m.ctx.Pending())
		}
	}
	return nil
}

func (r *run) describe() string {
	s := ""
	for _, c := range r.conns {
		if c.inactive == 0 {
			s += c.describe() + "; "
		}
	}
	for _, m := range r.shared.marks {
		s += fmt.Sprintf("watermark of channel %x: %v; ", m.ctx.ID(), m.h.Level())
	}
	for _, l := range r.shared.levels {
		s += fmt.Sprintf("shared level: %d, high %v, waiting %d, reserved %d; ",
			l.level.Value(), l.level.High(), l.level.Waiting(), l.level.ReservedBytes())
	}
	for _, v := range r.servers {
		s += v.describe() + "; "
	}
	for _, v := range r.sides {
		s += v.describe() + "; "
	}
	return s + fmt.Sprintf("offload: %+v, %d workers wait", r.shared.pool.Stats(), len(r.shared.jobs))
}

// state describes a channel.
func state(ctx *pipeline.Context) string {
	if ctx == nil || !ctx.Active() {
		return "not active"
	}
	return fmt.Sprintf("channel %x, open %v, pending %d, writable %v, reading %v, %v", ctx.ID(), ctx.Open(), ctx.Pending(),
		ctx.Writable(), ctx.Reading(), ctx.Pipeline().Names())
}

// reading reports whether a handler may be given something. A watermark that finds a shared level high pauses before it
// passes on what has come, for decoders to keep.
func reading(ctx *pipeline.Context) bool {
	return ctx.Reading() || ctx.Pipeline().Context("watermark") != nil
}
