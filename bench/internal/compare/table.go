//go:build linux

package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/stats"
)

// metric is what servers are compared by.
type metric struct {
	of       func(Round) float64
	moreWins bool
}

var (
	cpuMetric        = metric{of: cpu}
	throughputMetric = metric{of: perSecond, moreWins: true}
	p99Metric        = metric{of: p99}
)

// ratio returns the ratios of two servers, round by round.
func (m metric) ratio(o *Outcome, server, to string) stats.Summary {
	a, b := o.Cell(server), o.Cell(to)
	if a == nil || b == nil {
		return stats.Summarize(nil)
	}
	return stats.Summarize(stats.Ratios(a.Values(m.of), b.Values(m.of)))
}

// median returns the median over the rounds of one server, NaN without any.
func (m metric) median(o *Outcome, server string) float64 {
	if c := o.Cell(server); c != nil {
		return stats.Median(c.Values(m.of))
	}
	return math.NaN()
}

// bestPeer returns the peer with the best median, "" when there is none.
func (m metric) bestPeer(o *Outcome, among func(lab.Spec) bool) (best string) {
	value := math.NaN()
	for _, spec := range lab.Specs() {
		if !spec.Peer || !among(spec) {
			continue
		}
		v := m.median(o, spec.Name)
		if math.IsNaN(v) {
			continue
		}
		if best == "" || v < value != m.moreWins && v != value {
			best, value = spec.Name, v
		}
	}
	return best
}

func anyPeer(lab.Spec) bool { return true }

// table is a Markdown table.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// number shows three digits that matter.
func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case math.Abs(x) >= 100:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 10:
		return fmt.Sprintf("%.1f", x)
	case math.Abs(x) >= 1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// ratioText shows a ratio with its interval; ≈ says that it is a tie.
func ratioText(s stats.Summary) string {
	if s.N == 0 {
		return "–"
	}
	tie := ""
	if stats.Tie(s.Median) {
		tie = "≈ "
	}
	return fmt.Sprintf("%s%.2f (%.2f–%.2f)", tie, s.Median, s.Low, s.High)
}

// mark shows how many rounds of a cell were disturbed.
func mark(c *Cell) string {
	n := 0
	for _, r := range c.Rounds {
		if r.Disturbed {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" †%d", n)
}
