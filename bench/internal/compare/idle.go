//go:build linux

package compare

import (
	"context"
	"errors"
	"time"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/load"
	"github.com/weirnet/weir/bench/internal/procfs"
	"github.com/weirnet/weir/bench/internal/serve"
)

// idleName is the name of the idle scenario.
const idleName = "idle"

// Crowded is what a server needs for connections that do nothing.
type Crowded struct {
	Server string
	Error  string

	Conns          int
	EmptyBytes     int64 // RSS with one connection that was used
	ConnectedBytes int64 // RSS with all connected, of which no other one was used
	UsedBytes      int64 // RSS when each has echoed one message
	SettledBytes   int64 // RSS at the end of Seconds without any traffic

	Seconds      float64
	LoopSwitches int64         // context switches of the loop thread in that time
	AllSwitches  int64         // and of all threads
	CPU          time.Duration // and their CPU time
}

// PerConn returns the memory of one connection, which was used once, in bytes.
func (c *Crowded) PerConn() float64 { return float64(c.UsedBytes-c.EmptyBytes) / float64(c.Conns) }

// PerUnused returns the memory of one connection that was never used, in bytes.
func (c *Crowded) PerUnused() float64 {
	return float64(c.ConnectedBytes-c.EmptyBytes) / float64(c.Conns)
}

// LoopSwitchesPerSecond returns how often the loop thread woke up.
func (c *Crowded) LoopSwitchesPerSecond() float64 { return float64(c.LoopSwitches) / c.Seconds }

// Idle gives all servers their crowds, one after the other, and then watches them do nothing.
func (r *Runner) Idle(ctx context.Context) (all []Crowded, err error) {
	s := Scenario{
		Name: idleName, Mode: serve.Echo, Loops: 1,
		Load: load.Config{Kind: load.Closed, Conns: 1, SizeBytes: 64, Idle: r.cfg.Idle},
	}
	specs := r.specs(&s)
	all = make([]Crowded, len(specs))
	var running []*crowd
	defer func() {
		for _, c := range running {
			err = errors.Join(err, c.client.Stop(), c.server.Stop())
		}
	}()
	for i, spec := range specs {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		all[i] = Crowded{Server: spec.Name, Conns: r.cfg.Idle}
		r.progress("%s: %s", s.Name, spec.Name)
		c, err := r.gather(s, spec, &all[i])
		if err != nil {
			all[i].Error = err.Error()
			r.progress("%s: %s: %v", s.Name, spec.Name, err)
			continue
		}
		running = append(running, c)
	}
	return all, r.watch(ctx, running)
}

// crowd is a server with its idle connections.
type crowd struct {
	contestant
	result *Crowded
	before []procfs.Thread
}

func (r *Runner) gather(s Scenario, spec lab.Spec, result *Crowded) (c *crowd, err error) {
	server, err := lab.StartServer(r.cfg.Programs, spec, lab.Setting{Mode: s.Mode, Loops: s.Loops, CPU: r.cfg.ServerCPU})
	if err != nil {
		return nil, err
	}
	c = &crowd{contestant: contestant{server: server}, result: result}
	defer func() {
		if err != nil {
			if c.client != nil {
				err = errors.Join(err, c.client.Stop())
			}
			err = errors.Join(err, server.Stop())
		}
	}()
	s.Load.Address, s.Load.ServerPID = server.Address, server.PID()
	if err := r.useOnce(s); err != nil {
		return nil, err
	}
	if result.EmptyBytes, err = procfs.RSSBytes(server.PID()); err != nil {
		return nil, err
	}
	if c.client, err = lab.StartClient(r.cfg.Programs, r.cfg.LoadCPU, s.Load); err != nil {
		return nil, err
	}
	// The first slice comes behind all connections in the listener's queue: when it is answered, they are accepted.
	if _, err := c.client.Slice(0, 100*time.Millisecond); err != nil {
		return nil, err
	}
	if result.ConnectedBytes, err = procfs.RSSBytes(server.PID()); err != nil {
		return nil, err
	}
	if err := c.client.Touch(); err != nil {
		return nil, err
	}
	result.UsedBytes, err = procfs.RSSBytes(server.PID())
	return c, err
}

// useOnce lets a server work for a moment, so that what it makes once is not taken for what it needs per connection.
func (r *Runner) useOnce(s Scenario) error {
	s.Load.Idle = 0
	client, err := lab.StartClient(r.cfg.Programs, r.cfg.LoadCPU, s.Load)
	if err != nil {
		return err
	}
	_, err = client.Slice(0, 100*time.Millisecond)
	return errors.Join(err, client.Stop())
}

// watch counts what the servers do while nothing happens.
func (r *Runner) watch(ctx context.Context, running []*crowd) (err error) {
	settle := time.NewTimer(time.Second)
	defer settle.Stop()
	select {
	case <-settle.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	begin := time.Now()
	for _, c := range running {
		if c.before, err = procfs.Threads(c.server.PID()); err != nil {
			return err
		}
	}
	r.progress("%s: for %v", idleName, r.cfg.IdleFor)
	window := time.NewTimer(r.cfg.IdleFor)
	defer window.Stop()
	select {
	case <-window.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, c := range running {
		after, err := procfs.Threads(c.server.PID())
		if err != nil {
			return err
		}
		c.result.Seconds = time.Since(begin).Seconds()
		c.result.compare(c.before, after)
		if c.result.SettledBytes, err = procfs.RSSBytes(c.server.PID()); err != nil {
			return err
		}
	}
	return nil
}

// compare takes for the loop thread the one that had used most CPU time.
func (c *Crowded) compare(before, after []procfs.Thread) {
	var loop procfs.Thread
	then := map[int]procfs.Thread{}
	for _, t := range before {
		then[t.ID] = t
		if t.CPU > loop.CPU {
			loop = t
		}
	}
	for _, t := range after {
		switches := t.Switches - then[t.ID].Switches
		c.AllSwitches += switches
		c.CPU += t.CPU - then[t.ID].CPU
		if t.ID == loop.ID {
			c.LoopSwitches = switches
		}
	}
}
