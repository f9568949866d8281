//go:build linux

package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/procfs"
	"github.com/weirnet/weir/bench/internal/stats"
)

func TestAQuickComparisonOfTwoServersWritesItsReport(t *testing.T) {
	needPrograms(t)
	if runtime.NumCPU() < 2 {
		t.Skip("it takes two processors")
	}
	require.NoError(t, lab.BuildBefore(context.Background(), "../../..", programs))
	var progress bytes.Buffer
	report, err := Run(context.Background(), Config{
		Programs: programs, Quick: true, Rounds: 2, Slice: 20 * time.Millisecond, WarmUp: 5 * time.Millisecond,
		Servers: "weir-epoll,gnet", Against: "the same",
		Scenario: "echo-64c-64B-d1,framed-64c-64B-d16,churn-1,open-64c-20k,unpinned-64c-64B-d1,idle", Procs: 1,
		Idle: 50, IdleFor: 50 * time.Millisecond, ServerCPU: 0, LoadCPU: 1, Progress: &progress,
	})
	require.NoError(t, err, progress.String())
	dir := filepath.Join(t.TempDir(), "new", "folder")
	require.NoError(t, report.Write(dir))
	markdown, err := os.ReadFile(filepath.Join(dir, "report.md"))
	require.NoError(t, err)
	for _, want := range []string{
		"echo-64c-64B-d1", "## Targets", "## Idle connections", "weir-epoll-raw", "The weir of the same is",
		"GOMAXPROCS on one processor: weir-epoll 1",
	} {
		assert.Contains(t, string(markdown), want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	var read Report
	require.NoError(t, json.Unmarshal(text, &read))
	require.False(t, read.Failed(), progress.String())
	names := []string{}
	for _, o := range read.Outcomes {
		names = append(names, o.Scenario.Name)
		for _, c := range o.Cells {
			require.Len(t, c.Rounds, o.Scenario.Rounds(&report.Config), "%s %s", o.Scenario.Name, c.Server)
			assert.GreaterOrEqual(t, c.Rounds[0].PerSecond, 0.0)
			assert.Positive(t, c.RSSBytes)
		}
	}
	// Names are matched by parts, so the deep one is there, too.
	assert.Contains(t, names, "churn-1")
	assert.Len(t, read.Crowds, 3)
	for _, c := range read.Crowds {
		assert.Positive(t, c.UsedBytes)
		assert.Positive(t, c.Seconds)
	}
}

func TestWorseIsWhatIsWorseByMoreThanItsInterval(t *testing.T) {
	o := made("worse", Raw, map[string][]float64{"weir-uring": {11, 12}, "weir-uring-before": {10, 10}})
	p := made("within its spread", Raw, map[string][]float64{"weir-uring": {11, 10}, "weir-uring-before": {10, 10}})
	q := made("better", Raw, map[string][]float64{"weir-epoll": {9, 9.9}, "weir-epoll-before": {10, 10}, "net": {1}})
	r := Report{Outcomes: []Outcome{o, p, q}, Config: Config{Against: "1234567"}}
	text := r.Markdown()
	assert.Contains(t, text, "The weir of 1234567 is")
	assert.Contains(t, text, "Rows that are worse: 1 of 3.")
	assert.Contains(t, text,
		"| worse | weir-uring | 10.0 | 11.5 | 1.15 (1.10–1.20) **worse** | 0.87 (0.83–0.91) **worse** |")
	assert.Contains(t, text,
		"| within its spread | weir-uring | 10.0 | 10.5 | 1.05 (1.00–1.10) *can't tell* | ≈ 0.95 (0.91–1.00) *can't tell* |")
	assert.Contains(t, text,
		"| better | weir-epoll | 10.0 | 9.45 | 0.95 (0.90–0.99) *better* | 1.06 (1.01–1.11) *better* |")
	r.Config.Against, r.Outcomes = "", r.Outcomes[:0]
	assert.NotContains(t, r.Markdown(), "Before and now")
}

func TestTuningChoosesForEveryGoServer(t *testing.T) {
	needPrograms(t)
	r := NewRunner(Config{
		Programs: programs, Rounds: 1, Slice: 20 * time.Millisecond, Servers: "nbio,c-epoll", LoadCPU: 1,
		Progress: &bytes.Buffer{},
	})
	procs, err := r.Tune(context.Background())
	require.NoError(t, err)
	require.Len(t, procs, 1)
	assert.Contains(t, []int{1, 2}, procs["nbio"])
}

// made returns an outcome whose rounds need so much CPU time.
func made(name string, group Group, cpu map[string][]float64) Outcome {
	o := Outcome{Scenario: Scenario{Name: name, Group: group}}
	for server, values := range cpu {
		c := Cell{Server: server}
		for _, v := range values {
			c.Rounds = append(c.Rounds, Round{CPUMicros: v, PerSecond: 1e6 / v, P99Micros: 10 * v})
		}
		o.Cells = append(o.Cells, c)
	}
	return o
}

func find(t *testing.T, all []Target, server, claim string) Target {
	t.Helper()
	for _, x := range all {
		if x.Server == server && strings.Contains(x.Claim, claim) {
			return x
		}
	}
	t.Fatalf("no target %q", claim)
	return Target{}
}

func TestTargetsAreJudgedAgainstTheBestPeer(t *testing.T) {
	outcomes := []Outcome{
		made("a", Raw, map[string][]float64{"weir-uring": {8, 4}, "gnet": {10, 5}, "net": {20, 20}, "c-epoll": {8, 4}}),
		made("b", Raw, map[string][]float64{"weir-uring": {10}, "gnet": {20}, "net": {8}, "c-epoll": {10}}),
		made("c", Churning, map[string][]float64{"weir-uring": {9}, "netpoll": {10}}),
	}
	all := Targets(outcomes, nil)
	mean := find(t, all, "weir-uring", "raw echo, CPU per message: geometric mean against the best")
	assert.InDelta(t, math.Sqrt(0.8*1.25), mean.Value, 1e-9, "gnet is the best in a, net in b")
	assert.False(t, mean.Holds())
	bare := find(t, all, "weir-uring", "against c-epoll")
	assert.InDelta(t, 1, bare.Value, 1e-9)
	assert.True(t, bare.Holds())
	worst := find(t, all, "weir-uring", "worst scenario")
	assert.InDelta(t, 1.25, worst.Value, 1e-9)
	assert.Equal(t, "b", worst.Where)
	churn := find(t, all, "weir-uring", "churn")
	assert.True(t, churn.Holds())
	assert.False(t, churn.Close(), "0.90 of 0.95 is just not a tie")
	throughput := find(t, all, "weir-uring", "messages a second")
	assert.True(t, throughput.Least)
	assert.InDelta(t, math.Sqrt(1.25*0.8), throughput.Value, 1e-9)
	notMeasured := find(t, all, "weir-epoll", "churn")
	assert.False(t, notMeasured.Measured())
	assert.False(t, notMeasured.Holds())
}

func TestFramesAreJudgedAgainstRawEchoOfTheSameRun(t *testing.T) {
	flat := made("framed", Framed, map[string][]float64{"weir-epoll": {11}, "weir-epoll-raw": {10}, "gnet": {20}})
	flat.Scenario.Load.Pipeline, flat.Scenario.Load.SizeBytes = 1, 64
	deep := made("framed deep", Framed, map[string][]float64{"weir-epoll": {18}, "gnet": {20}, "net": {30}})
	deep.Scenario.Load.Pipeline, deep.Scenario.Load.SizeBytes = 16, 64
	all := Targets([]Outcome{flat, deep}, nil)
	assert.InDelta(t, 1.1, find(t, all, "weir-epoll", "own raw echo").Value, 1e-9)
	assert.InDelta(t, 0.9, find(t, all, "weir-epoll", "hand-written").Value, 1e-9)
}

func TestIdleIsJudgedAgainstEventLoopsOnly(t *testing.T) {
	crowds := []Crowded{
		{Server: "weir-uring", Conns: 100, EmptyBytes: 1 << 20, UsedBytes: 1<<20 + 100<<10, Seconds: 10, LoopSwitches: 5},
		{Server: "nbio", Conns: 100, UsedBytes: 200 << 10},
		{Server: "net", Conns: 100, UsedBytes: 50 << 10},
		{Server: "gnet", Conns: 100, Error: "failed"},
	}
	all := Targets(nil, crowds)
	assert.InDelta(t, 1, find(t, all, "weir-uring", "KiB of RSS").Value, 1e-9)
	peer := find(t, all, "weir-uring", "best event-loop peer")
	assert.InDelta(t, 0.5, peer.Value, 1e-9)
	assert.Equal(t, "nbio", peer.Where)
	assert.InDelta(t, 0.5, find(t, all, "weir-uring", "switches").Value, 1e-9)
}

func TestTheLoopThreadIsTheOneThatHasWorked(t *testing.T) {
	var c Crowded
	c.compare(
		[]procfs.Thread{{ID: 1, CPU: 5, Switches: 10}, {ID: 2, CPU: 50, Switches: 100}},
		[]procfs.Thread{{ID: 1, CPU: 6, Switches: 17}, {ID: 2, CPU: 51, Switches: 103}, {ID: 3, CPU: 1, Switches: 1}},
	)
	assert.EqualValues(t, 3, c.LoopSwitches)
	assert.EqualValues(t, 11, c.AllSwitches)
	assert.EqualValues(t, 3, c.CPU)
}

func TestReportMarksTiesAndDisturbedRounds(t *testing.T) {
	o := made("echo", Raw, map[string][]float64{"weir-uring": {10.2, 10.2}, "gnet": {10, 10}})
	o.Cell("weir-uring").Rounds[1].Disturbed = true
	r := Report{Outcomes: []Outcome{o}}
	assert.Contains(t, r.Markdown(), "≈ 1.02 (1.02–1.02) †1")
	assert.NotContains(t, r.Markdown(), "## Failures")
	r.Outcomes[0].Cells[0].Error = "a | b\nc"
	assert.Contains(t, r.Markdown(), "a / b c")
	assert.True(t, r.Failed())
}

func TestARoundWithoutMessagesSaysNothing(t *testing.T) {
	o := made("a", Raw, map[string][]float64{"weir-uring": {5, 1, 5}, "gnet": {10, 10, 10}})
	o.Cell("weir-uring").Rounds[1] = Round{Disturbed: true}
	r := cpuMetric.ratio(&o, "weir-uring", "gnet")
	assert.Equal(t, 2, r.N)
	assert.InDelta(t, 0.5, r.Min, 1e-9)
}

func TestOtherProcessesAreWhatIsNotOurs(t *testing.T) {
	now := time.Now()
	before := clocks{at: now, busy: 10 * time.Second, ours: 4 * time.Second}
	after := clocks{at: now.Add(time.Second), busy: 12 * time.Second, ours: 5500 * time.Millisecond}
	assert.InDelta(t, 0.5, after.others(before), 1e-9)
	after.ours += time.Second
	assert.Zero(t, after.others(before), "clocks of different kinds may disagree a little")
}

func TestScenarioNamesAreUniqueAndQuickOnesExist(t *testing.T) {
	seen := map[string]bool{}
	quick := 0
	for _, name := range Names() {
		assert.False(t, seen[name], name)
		seen[name] = true
	}
	for _, s := range Scenarios() {
		if s.Quick {
			quick++
		}
	}
	assert.Equal(t, 9, quick, "every name in markQuick is a scenario")
	assert.True(t, matches("echo-64c", "") && matches("echo-64c", "x,64c") && !matches("echo-64c", "x,"))
}

func TestWindowsAreLongerWhereMuchIsOnItsWay(t *testing.T) {
	for _, s := range Scenarios() {
		assert.Equal(t, s.Name == "echo-1000c-16K-d16", s.Stretch() > 1, s.Name)
	}
}

func TestRedisBenchmarkOutput(t *testing.T) {
	const head = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",` +
		`"p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"
	got, err := parseRedisBenchmark(head + `"SET","98765.43","0.262","0.112","0.263","0.303","0.391","1.487"` + "\n")
	require.NoError(t, err)
	assert.Equal(t, Round{PerSecond: 98765.43, P50Micros: 263, P99Micros: 391}, got)
	for _, bad := range []string{"", head, head + `"SET","x","1","1","1","1","1","1"`, head + `"SET","1"`} {
		_, err := parseRedisBenchmark(bad)
		assert.Error(t, err, "%q", bad)
	}
}

func TestSpecsHaveDifferentNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range lab.Specs() {
		assert.False(t, seen[s.Name], s.Name)
		seen[s.Name] = true
	}
}

func TestAVerdictIsTheIntervals(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0.96, 1.04, ""},
		{0.94, 1.04, cannotTell},
		{0.96, 1.06, cannotTell},
		{1, 1.06, cannotTell},
		{1.001, 1.06, isWorse},
		{0.9, 0.999, " *better*"},
	} {
		assert.Equal(t, c.want, cpuMetric.verdict(stats.Summary{Low: c.low, High: c.high, N: 6}), "%v", c)
	}
	assert.Empty(t, cpuMetric.verdict(stats.Summarize(nil)))
}

func TestLightLoadsGetMoreRoundsInAQuickRun(t *testing.T) {
	light := []string{}
	for _, s := range Scenarios() {
		if s.Quick && s.Rounds(&Config{Quick: true, Rounds: 5}) == 15 {
			light = append(light, s.Name)
		}
		assert.Equal(t, 7, s.Rounds(&Config{Rounds: 7}), s.Name)
	}
	assert.Equal(t, []string{"echo-1c-64B-d1", "open-64c-20k"}, light)
}
