//go:build linux

package compare

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/stats"
)

// beforeAndNow compares weir with the weir of another checkout, scenario by scenario.
func (r *Report) beforeAndNow(b *strings.Builder) {
	t := table{head: []string{"scenario", "server", "before, µs", "now, µs", "CPU", "messages/s", "p99"}}
	worse := 0
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		for _, spec := range lab.Specs() {
			before := spec.Before().Name
			if !spec.Weir || o.Cell(spec.Name) == nil || o.Cell(before) == nil {
				continue
			}
			cpu := cpuMetric.ratio(o, spec.Name, before)
			rate := throughputMetric.ratio(o, spec.Name, before)
			if cpuMetric.verdict(cpu) == isWorse || throughputMetric.verdict(rate) == isWorse {
				worse++
			}
			t.add(o.Scenario.Name, spec.Name+mark(o.Cell(spec.Name))+mark(o.Cell(before)),
				number(cpuMetric.median(o, before)), number(cpuMetric.median(o, spec.Name)),
				ratioText(cpu)+cpuMetric.verdict(cpu), ratioText(rate)+throughputMetric.verdict(rate),
				ratioText(p99Metric.ratio(o, spec.Name, before)))
		}
	}
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Before and now\n\n"+
		"The weir of %s is *before*. CPU is the time of the server's process per message. "+
		"A ratio is now to before; below 1 is better, of messages/s above 1. **Worse** and *better* say that the whole "+
		"interval is on one side of 1; ≈ is a tie all the same. *Can't tell*: the interval holds 1 and reaches 5 %% to a "+
		"side, so that more rounds are needed.\n\nRows that are worse: %d of %d.\n\n%s",
		r.Config.Against, worse, len(t.rows), &t)
}

const isWorse = " **worse**"

const cannotTell = " *can't tell*"

// verdict says which is better, when the rounds tell that.
func (m metric) verdict(s stats.Summary) string {
	switch {
	case s.N == 0:
		return ""
	case s.Low <= 1 && s.High >= 1:
		if stats.Tie(s.Low) && stats.Tie(s.High) {
			return ""
		}
		return cannotTell
	case (s.Low > 1) == m.moreWins:
		return " *better*"
	}
	return isWorse
}
