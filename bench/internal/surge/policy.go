package surge

import (
	"math"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/handlers/overload"
)

// None sends everything on.
type None struct{}

// Offer sends.
func (None) Offer(s Host, r *Request) { s.Send(r) }

// Done does nothing.
func (None) Done(Host, *Request, time.Duration) {}

// Integrator is a controller as articles describe one: every 50 ms the highest of three risks raises or lowers the
// probability with which requests are refused.
type Integrator struct {
	TargetWait time.Duration
	MaxEntries float64

	probability float64
	due         time.Duration
	waited      time.Duration
	answers     int
}

// Offer refuses by chance.
func (a *Integrator) Offer(s Host, r *Request) {
	for ; s.Time() >= a.due; a.due += 50 * time.Millisecond {
		risk := float64(s.UnderWay()) / a.MaxEntries
		if a.answers > 0 {
			risk = max(risk, float64(a.waited)/float64(a.answers)/float64(a.TargetWait))
		}
		a.waited, a.answers = 0, 0
		if risk > 1 {
			a.probability = min(0.95, a.probability+0.1*(risk-1))
		} else {
			a.probability = max(0, a.probability-0.05*(1-risk))
		}
	}
	if a.probability > 0.001 && s.Rand().Float64() < a.probability {
		s.Refuse(r)
		return
	}
	s.Send(r)
}

// Done notes how long an answer took.
func (a *Integrator) Done(_ Host, _ *Request, took time.Duration) {
	a.waited += took
	a.answers++
}

// Limited has a limit of requests in the upstream, and, where it has a queue or a controller, these.
type Limited struct {
	Limiter flow.Limiter
	Queue   *overload.Queue[*Request]
	Control *overload.Controller

	host Host
}

// NewLimited returns one. A controller's only signal is the queue.
func NewLimited(limiter flow.Limiter, queue, control bool) (*Limited, error) {
	l := &Limited{Limiter: limiter}
	if !queue {
		return l, nil
	}
	var err error
	l.Queue, err = overload.NewQueue(overload.QueueConfig{}, func(it overload.Item[*Request]) { l.host.Refuse(it.Value) })
	if err != nil || !control {
		return l, err
	}
	l.Control, err = overload.New(overload.Config{Signals: []overload.Signal{{Name: "queue", Read: l.Queue.Risk}}})
	return l, err
}

// Offer sends, queues or refuses.
func (l *Limited) Offer(s Host, r *Request) {
	l.host = s
	switch {
	case l.Control != nil && !l.Control.Admit(s.Time(), r.Class, r.User):
		s.Refuse(r)
	case l.Queue != nil:
		l.Queue.Push(s.Time(), overload.Item[*Request]{Value: r, Class: r.Class, Deadline: r.Deadline})
		l.fill(s)
	case s.UnderWay() < l.Limiter.Limit():
		s.Send(r)
	default:
		s.Refuse(r)
	}
}

// Done learns, and sends what waits.
func (l *Limited) Done(s Host, _ *Request, took time.Duration) {
	l.Limiter.Done(s.Time(), took, s.UnderWay()+1, false)
	if l.Queue != nil {
		l.Queue.Served(took)
		l.fill(s)
	}
}

func (l *Limited) fill(s Host) {
	for s.UnderWay() < l.Limiter.Limit() {
		it, ok := l.Queue.Pop(s.Time())
		if !ok {
			return
		}
		s.Send(it.Value)
	}
}

// Rung is a row of the table.
type Rung struct {
	Name string
	Make func() (Policy, error)
}

// Rungs are the rows; workers is what a fixed limit is tuned for.
func Rungs(workers int) []Rung {
	limited := func(limiter func() (flow.Limiter, error), queue, control bool) func() (Policy, error) {
		return func() (Policy, error) {
			l, err := limiter()
			if err != nil {
				return nil, err
			}
			return NewLimited(l, queue, control)
		}
	}
	fixed := func(n int) func() (flow.Limiter, error) {
		return func() (flow.Limiter, error) { return flow.NewFixed(n) }
	}
	gradient := func() (flow.Limiter, error) { return flow.NewGradient(flow.GradientConfig{}) }
	return []Rung{
		{"none", func() (Policy, error) { return None{}, nil }},
		{"integrator, 10 ms", func() (Policy, error) {
			return &Integrator{TargetWait: 10 * time.Millisecond, MaxEntries: 10_000}, nil
		}},
		{"integrator, 50 ms", func() (Policy, error) {
			return &Integrator{TargetWait: 50 * time.Millisecond, MaxEntries: 10_000}, nil
		}},
		{"fixed limit", limited(fixed(int(math.Ceil(2.5*float64(workers)))), false, false)},
		{"CoDel+LIFO", limited(fixed(workers), true, false)},
		{"gradient", limited(gradient, false, false)},
		{"gradient+queue", limited(gradient, true, false)},
		{"gradient+queue+classes", limited(gradient, true, true)},
	}
}
