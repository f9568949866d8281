//go:build linux

package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/stats"
)

// Target is what weir promises itself, and whether it holds.
type Target struct {
	Server string // which weir
	Claim  string
	Limit  float64
	Least  bool    // the value has to be at least the limit; else at most
	Value  float64 // NaN: not measured
	Where  string  // the scenario, or the worst one
}

// Measured reports whether there is a value.
func (t *Target) Measured() bool { return !math.IsNaN(t.Value) }

// Holds reports whether the target is met.
func (t *Target) Holds() bool {
	if t.Least {
		return t.Value >= t.Limit
	}
	return t.Value <= t.Limit
}

// Close reports whether the value is so near its limit that another run may say the opposite.
func (t *Target) Close() bool { return stats.Tie(t.Value / t.Limit) }

// judge collects targets for one weir.
type judge struct {
	weir     string
	outcomes []Outcome
	all      []Target
}

// Targets judges weir's transports by what was measured.
func Targets(outcomes []Outcome, crowds []Crowded) (all []Target) {
	for _, spec := range lab.Specs() {
		if !spec.Weir {
			continue
		}
		j := &judge{weir: spec.Name, outcomes: outcomes}
		j.cpu()
		j.frames()
		j.throughputAndLatency()
		j.idle(crowds)
		j.resp()
		all = append(all, j.all...)
	}
	return all
}

func (j *judge) add(t Target) {
	t.Server = j.weir
	j.all = append(j.all, t)
}

// ratios returns weir's ratios to another server in the scenarios of some groups.
func (j *judge) ratios(m metric, to func(*Outcome) string, groups ...Group) (ratios []float64, names []string) {
	for i := range j.outcomes {
		o := &j.outcomes[i]
		for _, g := range groups {
			if o.Scenario.Group != g {
				continue
			}
			if r := m.ratio(o, j.weir, to(o)); r.N > 0 {
				ratios = append(ratios, r.Median)
				names = append(names, o.Scenario.Name)
			}
		}
	}
	return ratios, names
}

func bestBy(m metric) func(*Outcome) string {
	return func(o *Outcome) string { return m.bestPeer(o, anyPeer) }
}

func server(name string) func(*Outcome) string { return func(*Outcome) string { return name } }

func (j *judge) cpu() {
	peers, _ := j.ratios(cpuMetric, bestBy(cpuMetric), Raw, Paced)
	j.add(Target{
		Claim: "raw echo, CPU per message: geometric mean against the best Go peer", Limit: 0.95,
		Value: stats.GeometricMean(peers), Where: fmt.Sprintf("%d scenarios", len(peers)),
	})
	c, _ := j.ratios(cpuMetric, server(bare), Raw, Paced)
	j.add(Target{
		Claim: "raw echo, CPU per message: geometric mean against " + bare, Limit: 1.05,
		Value: stats.GeometricMean(c), Where: fmt.Sprintf("%d scenarios", len(c)),
	})
	j.worst("CPU per message: the worst scenario against the best Go peer", cpuMetric, 1.05, Raw, Paced, Framed, Crowd,
		Unpinned)
	j.worst("churn: CPU per connection against the best Go peer", cpuMetric, 0.95, Churning)
	j.worst("proxy: CPU per message against the best Go peer", cpuMetric, 1, Proxying)
}

func (j *judge) worst(claim string, m metric, limit float64, groups ...Group) {
	ratios, names := j.ratios(m, bestBy(m), groups...)
	t := Target{Claim: claim, Limit: limit, Value: math.NaN()}
	for i, r := range ratios {
		if math.IsNaN(t.Value) || r > t.Value {
			t.Value, t.Where = r, names[i]
		}
	}
	j.add(t)
}

func (j *judge) frames() {
	plain := Target{
		Claim: "frames of 64 B, one at a time: CPU per message against weir's own raw echo", Limit: 1.10,
		Value: math.NaN(),
	}
	deep := Target{
		Claim: "frames, 16 at a time: CPU per message against the best peer's hand-written framing",
		Limit: 0.90, Value: math.NaN(),
	}
	for i := range j.outcomes {
		o := &j.outcomes[i]
		if o.Scenario.Group != Framed {
			continue
		}
		name := o.Scenario.Name
		if o.Scenario.Load.Pipeline == 1 && o.Scenario.Load.SizeBytes == 64 {
			if r := cpuMetric.ratio(o, j.weir, j.weir+rawSuffix); r.N > 0 {
				plain.Value, plain.Where = r.Median, name
			}
		}
		if o.Scenario.Load.Pipeline == 16 {
			r := cpuMetric.ratio(o, j.weir, cpuMetric.bestPeer(o, anyPeer))
			if r.N > 0 && !(r.Median <= deep.Value) {
				deep.Value, deep.Where = r.Median, name
			}
		}
	}
	j.add(plain)
	j.add(deep)
}

func (j *judge) throughputAndLatency() {
	ratios, _ := j.ratios(throughputMetric, bestBy(throughputMetric), Raw)
	j.add(Target{
		Claim: "closed loop, messages a second: geometric mean against the best Go peer", Limit: 1, Least: true,
		Value: stats.GeometricMean(ratios), Where: fmt.Sprintf("%d scenarios", len(ratios)),
	})
	j.worst("open loop, p99: the worst scenario against the best Go peer", p99Metric, 1.15, Paced)
}

func (j *judge) idle(crowds []Crowded) {
	own := Target{Claim: "idle: KiB of RSS per connection", Limit: 1.5, Value: math.NaN()}
	peer := Target{Claim: "idle: RSS per connection against the best event-loop peer", Limit: 1, Value: math.NaN()}
	wakes := Target{Claim: "idle: context switches of the loop thread a second", Limit: 1, Value: math.NaN()}
	best, bestPeer := math.NaN(), ""
	for i := range crowds {
		c := &crowds[i]
		if c.Error != "" {
			continue
		}
		if c.Server == j.weir {
			own.Value, own.Where = c.PerConn()/1024, fmt.Sprintf("%d connections", c.Conns)
			wakes.Value, wakes.Where = c.LoopSwitchesPerSecond(), fmt.Sprintf("for %.0f s", c.Seconds)
		}
		for _, spec := range lab.Specs() {
			if spec.Name == c.Server && spec.Peer && spec.Loop && !(best <= c.PerConn()) {
				best, bestPeer = c.PerConn(), c.Server
			}
		}
	}
	peer.Value, peer.Where = own.Value*1024/best, bestPeer
	j.add(own)
	j.add(peer)
	j.add(wakes)
}

func (j *judge) resp() {
	for _, depth := range []struct {
		suffix string
		limit  float64
	}{{"-P1", 0.95}, {"-P16", 0.70}} {
		t := Target{Claim: "RESP, CPU per request against Redis, " + depth.suffix[1:], Limit: depth.limit, Value: math.NaN()}
		for i := range j.outcomes {
			o := &j.outcomes[i]
			if o.Scenario.Group != respGroup || !strings.HasSuffix(o.Scenario.Name, depth.suffix) {
				continue
			}
			if r := cpuMetric.ratio(o, j.weir, redis); r.N > 0 && !(r.Median <= t.Value) {
				t.Value, t.Where = r.Median, o.Scenario.Name
			}
		}
		j.add(t)
	}
}
