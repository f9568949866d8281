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
		"A ratio is now to before; below 1 is better, of messages/s above 1. **Worse** and *better* say that all rounds "+
		"agree, that is by more than the spread; ≈ is a tie all the same.\n\nRows that are worse: %d of %d.\n\n%s",
		r.Config.Against, worse, len(t.rows), &t)
}

const isWorse = " **worse**"

// verdict says whether all rounds agree in which is better.
func (m metric) verdict(s stats.Summary) string {
	switch {
	case s.N == 0 || s.Min <= 1 && s.Max >= 1:
		return ""
	case (s.Min > 1) == m.moreWins:
		return " *better*"
	}
	return isWorse
}
