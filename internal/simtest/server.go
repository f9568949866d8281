package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// errWork is what a work returns that fails.
var errWork = errors.New("simtest: work failed")

// serverPlan is what a server-side handler does beside echoing.
type serverPlan struct {
	half      bool // has ReadClosed and finishes by itself
	deferred  bool // keeps what it reads and writes it later
	byRef     bool // writes by a Ref
	byHop     bool // and from another loop
	failing   bool // its work fails at times
	closeAt   int  // bytes after which it closes; < 0: never
	panicAt   int  // bytes after which it panics; < 0: never
	pauseRate int  // one in so many reads; 0: never
}

func drawServerPlan(r *run) serverPlan {
	rng := r.rng
	p := serverPlan{half: rng.IntN(2) == 0, deferred: rng.IntN(3) == 0, closeAt: -1, panicAt: -1}
	switch rng.IntN(8) {
	case 0:
		p.closeAt = rng.IntN(50_000)
	case 1:
		p.panicAt = rng.IntN(50_000)
	}
	if rng.IntN(2) == 0 {
		p.pauseRate = 1 + rng.IntN(10)
	}
	if p.half && !p.deferred && rng.IntN(3) == 0 {
		p.byRef = true
		p.byHop = rng.IntN(2) == 0
	}
	p.failing = rng.IntN(8) == 0
	return p
}

// server echoes.
type server struct {
	run      *run
	plan     serverPlan
	m        *meddler
	ctx      *pipeline.Context
	got      int
	active   int
	inactive int
	paused   bool
	kept     []*buffer.Buf
	keptLen  int
	hops     int        // writes on their way through another loop
	other    *loop.Loop // the one they pass through
	closing  bool       // ReadClosed waits for them
}

func (s *server) ChannelActive(ctx *pipeline.Context) error {
	s.active++
	s.ctx = ctx
	s.run.servers = append(s.run.servers, s)
	return nil
}

func (s *server) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf)
	if s.active != 1 || s.inactive != 0 || s.paused || !reading(ctx) {
		s.run.fail(fmt.Errorf("server: read with active %d, inactive %d, paused %v", s.active, s.inactive, s.paused))
	}
	s.took(b.Len())
	if s.plan.panicAt >= 0 && s.got > s.plan.panicAt {
		s.plan.panicAt = -1
		s.run.cutAll()
		panic("simtest")
	}
	if s.plan.closeAt >= 0 && s.got > s.plan.closeAt {
		s.run.cutAll()
		return ctx.Close()
	}
	if err := s.echo(ctx, b); err != nil {
		return ignoreClosed(err)
	}
	if !ctx.Writable() || (s.plan.pauseRate > 0 && s.run.rng.IntN(s.plan.pauseRate) == 0) {
		s.pause(ctx)
	}
	return nil
}

// took counts n bytes and queues them at the shared levels.
func (s *server) took(n int) {
	s.got += n
	s.run.progress++
	for _, l := range s.run.shared.levels {
		if s.run.rng.IntN(3) > 0 {
			l.put(n)
		}
	}
}

// echo writes b now or keeps it until the read completes.
func (s *server) echo(ctx *pipeline.Context, b *buffer.Buf) error {
	switch {
	case s.plan.byRef:
		return s.writeRef(ctx, s.run.shared.framing.whole(b.Bytes()))
	case !s.plan.deferred:
		return s.write(ctx, b)
	}
	kept := b.Retain()
	s.kept = append(s.kept, kept)
	s.keptLen += kept.Cap()
	ctx.Hold(kept.Cap())
	if len(s.kept) < 3 {
		return nil
	}
	return s.writeKept(ctx)
}

func (s *server) writeKept(ctx *pipeline.Context) error {
	kept := s.kept
	s.kept = nil
	ctx.Hold(-s.keptLen)
	s.keptLen = 0
	var err error
	for _, b := range kept {
		if err == nil {
			err = s.write(ctx, b)
		}
		b.Release()
	}
	return err
}

// write writes one message.
func (s *server) write(ctx *pipeline.Context, b *buffer.Buf) error {
	if f := &s.run.shared.framing; f.text() {
		return f.write(ctx, b.Bytes())
	}
	return ctx.Write(b)
}

// writeRef writes by a Ref, from another loop where the plan says so. What is posted is lost when the channel closes
// before it is written, so that waits for it.
func (s *server) writeRef(ctx *pipeline.Context, p []byte) error {
	s.run.res.RefWrites++
	ref := ctx.Ref()
	post := func() {
		err := ref.TryWrite(p)
		if err == nil {
			err = ref.Execute(func(ctx *pipeline.Context) {
				if s.hops--; s.hops == 0 && s.closing {
					_ = ctx.CloseWrite()
				}
			})
		}
		if err != nil && !errors.Is(err, pipeline.ErrClosed) {
			s.run.fail(fmt.Errorf("server: write by a Ref: %w", err))
		}
	}
	if s.hops++; !s.plan.byHop {
		post()
		return nil
	}
	if s.hops == 1 { // else those under way must not be overtaken
		s.other = s.run.loops[s.run.rng.IntN(len(s.run.loops))]
	}
	return s.other.Execute(post)
}

// work is what the pool does with a message: on no loop.
func (s *server) work(_ context.Context, p []byte) ([]byte, error) {
	if s.plan.failing && s.run.rng.IntN(50) == 0 {
		s.run.cutAll()
		if s.run.rng.IntN(2) == 0 {
			panic("simtest: work")
		}
		return nil, errWork
	}
	return p, nil
}

