// Package surge simulates a server before an upstream whose load rises above what it can do and falls again, with
// different ways to control that. Everything is on virtual time and from one seed: the same seed gives the same table.
package surge

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirnet/weir/flow"
)

// Load is what happens.
type Load struct {
	Seed     uint64
	Workers  int           // of the upstream
	Service  time.Duration // mean of its exponential service time
	Slower   float64       // by which the service time is multiplied in the middle of the burst; 0: it stays
	Times    float64       // the burst, in times the capacity
	Deadline time.Duration // after which nobody wants the answer
	Retries  Retries
}

// Retries is what clients do who are refused or get no answer in time.
type Retries int

// The ways of clients.
const (
	NoRetries Retries = iota
	Naive             // three more attempts after 50 ms and as much by chance
	Budgeted          // the same, but only a tenth as many as first attempts
)

// Phases of a run; the calm ones are at 0.7 of the capacity.
const (
	Before = 10 * time.Second
	Burst  = 10 * time.Second
	After  = 10 * time.Second
)

// Classes is how many there are; the most important is Mix[0] of the requests.
const Classes = 4

// Mix is the part of the requests that each class has.
var Mix = [Classes]float64{0.1, 0.2, 0.3, 0.4} //weir:immutable the load of each table

// Request is one attempt.
type Request struct {
	Class    flow.Class
	User     uint64
	Arrived  time.Duration
	Deadline time.Duration
	sent     time.Duration
	attempt  int
	first    time.Duration // when the first attempt was made
	place    place         // over sockets: where the answer goes
}

// Result is what a run was like.
type Result struct {
	Goodput   float64 // in the burst, of what the upstream can do: answers in time
	Slow      float64 // the same in the half of the burst after the service time changed
	Class     [Classes]float64
	P50, P999 time.Duration // of what was served, in the burst
	Recovery  float64       // part of the requests that failed from one second after the burst on
	Amplified float64       // attempts for each request in the burst
	Series    []Point
}

// Point is a tenth of a second of a run.
type Point struct {
	Offered, Good, Refused float64 // per second, in times the capacity at the beginning
}

// Policy decides what becomes of requests.
type Policy interface {
	// Offer is called for each that comes: Send, Refuse, or keep it.
	Offer(s Host, r *Request)
	// Done is called when the upstream has answered.
	Done(s Host, r *Request, took time.Duration)
}

// Host is what a policy works for.
type Host interface {
	Time() time.Duration
	UnderWay() int // in the upstream
	Send(r *Request)
	Refuse(r *Request)
	Rand() *rand.Rand
}

// Sim is a run.
type Sim struct {
	Now      time.Duration
	InFlight int // in the upstream

	load    Load
	rng     *rand.Rand
	policy  Policy
	workers []time.Duration
	events  events
	budget  float64
	times   []time.Duration
	asked   [Classes]int
	good    [Classes]int
	slow    int
	late    [2]int // after the recovery: all, failed
	tries   [2]int // in the burst: first ones, all
	series  []Point
}

type event struct {
	at   time.Duration
	seq  int
	what int
	r    *Request
}

const (
	arrival = iota
	answer
	retry
)

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// Run runs a load against a policy.
func Run(load Load, policy Policy) Result {
	s := &Sim{
		load: load, policy: policy, rng: rand.New(rand.NewPCG(load.Seed, 7)), workers: make([]time.Duration, load.Workers),
		series: make([]Point, (Before+Burst+After)/(100*time.Millisecond)+1),
	}
	s.next()
	for seq := 0; len(s.events) > 0; seq++ {
		e := heap.Pop(&s.events).(event)
		s.Now = e.at
		switch e.what {
		case arrival:
			s.next()
			s.budget = min(s.budget+0.1, 10)
			s.offer(e.r)
		case retry:
			s.offer(e.r)
		default:
			s.InFlight--
			s.answered(e.r)
			policy.Done(s, e.r, s.Now-e.r.sent)
		}
	}
	return s.result()
}

// Time is the clock.
func (s *Sim) Time() time.Duration { return s.Now }

// UnderWay is how many are in the upstream.
func (s *Sim) UnderWay() int { return s.InFlight }

// Rand is the run's source of chance.
func (s *Sim) Rand() *rand.Rand { return s.rng }

