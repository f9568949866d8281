//go:build linux

package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/load"
	"github.com/weirnet/weir/bench/internal/procfs"
	"github.com/weirnet/weir/bench/internal/serve"
)

// ErrWrong is the error of a server that did not echo what it was sent.
var ErrWrong = errors.New("compare: wrong answer")

const (
	// disturbedAbove is the CPU time of other processes, as a share of one processor, above which a slice is repeated.
	disturbedAbove = 0.15
	maxTries       = 4
)

// Config is what a comparison is run with.
type Config struct {
	Programs string // directory of the built programs
	Rounds   int
	Slice    time.Duration // window
	WarmUp   time.Duration // load before each window
	Quick    bool
	Against  string // the name of another weir that BuildBefore has built and that runs beside this one; empty: none
	Scenario string // parts of names, comma-separated; empty: all
	Servers  string // likewise
	Procs    int    // GOMAXPROCS of the Go servers; 0: what serves each best, of 1 and 2
	Idle     int    // connections of the idle scenario
	IdleFor  time.Duration

	ServerCPU, LoadCPU int
	Progress           io.Writer
}

// Cell is one server in one scenario.
type Cell struct {
	Server   string
	Rounds   []Round
	RSSBytes int64  // after the last round
	Error    string // why it has no, or not all rounds
}

// Round is one window. Where the load generator counts connections or requests, those are its messages. When other
// processes left no time for a single one, all but the last three fields are zero.
type Round struct {
	CPUMicros float64 // of the server's process, per message
	PerSecond float64
	P50Micros float64
	P99Micros float64
	LoadBusy  float64 // share of the window in which the load generator had something to do; 0: unknown
	Others    float64 // CPU time of other processes, as a share of one processor
	Disturbed bool    // Others was too much, in every try
	Tries     int
}

// Outcome is a scenario that was run.
type Outcome struct {
	Scenario Scenario
	Cells    []Cell
}

// Cell returns the cell of a server that has rounds, or nil.
func (o *Outcome) Cell(server string) *Cell {
	for i := range o.Cells {
		if c := &o.Cells[i]; c.Server == server && len(c.Rounds) > 0 {
			return c
		}
	}
	return nil
}

// Values returns one value of each round, NaN for a round that has none.
func (c *Cell) Values(of func(Round) float64) []float64 {
	all := make([]float64, len(c.Rounds))
	for i, r := range c.Rounds {
		if all[i] = of(r); r.PerSecond == 0 {
			all[i] = math.NaN()
		}
	}
	return all
}

// Runner runs scenarios. It belongs to one goroutine.
type Runner struct {
	cfg   Config
	procs map[string]int // GOMAXPROCS by server
}

// NewRunner returns a runner of cfg.
func NewRunner(cfg Config) *Runner { return &Runner{cfg: cfg, procs: map[string]int{}} }

func (r *Runner) progress(format string, args ...any) {
	fmt.Fprintf(r.cfg.Progress, format+"\n", args...)
}

// contestant is a server with its load generator.
type contestant struct {
	server *lab.Server
	client *lab.Client
	cell   *Cell
	// stretch is the scenario's.
	stretch time.Duration
}

// specs are the servers that take part in s.
func (r *Runner) specs(s *Scenario) []lab.Spec {
	var all []lab.Spec
	for _, spec := range lab.Specs() {
		if !matches(spec.Name, r.cfg.Servers) || s.Mode == serve.Proxy && !spec.Proxy {
			continue
		}
		spec.Procs = r.procs[spec.Name]
		if !s.Pinned() {
			spec.Procs = 0
		}
		all = append(all, spec)
		if spec.Weir && r.cfg.Against != "" {
			all = append(all, spec.Before())
		}
		if s.Group == Framed && spec.Weir { // what framing costs is asked of the same run
			spec.Name += rawSuffix
			spec.Mode = serve.Echo
			all = append(all, spec)
		}
	}
	return all
}

// rawSuffix marks the raw echo of weir that gets frames.
const rawSuffix = "-raw"

// Run runs a scenario with all servers that take part.
func (r *Runner) Run(ctx context.Context, s Scenario) (Outcome, error) {
	return r.run(ctx, s, r.specs(&s), s.Rounds(&r.cfg))
}

