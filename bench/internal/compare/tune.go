//go:build linux

package compare

import (
	"context"
	"strconv"
	"strings"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/stats"
)

// tuningScenarios are those by which GOMAXPROCS is chosen: a busy server, and one that often has nothing to do.
const tuningScenarios = "echo-64c-64B-d1,open-64c-20k"

// Tune finds out with which GOMAXPROCS, 1 or 2, each Go server that shares one processor needs the least CPU time, and
// uses that from then on. It returns the choice.
func (r *Runner) Tune(ctx context.Context) (map[string]int, error) {
	var specs []lab.Spec
	for _, spec := range lab.Specs() {
		if !spec.Go || !matches(spec.Name, r.cfg.Servers) {
			continue
		}
		if r.cfg.Procs != 0 {
			r.procs[spec.Name] = r.cfg.Procs
			continue
		}
		for procs := 1; procs <= 2; procs++ {
			tuned := spec
			tuned.Procs = procs
			tuned.Name += "/" + strconv.Itoa(procs)
			specs = append(specs, tuned)
		}
	}
	if len(specs) == 0 {
		return r.procs, nil
	}
	cost := map[string][]float64{}
	for _, s := range Scenarios() {
		if !strings.Contains(","+tuningScenarios+",", ","+s.Name+",") {
			continue
		}
		r.progress("GOMAXPROCS by %s", s.Name)
		o, err := r.run(ctx, s, specs, max(2, r.cfg.Rounds/2))
		if err != nil {
			return nil, err
		}
		for i := range o.Cells {
			if c := &o.Cells[i]; c.Error == "" {
				cost[c.Server] = append(cost[c.Server], stats.Median(c.Values(cpu)))
			}
		}
	}
	for _, spec := range lab.Specs() {
		one, two := cost[spec.Name+"/1"], cost[spec.Name+"/2"]
		if len(one) == 0 || len(two) == 0 {
			continue
		}
		r.procs[spec.Name] = 1
		if stats.GeometricMean(two) < stats.GeometricMean(one) {
			r.procs[spec.Name] = 2
		}
	}
	return r.procs, nil
}

func cpu(r Round) float64 { return r.CPUMicros }

func perSecond(r Round) float64 { return r.PerSecond }

func p99(r Round) float64 { return r.P99Micros }

func p50(r Round) float64 { return r.P50Micros }
