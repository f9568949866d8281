// Package simtest runs the whole stack (sim, loop, channel, pipeline) in one goroutine from one seed and checks, after
// every turn, what must hold whatever the network does.
package simtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

const (
	address  = "10.0.0.1:7000"
	upstream = "10.0.0.1:7001" // of those that handlers dial
	maxTurns = 2_000_000
	maxTime  = 2 * time.Hour // virtual
)

// Result counts what a run did, so that tests can tell that the seeds reach what they should.
type Result struct {
	Connections int
	Delivered   int // bytes that arrived back at a client
	Complete    int // connections all of whose bytes came back
	Failed      int // dials that failed
	Broken      int // channels that closed with a cause
	Panics      int // handlers that panicked
	Pauses      int
	Turns       int

	Frames     int // messages that came back
	Dropped    int // by drop gates
	Highs      int // watermarks that rose
	Rises      int // shared levels that rose
	Offloaded  int // messages worked by the pool
	Idle       int // events of idle
	Watched    int // watches that were told
	Left       int // those that ended inside
	Signals    int // raised, by another loop, and run
	Unwritable int // SetWritable(false)
	RefWrites  int // written by Refs, from this or another loop
	Proxied    int // channels that a handler has dialed
	Rejected   int // by the filter
	HandedOver int // accepted on another loop
	Held       int // connections that admission made wait
	Crowded    int // Receivers that had no room and have it again
	Meddled    [moments]int
}

// run is one simulation.
type run struct {
	rng      *rand.Rand
	world    *sim.World
	loops    []*loop.Loop
	serving  int // the first loops are the server's
	conns    []*conn
	servers  []*server // that are active
	sides    []*side   // of proxies
	file     *os.File
	fileData []byte
	harsh    bool
	trace    io.Writer // nil: none
	err      error
	res      Result
	open     int // channels alive, both sides
	dials    int // of handlers, under way

	shared   shared
	round    uint64
	progress uint64        // grows whenever something moves
	seen     uint64        // as of the last round
	movedAt  time.Duration // when it last grew
}

// Run simulates the seed. file holds content that handlers may send; its bytes are data. trace may be nil.
func Run(seed uint64, file *os.File, data []byte, trace io.Writer) (Result, error) {
	r := &run{rng: rand.New(rand.NewPCG(seed, 0x77656972)), file: file, fileData: data, trace: trace}
	cfg := r.config(trace)
	r.world = sim.NewWorld(seed, cfg)
	err := r.drawShared()
	if err == nil {
		err = r.start()
	}
	if err == nil {
		err = r.turns()
	}
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		err = fmt.Errorf("seed %d, at %v, turn %d: %w", seed, r.world.Now(), r.res.Turns, err)
	}
	return r.res, err
}

// config draws a network: small and large buffers and blocks, with mild or harsh faults.
func (r *run) config(trace io.Writer) sim.Config {
	pick := func(v ...int) int { return v[r.rng.IntN(len(v))] }
	cfg := sim.Config{
		Trace:              trace,
		SendBufferBytes:    pick(512, 4<<10, 64<<10),
		ReceiveBufferBytes: pick(512, 4<<10, 64<<10),
		SegmentBytes:       pick(100, 1460, 16<<10),
		BlockBytes:         pick(256, 4<<10, 16<<10),
		Blocks:             pick(2, 8, 64),
		Batch:              pick(1, 8, 256),
		Jitter:             time.Duration(pick(0, 100)) * time.Microsecond,
		SendNow:            pick(0, 1) == 1,
	}
	switch r.rng.IntN(4) {
	case 0:
	case 1, 2:
		cfg.Faults = sim.Mild()
	case 3:
		cfg.Faults = sim.Harsh()
		r.harsh = true
	}
	return cfg
}

func (r *run) start() error {
	r.serving = 1 + r.rng.IntN(2)
	for i := range r.serving + 2 { // one for the clients, and one for what happens beside them
		l, err := loop.New(loop.Config{
			Open:   func(bool) (transport.Transport, error) { return r.world.Open(), nil },
			Logger: slog.New(slog.DiscardHandler),
			Name:   fmt.Sprint("loop-", i),
		})
		if err != nil {
			return err
		}
		if err := l.Open(); err != nil {
			return err
		}
		r.loops = append(r.loops, l)
	}
	for _, l := range r.shared.levels {
		l.timer = r.loops[r.rng.IntN(len(r.loops))].NewTimer(nil, l.drain)
	}
	if err := r.listenAll(address, r.initFront); err != nil {
		return err
	}
	if err := r.listenAll(upstream, r.initServer); err != nil {
		return err
	}
	client := r.loops[r.serving]
	for i := range 1 + r.rng.IntN(8) {
		r.dial(client, i)
	}
	return nil
}

// listenAll lets all serving loops have connections to an address: each its own, or those that the last loop, which has
// no other, accepts and hands over.
func (r *run) listenAll(address string, init func(*pipeline.Pipeline) error) error {
	cfg := r.channelConfig()
	cfg.Init = init
	if r.rng.IntN(2) == 0 {
		for _, l := range r.loops[:r.serving] {
			if _, err := r.listen(l, address, channel.ListenerConfig{Channel: &cfg}); err != nil {
				return err
			}
		}
		return nil
	}
	front := r.loops[len(r.loops)-1]
	var to []*channel.Receiver
	var ln *channel.Listener
	for _, l := range r.loops[:r.serving] {
		receiver, err := channel.NewReceiver(l, channel.ReceiverConfig{
			Channel: &cfg, MaxWaiting: 1 + r.rng.IntN(4),
			Room: func() {
				r.res.Crowded++
				if err := front.Execute(func() { ln.Readmit() }); err != nil {
					r.fail(err)
				}
			},
			Accepted: func(*channel.Channel, any) {
				r.open++
				r.res.HandedOver++
			},
		})
		if err != nil {
			return err
		}
		to = append(to, receiver)
	}
	var err error
	ln, err = r.listen(front, address, channel.ListenerConfig{
		Route: func(netip.AddrPort) *channel.Receiver { return to[r.rng.IntN(len(to))] },
	})
	return err
}

