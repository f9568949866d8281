package simtest

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/handlers/idle"
	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// shared is what the pipelines of a run have in common.
type shared struct {
	framing framing
	lossy   bool // watermarks keep reading, and drop gates drop
	levels  []*sink
	stats   watermark.Stats
	filter  *ipfilter.Filter // nil: none
	pool    *offload.Pool
	jobs    []*func() // workers of the pool that have yet to run
	watches []*watch
	signals []*signal
	marks   []*leveled
}

// leveled is a watermark that must not stay high without a reason.
type leveled struct {
	h    *watermark.Handler
	ctx  *pipeline.Context
	low  int
	high uint64 // the round that first found it high without one; 0: none has
}

func (r *run) drawShared() error {
	s := &r.shared
	s.framing = drawFraming(r.rng)
	s.lossy = s.framing.framed() && r.rng.IntN(5) == 0
	for range r.rng.IntN(3) {
		level, err := newSink(r)
		if err != nil {
			return err
		}
		s.levels = append(s.levels, level)
	}
	if r.rng.IntN(3) == 0 {
		cfg := ipfilter.Config{Deny: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		var err error
		if s.filter, err = ipfilter.New(cfg); err != nil {
			return err
		}
	}
	var err error
	s.pool, err = offload.NewPool(offload.PoolConfig{
		Workers: 1 + r.rng.IntN(3), MaxQueued: 1 + r.rng.IntN(8), MaxQueuedBytes: 1 << (8 + r.rng.IntN(10)),
		Go: r.later,
	})
	return err
}

// later lets a worker of the pool run beside the loops that serve, after a while: on the clock of the simulation.
func (r *run) later(fn func()) {
	job := &fn
	r.shared.jobs = append(r.shared.jobs, job)
	r.loops[len(r.loops)-1].NewTimer(nil, func() { r.work(job) }).Reset(time.Duration(r.rng.IntN(300)) * time.Microsecond)
}

// work runs a worker, once.
func (r *run) work(job *func()) {
	if i := slices.Index(r.shared.jobs, job); i >= 0 {
		r.shared.jobs = slices.Delete(r.shared.jobs, i, i+1)
		(*job)()
	}
}

// denyAll makes the filter reject whoever connects from now on.
func (r *run) denyAll() error {
	set, err := ipfilter.NewSet(ipfilter.Config{
		Deny: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	})
	if err == nil {
		r.shared.filter.Swap(set)
		r.cutAll()
	}
	return err
}

// adder adds handlers until one fails.
type adder struct {
	p   *pipeline.Pipeline
	err error
}

func (a *adder) last(name string, h any, err error) {
	if a.err == nil {
		a.err = err
	}
	if a.err == nil {
		a.err = a.p.AddLast(name, h)
	}
}

// initServer fills the pipeline of an accepted channel.
func (r *run) initServer(p *pipeline.Pipeline) error {
	a := &adder{p: p}
	one := func(n int) bool { return r.rng.IntN(n) == 0 }
	s := &server{run: r, plan: drawServerPlan(r)}
	s.m = &meddler{run: r, rate: 1 + r.rng.IntN(200)}
	if r.shared.filter != nil {
		a.last("filter", r.shared.filter, nil)
	}
	if one(3) {
		a.last("leaver", &watch{run: r, leaves: true}, nil)
	}
	if one(3) {
		a.last("granter", &granter{rng: r.rng}, nil)
	}
	var level *watermark.Handler
	if r.shared.lossy || len(r.shared.levels) > 0 || one(2) {
		level = r.addWatermark(a)
	}
	if one(3) {
		a.last("watch", &watch{run: r}, nil)
	}
	if one(3) {
		r.addIdle(a)
	}
	if one(3) {
		a.last("pauser", &pauser{run: r}, nil)
	}
	if one(3) {
		a.last("outer", relay{}, nil)
	}
	if a.err == nil {
		a.err = r.shared.framing.add(p)
	}
	if level != nil && one(2) {
		a.last("probe", watermark.NewProbe(level), nil)
	}
	if r.shared.lossy || level != nil && one(3) {
		a.last("gate", watermark.NewDropGate(level), nil)
	}
	if one(2) {
		a.last("meddler", s.m, nil)
	}
	if one(4) {
		h, err := offload.Bytes(r.shared.pool, s.work, s.worked)
		a.last("offload", h, err)
	}
	if r.trace != nil {
		defer func() {
			fmt.Fprintf(r.trace, "%14v accepted %x: %+v %v\n", r.world.Now(), p.Context("server").ID(), s.plan, p.Names())
		}()
	}
	if s.plan.half {
		a.last("server", &halfServer{server: s}, nil)
	} else {
		a.last("server", s, nil)
	}
	return a.err
}

func (r *run) addWatermark(a *adder) *watermark.Handler {
	cfg := watermark.Config{
		HighBytes: 1 << (10 + r.rng.IntN(8)), HardLimitBytes: 8 << 20, MaxPendingBytes: 16 << 20,
		BudgetBytes: 1 << (8 + r.rng.IntN(9)), KeepReading: r.shared.lossy, Stats: &r.shared.stats,
	}
	if r.rng.IntN(4) == 0 {
		cfg.RateBytesPerSecond = 1 << (17 + r.rng.IntN(6))
	}
	for _, l := range r.shared.levels {
		cfg.Shared = append(cfg.Shared, l.level)
	}
	h, err := watermark.New(cfg)
	a.last("watermark", h, err)
	if a.err == nil {
		m := &leveled{h: h, ctx: a.p.Context("watermark"), low: cfg.HighBytes / 4}
		r.shared.marks = append(r.shared.marks, m)
	}
	return h
}

func (r *run) addIdle(a *adder) {
	h, err := idle.New(idle.Config{
		Reader: time.Duration(1+r.rng.IntN(50)) * time.Millisecond,
		Writer: time.Duration(1+r.rng.IntN(50)) * time.Millisecond,
	})
	a.last("idle", h, err)
	a.last("idler", idler{r}, nil)
}

// idler counts what idle tells.
type idler struct{ run *run }

func (i idler) ChannelEvent(ctx *pipeline.Context, event any) error {
	if _, ok := event.(*idle.Event); ok {
		i.run.res.Idle++
	}
	ctx.FireEvent(event)
	return nil
}

// sink is a shared level with what fills it: a queue that a loop works off.
type sink struct {
	run    *run
	level  *watermark.Shared
	queued int64
	timer  interface{ Reset(time.Duration) } // of a loop; set when the loops are
	set    bool
}

func newSink(r *run) (*sink, error) {
	s := &sink{run: r}
	var err error
	s.level, err = watermark.NewShared(watermark.SharedConfig{
		HighBytes: 1 << (9 + r.rng.IntN(8)), FloorBytes: 1 + r.rng.IntN(2000), ResumesPerTurn: 1 + r.rng.IntN(4),
	})
	return s, err
}

// put queues n bytes.
func (s *sink) put(n int) {
	s.queued += int64(n)
	s.level.Add(int64(n))
	s.later()
}

func (s *sink) later() {
	if !s.set {
		s.set = true
		s.timer.Reset(time.Duration(s.run.rng.IntN(500)) * time.Microsecond)
	}
}

// drain works off a part of the queue, on the sink's loop.
func (s *sink) drain() {
	s.set = false
	n := min(s.queued, 1+s.run.rng.Int64N(20_000))
	s.queued -= n
	s.level.Add(-n)
	s.run.progress++
	if s.queued > 0 {
		s.later()
	}
}

// check returns what is wrong when all channels are closed.
func (s *sink) check() error {
	s.level.Add(-s.queued)
	switch {
	case s.level.Value() != 0 || s.level.High():
		return fmt.Errorf("a shared level stays at %d, high: %v", s.level.Value(), s.level.High())
	case s.level.Waiting() != 0 || s.level.ReservedBytes() != 0:
		return fmt.Errorf("all channels are closed, and %d wait for a shared level, %d bytes are reserved",
			s.level.Waiting(), s.level.ReservedBytes())
	}
	return nil
}
