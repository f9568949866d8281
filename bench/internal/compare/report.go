//go:build linux

package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/stats"
)

// Report is all that a comparison has found out.
type Report struct {
	Begun    time.Time
	Took     time.Duration
	Machine  Machine
	Config   Config
	Procs    map[string]int // GOMAXPROCS of the Go servers that have one processor
	Outcomes []Outcome
	Crowds   []Crowded
	Targets  []Target
}

// Machine is where it ran.
type Machine struct{ Kernel, CPU, Go, TCP string }

// ThisMachine describes the machine, as far as it tells.
func ThisMachine() (m Machine) {
	m.Go = runtime.Version()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range bytes.Lines(text) {
			if key, value, _ := strings.Cut(string(line), ":"); strings.TrimSpace(key) == "model name" {
				m.CPU = fmt.Sprintf("%d × %s", runtime.NumCPU(), strings.TrimSpace(value))
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		m.TCP = strings.TrimSpace(string(text))
	}
	return m
}

// Write writes report.md and report.json into dir.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r.forJSON(), "", " ")
	if err != nil {
		return fmt.Errorf("compare: report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.Markdown()), 0o644)
}

// forJSON leaves out what JSON has no words for: targets that were not measured.
func (r *Report) forJSON() Report {
	c := *r
	c.Config.Progress = nil
	c.Targets = slices.DeleteFunc(slices.Clone(r.Targets), func(t Target) bool { return !t.Measured() })
	return c
}

// Markdown returns the report as people read it.
func (r *Report) Markdown() string {
	var b strings.Builder
	r.preface(&b)
	r.targets(&b)
	r.beforeAndNow(&b)
	servers := r.servers()
	section := func(title, note string, m metric, to func(*Outcome) string, groups ...Group) {
		if t := r.ratioTable(servers, m, to, groups...); len(t.rows) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", title, note, t)
		}
	}
	messages := []Group{Raw, Paced, Framed, Churning, Crowd, Unpinned, Proxying}
	section("CPU against the best Go peer", "CPU time of the server's process per message (churn: per connection).",
		cpuMetric,
		bestBy(cpuMetric), messages...)
	section("CPU against "+bare, "The same, against the bare server in C on epoll: what this machine allows.", cpuMetric,
		server(bare), messages...)
	section("CPU against Redis",
		"CPU time of the server's process per request, under redis-benchmark with 50 connections.", cpuMetric,
		server(redis), respGroup)
	section("Throughput against the best Go peer",
		"Messages a second; above 1 is better. Where the load generator is busy all the "+
			"time (below), the differences are larger than they look.", throughputMetric, bestBy(throughputMetric),
		Raw, Framed, Churning,
		Crowd, Unpinned, Proxying)
	r.latencies(&b, servers)
	r.headroom(&b)
	r.memory(&b, servers)
	r.failures(&b)
	return b.String()
}

func (r *Report) preface(b *strings.Builder) {
	fmt.Fprintf(b, "# weir and its peers\n\n%s, %s, Linux %s, TCP %s, loopback. %d rounds of %v; began %s, took %v.\n\n",
		r.Machine.CPU, r.Machine.Go, r.Machine.Kernel, r.Machine.TCP, r.Config.Rounds, r.Config.Slice,
		r.Begun.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(time.Second))
	fmt.Fprintf(b,
		"Server on processor %d, load on processor %d (unpinned: both anywhere). A ratio is the median of the ratios of "+
			"each round, with the interval that holds it with a confidence of 95 %% (of fewer than six rounds: the "+
			"smallest and the largest). ≈ is a tie: less than %.0f %% apart. †n: n rounds were disturbed "+
			"by other processes in each of %d tries.\n", r.Config.ServerCPU, r.Config.LoadCPU, stats.TieBelow*100, maxTries)
	if len(r.Procs) > 0 {
		var chosen []string
		for _, spec := range lab.Specs() {
			if n := r.Procs[spec.Name]; n > 0 {
				chosen = append(chosen, fmt.Sprintf("%s %d", spec.Name, n))
			}
		}
		fmt.Fprintf(b, "\nGOMAXPROCS on one processor: %s.\n", strings.Join(chosen, ", "))
	}
}

func (r *Report) targets(b *strings.Builder) {
	t := table{head: []string{"server", "target", "limit", "measured", "where", "holds"}}
	for _, x := range r.Targets {
		if !x.Measured() {
			continue
		}
		holds := "**no**"
		if x.Holds() {
			holds = "yes"
		}
		if x.Close() {
			holds += " (close)"
		}
		sign := "≤ "
		if x.Least {
			sign = "≥ "
		}
		t.add(x.Server, x.Claim, sign+number(x.Limit), number(x.Value), x.Where, holds)
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(b, "\n## Targets\n\n%s", &t)
	}
}

// servers are those that took part, in the order of the tables.
func (r *Report) servers() (names []string) {
	candidates := []string{redis}
	for _, spec := range lab.Specs() {
		candidates = append(candidates, spec.Name)
		if spec.Weir {
			candidates = append(candidates, spec.Before().Name, spec.Name+rawSuffix)
		}
	}
	for _, name := range candidates {
		if slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return o.Cell(name) != nil }) {
			names = append(names, name)
		}
	}
	return names
}

func in(o *Outcome, groups []Group) bool { return slices.Contains(groups, o.Scenario.Group) }

