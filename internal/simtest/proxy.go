package simtest

import (
	"fmt"
	"slices"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// initFront fills the pipeline of an accepted channel, one in some of them as a proxy's front.
func (r *run) initFront(p *pipeline.Pipeline) error {
	if r.rng.IntN(5) > 0 {
		return r.initServer(p)
	}
	level, err := watermark.New(watermark.Config{HighBytes: 1 << (10 + r.rng.IntN(6)), HardLimitBytes: 8 << 20})
	if err != nil {
		return err
	}
	if err := p.AddLast("watermark", level); err != nil {
		return err
	}
	return p.AddLast("front", &side{run: r, level: level, front: true})
}

// side is one half of a proxy. What it reads goes to the other one, which its watermark follows.
type side struct {
	run   *run
	level *watermark.Handler
	front bool
	ctx   *pipeline.Context
	other *side
	got   int
}

// ChannelActive dials, and reads when that has succeeded.
func (s *side) ChannelActive(ctx *pipeline.Context) error {
	s.ctx = ctx
	s.run.sides = append(s.run.sides, s)
	if !s.front {
		s.run.dials--
		s.run.progress++
		s.other.other = s
		if !s.other.ctx.Open() {
			return ctx.Close()
		}
		s.level.Follow(s.other.level)
		s.other.level.Follow(s.level)
		s.other.ctx.Resume()
		return nil
	}
	ctx.Pause()
	s.run.dials++
	s.run.res.Proxied++
	return ctx.Dial("tcp", upstream, s.initBack, func(err error) {
		s.run.dials--
		s.run.progress++
		if !s.run.harsh && s.run.shared.filter == nil {
			s.run.fail(fmt.Errorf("proxy: dial: %w", err))
		}
		s.run.cutAll()
		ctx.Abort(err)
	})
}

func (s *side) initBack(p *pipeline.Pipeline) error {
	level, err := watermark.New(watermark.Config{HighBytes: 2 << 10, HardLimitBytes: 8 << 20})
	if err != nil {
		return err
	}
	if err := p.AddLast("watermark", level); err != nil {
		return err
	}
	return p.AddLast("back", &side{run: s.run, level: level, other: s})
}

func (s *side) ChannelRead(_ *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf)
	s.got += b.Len()
	s.run.progress++
	return ignoreClosed(s.other.ctx.Write(b))
}

func (s *side) ChannelReadClosed(ctx *pipeline.Context) error {
	if s.other == nil { // the dial is under way: a peer that has finished and sent nothing
		return ctx.Close()
	}
	return ignoreClosed(s.other.ctx.CloseWrite())
}

func (s *side) describe() string {
	return fmt.Sprintf("side of a proxy (front %v): got %d, %v, %s", s.front, s.got, s.level.Level(), state(s.ctx))
}

func (s *side) ChannelInactive(ctx *pipeline.Context) error {
	s.run.sides = slices.DeleteFunc(s.run.sides, func(other *side) bool { return other == s })
	switch {
	case s.other == nil:
	case ctx.Cause() != nil:
		s.other.ctx.Abort(ctx.Cause())
	default:
		_ = s.other.ctx.Close()
	}
	return nil
}