// next schedules the next arrival of the open loop.
func (s *Sim) next() {
	rate := float64(s.load.Workers) / s.load.Service.Seconds() * 0.7
	if s.inBurst(s.Now) {
		rate = rate / 0.7 * s.load.Times
	}
	at := s.Now + time.Duration(s.rng.ExpFloat64()/rate*1e9)
	if at >= Before+Burst+After {
		return
	}
	r := &Request{User: s.rng.Uint64N(1000), Arrived: at, Deadline: at + s.load.Deadline, first: at}
	for x := s.rng.Float64(); r.Class < Classes-1 && x >= Mix[r.Class]; r.Class++ {
		x -= Mix[r.Class]
	}
	s.push(at, arrival, r)
}

func (s *Sim) push(at time.Duration, what int, r *Request) {
	heap.Push(&s.events, event{at: at, seq: len(s.events), what: what, r: r})
}

func (s *Sim) inBurst(t time.Duration) bool { return t >= Before && t < Before+Burst }

func (s *Sim) point(t time.Duration) *Point {
	return &s.series[min(int(t/(100*time.Millisecond)), len(s.series)-1)]
}

func (s *Sim) offer(r *Request) {
	if s.inBurst(s.Now) {
		s.tries[1]++
		if r.attempt == 0 {
			s.tries[0]++
		}
	}
	if r.attempt == 0 {
		if s.inBurst(r.first) {
			s.asked[r.Class]++
		} else if r.first >= Before+Burst+time.Second {
			s.late[0]++
		}
	}
	s.point(s.Now).Offered++
	s.policy.Offer(s, r)
}

// Send gives a request to the upstream, which serves in order.
func (s *Sim) Send(r *Request) {
	s.InFlight++
	r.sent = s.Now
	first := 0
	for i, busy := range s.workers {
		if busy < s.workers[first] {
			first = i
		}
	}
	service := float64(s.load.Service)
	if s.load.Slower > 0 && s.Now >= Before+Burst/2 && s.inBurst(s.Now) {
		service *= s.load.Slower
	}
	s.workers[first] = max(s.Now, s.workers[first]) + time.Duration(s.rng.ExpFloat64()*service)
	s.push(s.workers[first], answer, r)
}

// Refuse tells the client at once.
func (s *Sim) Refuse(r *Request) {
	s.point(s.Now).Refused++
	s.failed(r)
}

func (s *Sim) answered(r *Request) {
	if s.inBurst(r.first) {
		s.times = append(s.times, s.Now-r.Arrived)
	}
	if s.Now > r.Deadline {
		s.failed(r)
		return
	}
	s.point(s.Now).Good++
	if s.inBurst(s.Now) {
		if s.Now >= Before+Burst/2+time.Second {
			s.slow++
		}
	}
	if s.inBurst(r.first) {
		s.good[r.Class]++
	}
}

func (s *Sim) failed(r *Request) {
	again := s.load.Retries != NoRetries && r.attempt < 3
	if again && s.load.Retries == Budgeted {
		if again = s.budget >= 1; again {
			s.budget--
		}
	}
	if again {
		at := s.Now + 50*time.Millisecond + time.Duration(s.rng.Float64()*50e6)
		s.push(at, retry, &Request{
			Class: r.Class, User: r.User, Arrived: at, Deadline: at + s.load.Deadline, attempt: r.attempt + 1, first: r.first,
		})
		return
	}
	if r.first >= Before+Burst+time.Second {
		s.late[1]++
	}
}

func (s *Sim) result() Result {
	capacity := float64(s.load.Workers) / s.load.Service.Seconds()
	res := Result{Series: s.series}
	good := 0
	for k := range s.good {
		good += s.good[k]
		res.Class[k] = float64(s.good[k]) / float64(max(s.asked[k], 1))
	}
	res.Goodput = float64(good) / (capacity * Burst.Seconds())
	res.Slow = float64(s.slow) * max(s.load.Slower, 1) / (capacity * (Burst/2 - time.Second).Seconds())
	slices.Sort(s.times)
	if n := len(s.times); n > 0 {
		res.P50, res.P999 = s.times[n/2], s.times[n*999/1000]
	}
	res.Recovery = float64(s.late[1]) / float64(max(s.late[0], 1))
	res.Amplified = float64(s.tries[1]) / float64(max(s.tries[0], 1))
	for i := range s.series {
		p := &s.series[i]
		p.Offered, p.Good, p.Refused = p.Offered*10/capacity, p.Good*10/capacity, p.Refused*10/capacity
	}
	return res
}