func (r *Report) ratioTable(servers []string, m metric, to func(*Outcome) string, groups ...Group) *table {
	servers = slices.DeleteFunc(slices.Clone(servers), func(s string) bool {
		return !slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return in(&o, groups) && o.Cell(s) != nil })
	})
	t := &table{head: append([]string{"scenario", "reference"}, servers...)}
	raw := map[string][]float64{}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		reference := to(o)
		if !in(o, groups) || o.Cell(reference) == nil {
			continue
		}
		row := []string{o.Scenario.Name, reference + " " + number(m.median(o, reference)) + m.unit()}
		for _, s := range servers {
			ratio := m.ratio(o, s, reference)
			if o.Scenario.Group == Raw || o.Scenario.Group == Paced {
				raw[s] = append(raw[s], ratio.Median)
			}
			cell := ratioText(ratio)
			if c := o.Cell(s); c != nil {
				cell += mark(c)
			}
			row = append(row, cell)
		}
		t.add(row...)
	}
	if len(raw) > 0 {
		row := []string{"**geometric mean of echo and open**", ""}
		for _, s := range servers {
			row = append(row, "**"+number(stats.GeometricMean(raw[s]))+"**")
		}
		t.add(row...)
	}
	return t
}

func (m metric) unit() string {
	if m.moreWins {
		return "/s"
	}
	return " µs"
}

func (r *Report) latencies(b *strings.Builder, servers []string) {
	t := table{head: append([]string{"scenario"}, servers...)}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		row := []string{o.Scenario.Name}
		for _, s := range servers {
			c := o.Cell(s)
			if c == nil {
				row = append(row, "–")
				continue
			}
			row = append(row, number(stats.Median(c.Values(p50)))+" / "+number(stats.Median(c.Values(p99))))
		}
		t.add(row...)
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(b,
			"\n## Latency\n\np50 / p99 in µs, medians of the rounds. Open loops count from when a message was due.\n\n%s", &t)
	}
}

// headroom shows how near the load generator is to its own limit.
func (r *Report) headroom(b *strings.Builder) {
	t := table{head: []string{"scenario", bare + ", messages/s", "its CPU share", "load generator's busy share"}}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		c := o.Cell(bare)
		if c == nil || !o.Scenario.Load.Spin {
			continue
		}
		share := stats.Median(c.Values(func(r Round) float64 { return r.CPUMicros * r.PerSecond / 1e6 }))
		busy := stats.Median(c.Values(func(r Round) float64 { return r.LoadBusy }))
		t.add(o.Scenario.Name, number(stats.Median(c.Values(perSecond))), number(share), number(busy))
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(b, "\n## Head-room of the load generator\n\n"+
			"At a busy share of 1 the load generator, not the server, sets the pace.\n\n%s", &t)
	}
}

func (r *Report) memory(b *strings.Builder, servers []string) {
	t := table{head: []string{
		"server", "connections", "empty, MiB", "never used, B each", "used once, B each", "at the end, MiB",
		"loop thread, switches/s",
		"all threads, switches/s", "CPU, ms",
	}}
	for i := range r.Crowds {
		c := &r.Crowds[i]
		if c.Error != "" {
			continue
		}
		t.add(c.Server, fmt.Sprint(c.Conns), mib(c.EmptyBytes), fmt.Sprintf("%.0f", c.PerUnused()),
			fmt.Sprintf("%.0f", c.PerConn()),
			mib(c.SettledBytes), number(c.LoopSwitchesPerSecond()), number(float64(c.AllSwitches)/math.Max(c.Seconds, 1e-9)),
			number(float64(c.CPU.Microseconds())/1e3))
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(b,
			"\n## Idle connections\n\nRSS of the server's process; the kernel's part is not in it. Descriptors limit a process "+
				"to fewer than 20,000 connections. The switches were counted for %v without traffic.\n\n%s", r.Config.IdleFor, &t)
	}
	rss := table{head: append([]string{"scenario"}, servers...)}
	for i := range r.Outcomes {
		row := []string{r.Outcomes[i].Scenario.Name}
		for _, name := range servers {
			cell := "–"
			if c := r.Outcomes[i].Cell(name); c != nil {
				cell = mib(c.RSSBytes)
			}
			row = append(row, cell)
		}
		rss.add(row...)
	}
	if len(rss.rows) > 0 {
		fmt.Fprintf(b, "\n## Memory\n\nRSS in MiB after the last round.\n\n%s", &rss)
	}
}

func mib(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }

func (r *Report) failures(b *strings.Builder) {
	t := table{head: []string{"scenario", "server", "error"}}
	flat := strings.NewReplacer("\n", " ", "|", "/").Replace
	for i := range r.Outcomes {
		for _, c := range r.Outcomes[i].Cells {
			if c.Error != "" {
				t.add(r.Outcomes[i].Scenario.Name, c.Server, flat(c.Error))
			}
		}
	}
	for _, c := range r.Crowds {
		if c.Error != "" {
			t.add(idleName, c.Server, flat(c.Error))
		}
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(b, "\n## Failures\n\n%s", &t)
	}
}

// Failed reports whether any server failed in any scenario.
func (r *Report) Failed() bool {
	for i := range r.Outcomes {
		if slices.ContainsFunc(r.Outcomes[i].Cells, func(c Cell) bool { return c.Error != "" }) {
			return true
		}
	}
	return slices.ContainsFunc(r.Crowds, func(c Crowded) bool { return c.Error != "" })
}