func (r *Runner) run(ctx context.Context, s Scenario, specs []lab.Spec, rounds int) (o Outcome, err error) {
	o = Outcome{Scenario: s, Cells: make([]Cell, len(specs))}
	all := make([]*contestant, 0, len(specs))
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.stop())
		}
	}()
	setting := lab.Setting{Mode: s.Mode, Loops: s.Loops, CPU: r.cfg.ServerCPU}
	if !s.Pinned() {
		setting.CPU = lab.Anywhere
	}
	if s.Mode == serve.Proxy {
		backend, err := r.backend()
		if err != nil {
			return o, err
		}
		defer func() { _ = backend.Stop() }()
		setting.Backend = backend.Address
	}
	for i, spec := range specs {
		o.Cells[i].Server = spec.Name
		c, err := r.contestant(s, spec, setting)
		if err != nil {
			o.Cells[i].Error = err.Error()
			r.progress("%s: %v", s.Name, err)
			continue
		}
		c.cell = &o.Cells[i]
		all = append(all, c)
	}
	// Once without being measured: allocators, caches and goroutine pools fill.
	r.round(s, all, func(c *contestant) error {
		_, err := r.slice(c)
		return err
	})
	for i := range rounds {
		if err := ctx.Err(); err != nil {
			return o, err
		}
		if i%2 == 1 {
			slices.Reverse(all)
		}
		r.round(s, all, func(c *contestant) error { return r.measure(c) })
		if i%2 == 1 {
			slices.Reverse(all)
		}
	}
	for _, c := range all {
		if c.cell.RSSBytes, err = procfs.RSSBytes(c.server.PID()); err != nil && c.cell.Error == "" {
			return o, err
		}
	}
	return o, nil
}

// round calls do for every contestant that has not failed yet.
func (r *Runner) round(s Scenario, all []*contestant, do func(*contestant) error) {
	for _, c := range all {
		if c.cell.Error != "" {
			continue
		}
		if err := do(c); err != nil {
			c.cell.Error = err.Error()
			r.progress("%s: %s: %v", s.Name, c.cell.Server, err)
		}
	}
}

// backend is the echo server behind a proxy. It runs on the client's processor.
func (r *Runner) backend() (*lab.Server, error) {
	for _, spec := range lab.Specs() {
		if spec.Name == bare {
			return lab.StartServer(r.cfg.Programs, spec, lab.Setting{Mode: serve.Echo, Loops: 1, CPU: r.cfg.LoadCPU})
		}
	}
	return nil, fmt.Errorf("compare: no server %s", bare)
}

// bare is the server that stands for what the machine allows.
const bare = "c-epoll"

func (r *Runner) contestant(s Scenario, spec lab.Spec, setting lab.Setting) (*contestant, error) {
	server, err := lab.StartServer(r.cfg.Programs, spec, setting)
	if err != nil {
		return nil, err
	}
	s.Load.Address, s.Load.ServerPID = server.Address, server.PID()
	cpu := r.cfg.LoadCPU
	if !s.Pinned() {
		cpu = lab.Anywhere
	}
	client, err := lab.StartClient(r.cfg.Programs, cpu, s.Load)
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &contestant{server: server, client: client, stretch: s.Stretch()}, nil
}

func (c *contestant) stop() error {
	err := errors.Join(c.client.Stop(), c.server.Stop())
	if c.cell.Error != "" {
		return nil // it is known already
	}
	return err
}

// slice measures one window and checks what came back.
func (r *Runner) slice(c *contestant) (load.Result, error) {
	got, err := c.client.Slice(c.stretch*r.cfg.WarmUp, c.stretch*r.cfg.Slice)
	switch {
	case err != nil:
		return got, err
	case got.BadBytes > 0 || got.Errors > 0 || got.Unanswered > 0:
		return got, fmt.Errorf("%w: %d wrong bytes, %d errors (%s), %d messages unanswered", ErrWrong, got.BadBytes,
			got.Errors,
			got.Error, got.Unanswered)
	}
	return got, nil
}

// measure adds a round.
func (r *Runner) measure(c *contestant) error {
	var round Round
	for round.Tries < maxTries {
		round.Tries++
		before, err := readClocks(c)
		if err != nil {
			return err
		}
		got, err := r.slice(c)
		if err != nil {
			return err
		}
		after, err := readClocks(c)
		if err != nil {
			return err
		}
		round = Round{Others: after.others(before), Tries: round.Tries}
		round.Disturbed = round.Others > disturbedAbove
		if messages := float64(got.Messages); messages > 0 {
			round.CPUMicros = float64(got.ServerCPU.Nanoseconds()) / 1e3 / messages
			round.PerSecond = messages / got.Seconds
			round.P50Micros, round.P99Micros, round.LoadBusy = micros(got.P50), micros(got.P99), got.BusyShare
		} else if !round.Disturbed {
			return fmt.Errorf("%w: none at all", ErrWrong)
		}
		if !round.Disturbed {
			break
		}
	}
	c.cell.Rounds = append(c.cell.Rounds, round)
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// clocks are what the machine and the processes of a window have used. Other servers are idle then: when they are not,
// they disturb like anybody else.
type clocks struct {
	at         time.Time
	busy, ours time.Duration
}

func readClocks(c *contestant) (clocks, error) {
	return readClocksOf(c.server.PID(), c.client.PID(), os.Getpid())
}

func readClocksOf(pids ...int) (k clocks, err error) {
	for _, pid := range pids {
		used, err := procfs.CPUTime(pid)
		if err != nil {
			return k, err
		}
		k.ours += used
	}
	k.busy, err = procfs.BusyTime()
	k.at = time.Now()
	return k, err
}

// others returns what other processes have used since before, as a share of one processor.
func (k clocks) others(before clocks) float64 {
	used := (k.busy - before.busy) - (k.ours - before.ours)
	return max(0, used.Seconds()/k.at.Sub(before.at).Seconds())
}