// worked writes what the pool has made.
func (s *server) worked(ctx *pipeline.Context, p []byte, err error) error {
	if err != nil {
		if errors.Is(err, pipeline.ErrClosed) {
			return nil
		}
		return err
	}
	s.took(len(p))
	if f := &s.run.shared.framing; f.text() {
		return ignoreClosed(f.write(ctx, p))
	}
	return ignoreClosed(ctx.Write(p))
}

func (s *server) ChannelReadComplete(ctx *pipeline.Context) error {
	if s.run.rng.IntN(2) == 0 {
		return ignoreClosed(s.writeKept(ctx))
	}
	if len(s.kept) > 0 { // later, also when nothing more comes
		later := ctx.NewTimer(func(ctx *pipeline.Context) error { return ignoreClosed(s.writeKept(ctx)) })
		later.Reset(time.Millisecond)
	}
	return nil
}

func (s *server) pause(ctx *pipeline.Context) {
	s.run.res.Pauses++
	s.paused = true
	ctx.Pause()
	ctx.NewTimer(func(ctx *pipeline.Context) error {
		if !ctx.Writable() {
			return nil // ChannelWritabilityChanged will
		}
		s.resume(ctx)
		return nil
	}).Reset(time.Duration(s.run.rng.IntN(2000)) * time.Microsecond)
}

func (s *server) resume(ctx *pipeline.Context) {
	s.paused = false
	ctx.Resume()
}

func (s *server) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	s.run.progress++
	if ctx.Writable() && s.paused {
		s.resume(ctx)
	}
	return nil
}

func (s *server) describe() string {
	return fmt.Sprintf("server: got %d, paused %v, kept %d, hops %d, %s", s.got, s.paused, len(s.kept), s.hops,
		state(s.ctx))
}

func (s *server) ChannelInactive(*pipeline.Context) error {
	s.inactive++
	s.run.servers = slices.DeleteFunc(s.run.servers, func(other *server) bool { return other == s })
	if s.active != 1 || s.inactive != 1 {
		s.run.fail(fmt.Errorf("server: active %d times, inactive %d times", s.active, s.inactive))
	}
	return nil
}

// HandlerRemoved gives back what is still kept: the channel is closed then.
func (s *server) HandlerRemoved(ctx *pipeline.Context) error {
	for _, b := range s.kept {
		b.Release()
	}
	s.kept = nil
	return nil
}

// Close writes what is kept before the channel closes.
func (s *server) Close(ctx *pipeline.Context) error {
	if err := ignoreClosed(s.writeKept(ctx)); err != nil {
		return err
	}
	return ctx.Close()
}

// halfServer returns the client's FIN with its own, after what it has kept.
type halfServer struct{ *server }

func (h *halfServer) ChannelReadClosed(ctx *pipeline.Context) error {
	if err := ignoreClosed(h.writeKept(ctx)); err != nil {
		return err
	}
	if h.hops > 0 {
		h.closing = true
		return nil
	}
	return ignoreClosed(ctx.CloseWrite())
}

// cutAll notes that a server ended a connection on its own account: which one only its peer can tell.
func (r *run) cutAll() {
	for _, c := range r.conns {
		c.cut = true
	}
}

// granter grants at random, at times nothing.
type granter struct{ rng *rand.Rand }

func (g *granter) ReadGrant(*pipeline.Context) (int, time.Duration) {
	if g.rng.IntN(4) == 0 {
		return 0, time.Duration(1+g.rng.IntN(1000)) * time.Microsecond
	}
	return 1 + g.rng.IntN(10_000), 0
}

// pauser is a reason of its own to pause.
type pauser struct{ run *run }

func (p *pauser) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireRead(msg)
	if p.run.rng.IntN(10) == 0 {
		p.run.res.Pauses++
		ctx.Pause()
		ctx.NewTimer(func(ctx *pipeline.Context) error { ctx.Resume(); return nil }).
			Reset(time.Duration(p.run.rng.IntN(500)) * time.Microsecond)
	}
	return nil
}

// relay stands in the way of everything and passes it on.
type relay struct{}

func (relay) ChannelRead(ctx *pipeline.Context, msg any) error { ctx.FireRead(msg); return nil }
func (relay) Write(ctx *pipeline.Context, msg any) error       { return ctx.Write(msg) }
func (relay) Flush(ctx *pipeline.Context) error                { return ctx.Flush() }

// batcher keeps bytes until the flush.
type batcher struct{ held []*buffer.Buf }

func (b *batcher) Write(ctx *pipeline.Context, msg any) error {
	if m, ok := msg.(*buffer.Buf); ok {
		b.held = append(b.held, m.Retain())
		ctx.Hold(b.held[len(b.held)-1].Cap())
		return nil
	}
	if err := b.release(ctx); err != nil {
		return err
	}
	return ctx.Write(msg)
}

func (b *batcher) Flush(ctx *pipeline.Context) error {
	if err := b.release(ctx); err != nil {
		return err
	}
	return ctx.Flush()
}

func (b *batcher) release(ctx *pipeline.Context) error {
	held := b.held
	b.held = nil
	var err error
	for _, m := range held {
		ctx.Hold(-m.Cap())
		if err == nil {
			err = ctx.Write(m)
		}
		m.Release()
	}
	return err
}

// HandlerRemoved sends what is kept on its way, or gives it back when the channel is closed.
func (b *batcher) HandlerRemoved(ctx *pipeline.Context) error {
	if ctx.Open() {
		return b.release(ctx)
	}
	for _, m := range b.held {
		m.Release()
	}
	b.held = nil
	return nil
}
