package surge

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/pipeline"
)

const (
	connections  = 16
	requestBytes = 9 // id, class
	served       = 0
	refused      = 1
)

// Measured is what a run over sockets was like.
type Measured struct {
	Goodput   float64 // answers in time in the burst, of what the upstream could do
	Class     [Classes]float64
	P50, P999 time.Duration // of what was served in the burst, from the intended start
	Failed    float64       // part of the requests from one second after the burst on
	Lag       time.Duration // p99 of how late requests were sent
}

// Phase lengths of a run over sockets.
type Phase struct{ Before, Burst, After time.Duration }

// Sockets runs a load over loopback against a weir server with one loop, whose upstream is Load.Workers goroutines of
// this process that sleep. Deadlines are the server's estimate: from when a request came.
func Sockets(load Load, phase Phase, policy Policy) (Measured, error) {
	h := &socketHost{load: load, policy: policy, rng: rand.New(rand.NewPCG(load.Seed, 8))}
	h.wake = sync.NewCond(&h.mu)
	srv := &weir.Server{Loops: 1, Init: func(p *pipeline.Pipeline) error {
		framer, err := codec.NewLengthField(codec.LengthFieldConfig{
			Width: frame.HeaderBytes, Strip: frame.HeaderBytes, MaxBytes: frame.HeaderBytes + requestBytes,
		})
		if err != nil {
			return err
		}
		return errors.Join(p.AddLast("frames", framer), p.AddLast("server", h))
	}}
	address, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Measured{}, err
	}
	for i := range load.Workers {
		go h.work(rand.New(rand.NewPCG(load.Seed, uint64(100+i))))
	}
	c := &client{load: load, phase: phase, rng: rand.New(rand.NewPCG(load.Seed, 9))}
	err = c.run(address.String())
	h.stop()
	m := c.measure(float64(load.Workers) / h.meanService().Seconds())
	return m, errors.Join(err, srv.Close())
}

// socketHost is the server's application on its one loop, and the queue of the upstream's workers.
type socketHost struct {
	load     Load
	policy   Policy
	rng      *rand.Rand
	now      time.Duration
	inFlight int
	places   map[*Request]place

	mu      sync.Mutex
	wake    *sync.Cond
	waiting []*Request
	ended   bool
	slept   atomic.Int64
	sleeps  atomic.Int64
}

// place is where the answer goes.
type place struct {
	ctx *pipeline.Context
	ref pipeline.Ref
	id  uint64
}

// ChannelRead gets a request.
func (h *socketHost) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf).Bytes()
	if len(b) != requestBytes {
		return io.ErrUnexpectedEOF
	}
	h.now = ctx.Now()
	id := binary.BigEndian.Uint64(b)
	r := &Request{
		Class: flow.Class(b[8]), User: id % 1000, Arrived: h.now, Deadline: h.now + h.load.Deadline,
	}
	if h.places == nil {
		h.places = map[*Request]place{}
	}
	h.places[r] = place{ctx, ctx.Ref(), id}
	h.policy.Offer(h, r)
	return nil
}

// Time, UnderWay and Rand are for policies, on the loop.
func (h *socketHost) Time() time.Duration { return h.now }

// UnderWay is how many are in the upstream.
func (h *socketHost) UnderWay() int { return h.inFlight }

// Rand is the server's chance.
func (h *socketHost) Rand() *rand.Rand { return h.rng }

// Send gives a request to the workers.
func (h *socketHost) Send(r *Request) {
	h.inFlight++
	r.sent = h.now
	h.mu.Lock()
	h.waiting = append(h.waiting, r)
	r.place = h.places[r]
	h.mu.Unlock()
	h.wake.Signal()
}

// Refuse tells the client at once.
func (h *socketHost) Refuse(r *Request) { h.reply(r, refused) }

func (h *socketHost) reply(r *Request, status byte) {
	p := h.places[r]
	delete(h.places, r)
	var answer [frame.HeaderBytes + requestBytes]byte
	binary.BigEndian.PutUint32(answer[:], requestBytes)
	binary.BigEndian.PutUint64(answer[frame.HeaderBytes:], p.id)
	answer[len(answer)-1] = status
	_ = p.ctx.WriteBytes(answer[:]) // the client sees what is missing
}