// listen tries again after injected errors.
func (r *run) listen(l *loop.Loop, address string, cfg channel.ListenerConfig) (ln *channel.Listener, err error) {
	retry := l.NewTimer(nil, func() { ln.Readmit() })
	cfg.Admit = func(*transport.Completion) (s channel.Screening) {
		if r.rng.IntN(4) == 0 {
			r.res.Held++
			s.Outcome = channel.Hold
			retry.Reset(time.Millisecond)
		}
		return s
	}
	cfg.Transport = transport.ListenConfig{Network: "tcp", Address: address, ReusePort: true}
	cfg.Accepted = func(*channel.Channel, any) { r.open++ }
	for range 100 {
		if ln, err = channel.Listen(l, cfg); err == nil {
			break
		}
	}
	return ln, err
}

func (r *run) channelConfig() channel.Config {
	return channel.Config{
		CloseTimeout:       20 * time.Second,
		PausedCloseTimeout: 60 * time.Second,
		Closed:             r.closed,
		Dialed: func(*channel.Channel) func(*channel.Channel) {
			r.open++
			return r.closed
		},
	}
}

// closed counts a channel that is closed. None of a network without harsh faults needs to be given up.
func (r *run) closed(c *channel.Channel) {
	r.open--
	r.progress++
	cause := c.Cause()
	if cause != nil {
		r.res.Broken++
	}
	if !r.harsh && (errors.Is(cause, channel.ErrPausedClose) || errors.Is(cause, channel.ErrCloseTimeout)) {
		r.fail(fmt.Errorf("channel %x was given up: %w: %s", c.ID(), cause, r.describe()))
	}
}

func (r *run) dial(l *loop.Loop, id int) {
	c := newConn(r, id)
	r.conns = append(r.conns, c)
	r.res.Connections++
	cfg := r.channelConfig()
	cfg.Init = c.initClient
	to := &transport.DialConfig{Network: "tcp", Address: address}
	channel.Dial(l, to, &cfg, func(ch *channel.Channel, err error) {
		if ch != nil {
			r.open++
			c.dialed = true
			r.progress++
			return
		}
		c.dialed, c.refused = true, true
		r.progress++
		r.res.Failed++
		if !r.harsh {
			r.fail(fmt.Errorf("connection %d: dial: %w", id, err))
		}
	})
}

// fail keeps the first violation.
func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// turns turns the loops round and round until every channel is closed.
func (r *run) turns() error {
	for r.res.Turns < maxTurns {
		r.round++
		if err := r.between(); err != nil {
			return err
		}
		for _, l := range r.loops {
			if _, err := l.RunOnce(-1); err != nil {
				return err
			}
			r.res.Turns++
			if r.err != nil {
				return r.err
			}
		}
		if r.done() {
			return nil
		}
		if err := r.alive(); err != nil {
			return err
		}
		if r.world.Idle() > 0 {
			return fmt.Errorf("stuck: %d channels are open and no event will ever wake them: %s", r.open, r.describe())
		}
		if r.world.Now() > maxTime {
			return fmt.Errorf("not done after %v: %s", maxTime, r.describe())
		}
	}
	return fmt.Errorf("not done after %d turns: %s", maxTurns, r.describe())
}

// between does what happens beside the loops.
func (r *run) between() error {
	if all := r.shared.signals; len(all) > 0 && r.rng.IntN(2) == 0 {
		all[r.rng.IntN(len(all))].raise()
	}
	if r.shared.filter != nil && r.rng.IntN(500) == 0 {
		return r.denyAll()
	}
	return nil
}

func (r *run) done() bool {
	if r.open > 0 {
		return false
	}
	for _, c := range r.conns {
		if !c.dialed {
			return false
		}
	}
	return true
}

// finish closes the loops and checks that nothing is left.
func (r *run) finish() error {
	for i, l := range r.loops {
		pool, tr, stats := l.Pool(), l.Transport(), l.Stats()
		r.res.Panics += int(stats.Panics)
		if err := l.Close(); err != nil {
			return fmt.Errorf("close of loop %d: %w", i, err)
		}
		if n := pool.Outstanding(); n != 0 {
			return fmt.Errorf("loop %d: %d buffers are not released: %v", i, n, pool.Leaks())
		}
		if s := tr.Stats(); s.Open != 0 {
			return fmt.Errorf("loop %d: %d sockets are not closed", i, s.Open)
		}
	}
	for len(r.shared.jobs) > 0 {
		r.work(r.shared.jobs[0])
	}
	errs := []error{r.shared.pool.Close(context.Background())}
	for _, l := range r.shared.levels {
		errs = append(errs, l.check())
		r.res.Rises += int(l.level.Rises())
	}
	snap := r.shared.stats.Snapshot()
	r.res.Highs += int(snap.Pauses)
	for _, c := range snap.Dropped { //weir:unordered a sum
		r.res.Dropped += int(c.Frames)
	}
	r.res.Offloaded += int(r.shared.pool.Stats().Done)
	if r.shared.filter != nil {
		r.res.Rejected += int(r.shared.filter.Stats().Rejected)
	}
	for _, c := range r.conns {
		errs = append(errs, c.check())
		r.res.Delivered += c.received
		if c.complete() {
			r.res.Complete++
		}
	}
	errs = append(errs, r.world.Check())
	return errors.Join(errs...)
}