func (h *socketHost) work(rng *rand.Rand) {
	for {
		h.mu.Lock()
		for len(h.waiting) == 0 && !h.ended {
			h.wake.Wait()
		}
		if h.ended {
			h.mu.Unlock()
			return
		}
		r := h.waiting[0]
		h.waiting = h.waiting[1:]
		h.mu.Unlock()
		start := time.Now()
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(h.load.Service)))
		h.slept.Add(int64(time.Since(start)))
		h.sleeps.Add(1)
		for errors.Is(r.place.ref.Execute(func(ctx *pipeline.Context) {
			h.now = ctx.Now()
			h.inFlight--
			h.reply(r, served)
			h.policy.Done(h, r, h.now-r.sent)
		}), pipeline.ErrFull) {
			time.Sleep(time.Millisecond)
		}
	}
}

func (h *socketHost) stop() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.wake.Broadcast()
}

func (h *socketHost) meanService() time.Duration {
	return time.Duration(h.slept.Load() / max(h.sleeps.Load(), 1))
}

// client is the open loop.
type client struct {
	load  Load
	phase Phase
	rng   *rand.Rand
	start time.Time
	sent  []sent
	lags  []time.Duration
}

type sent struct {
	due   time.Duration
	class byte
	took  atomic.Int64 // 0: no answer; negative: refused
}

func (c *client) run(address string) error {
	total := c.phase.Before + c.phase.Burst + c.phase.After
	rate := float64(c.load.Workers) / c.load.Service.Seconds()
	var due []time.Duration
	for at := time.Duration(0); at < total; {
		due = append(due, at)
		r := 0.7 * rate
		if at >= c.phase.Before && at < c.phase.Before+c.phase.Burst {
			r = c.load.Times * rate
		}
		at += time.Duration(c.rng.ExpFloat64() / r * 1e9)
	}
	c.sent = make([]sent, len(due))
	var conns [connections]net.Conn
	var readers sync.WaitGroup
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", address); err != nil {
			return err
		}
		readers.Go(func() { c.read(conns[i]) })
	}
	c.start = time.Now()
	for i, at := range due {
		s := &c.sent[i]
		s.due = at
		for x := c.rng.Float64(); s.class < Classes-1 && x >= Mix[s.class]; s.class++ {
			x -= Mix[s.class]
		}
		if wait := at - time.Since(c.start); wait > 0 {
			time.Sleep(wait)
		}
		c.lags = append(c.lags, time.Since(c.start)-at)
		var b [requestBytes]byte
		binary.BigEndian.PutUint64(b[:], uint64(i))
		b[8] = s.class
		if _, err := conns[i%connections].Write(frame.Append(nil, b[:])); err != nil {
			return err
		}
	}
	time.Sleep(time.Second) // as long as the last may take
	for _, conn := range conns {
		_ = conn.Close()
	}
	readers.Wait()
	return nil
}

func (c *client) read(conn net.Conn) {
	var b [frame.HeaderBytes + requestBytes]byte
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return
		}
		s := &c.sent[binary.BigEndian.Uint64(b[frame.HeaderBytes:])]
		took := int64(time.Since(c.start) - s.due)
		if b[len(b)-1] == refused {
			took = -1
		}
		s.took.Store(took)
	}
}

func (c *client) measure(capacity float64) (m Measured) {
	var times []time.Duration
	var asked, good [Classes]int
	late, failed := 0, 0
	end := c.phase.Before + c.phase.Burst
	for i := range c.sent {
		s := &c.sent[i]
		took := time.Duration(s.took.Load())
		inTime := took > 0 && took <= c.load.Deadline
		switch {
		case s.due >= c.phase.Before && s.due < end:
			asked[s.class]++
			if took > 0 {
				times = append(times, took)
			}
			if inTime {
				good[s.class]++
			}
		case s.due >= end+time.Second:
			late++
			if !inTime {
				failed++
			}
		}
	}
	sum := 0
	for k := range good {
		sum += good[k]
		m.Class[k] = float64(good[k]) / float64(max(asked[k], 1))
	}
	m.Goodput = float64(sum) / (capacity * c.phase.Burst.Seconds())
	m.Failed = float64(failed) / float64(max(late, 1))
	slices.Sort(times)
	if n := len(times); n > 0 {
		m.P50, m.P999 = times[n/2], times[n*999/1000]
	}
	slices.Sort(c.lags)
	if n := len(c.lags); n > 0 {
		m.Lag = c.lags[n*99/100]
	}
	return m
}
