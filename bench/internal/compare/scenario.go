//go:build linux

// Package compare runs servers side by side under the same load and tells how they compare.
package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/bench/internal/load"
	"github.com/weirnet/weir/bench/internal/serve"
)

// Group is what a scenario is about; tables and targets go by it.
type Group string

// The groups.
const (
	Raw      Group = "raw"      // raw echo, closed loop
	Paced    Group = "paced"    // raw echo, open loop
	Framed   Group = "framed"   // frames
	Churning Group = "churn"    // connections
	Crowd    Group = "crowd"    // many idle connections beside
	Unpinned Group = "unpinned" // raw echo, two loops on all processors
	Proxying Group = "proxy"
)

// Scenario is a load and what serves it.
type Scenario struct {
	Name  string
	Group Group
	Load  load.Config // Address and ServerPID apart
	Mode  string
	Loops int
	Quick bool // part of a quick run
}

// flightAtOnce is how many bytes may be on their way for windows of the usual length.
const flightAtOnce = 64 << 20

// Stretch is by how much windows have to be longer: a message has to take much less time than a window does.
func (s *Scenario) Stretch() time.Duration {
	if s.Load.Conns*max(s.Load.Pipeline, 1)*s.Load.SizeBytes > flightAtOnce {
		return 4
	}
	return 1
}

// lightRounds is how many times the rounds of a quick run are run where the load is light: there, a window holds few
// messages, and rounds differ by more than the 5 % that they are to tell.
const lightRounds = 3

// Rounds is in how many rounds the scenario runs.
func (s *Scenario) Rounds(cfg *Config) int {
	light := s.Group == Paced || s.Load.Kind == load.Closed && s.Load.Conns*max(s.Load.Pipeline, 1) == 1 ||
		s.Group == respGroup && strings.HasSuffix(s.Name, "-P1")
	if cfg.Quick && light {
		return lightRounds * cfg.Rounds
	}
	return cfg.Rounds
}

// Pinned reports whether the server has one processor for itself and the load generator another.
func (s *Scenario) Pinned() bool { return s.Group != Unpinned }

// Scenarios are all scenarios of the comparison whose load generator is ours.
func Scenarios() []Scenario {
	var all []Scenario
	for _, conns := range []int{1, 64, 1000} {
		for _, size := range []int{64, 1 << 10, 16 << 10} {
			for _, depth := range []int{1, 16} {
				all = append(all, closedScenario(Raw, "echo", conns, size, depth))
			}
		}
	}
	for _, rate := range []int{20_000, 60_000} {
		for _, conns := range []int{64, 1000} {
			all = append(all, Scenario{
				Name: fmt.Sprintf("open-%dc-%dk", conns, rate/1000), Group: Paced, Mode: serve.Echo, Loops: 1,
				Load: load.Config{Kind: load.Open, Conns: conns, SizeBytes: 64, Rate: float64(rate), Spin: true},
			})
		}
	}
	for _, size := range []int{64, 1 << 10} {
		for _, depth := range []int{1, 16} {
			s := closedScenario(Framed, "framed", 64, size, depth)
			s.Mode, s.Load.Framed = serve.Frames, true
			all = append(all, s)
		}
	}
	for _, conns := range []int{1, 32} {
		all = append(all, Scenario{
			Name: fmt.Sprintf("churn-%d", conns), Group: Churning, Mode: serve.Echo, Loops: 1,
			Load: load.Config{Kind: load.Churn, Conns: conns, SizeBytes: 64, Spin: true},
		})
	}
	crowd := closedScenario(Crowd, "crowd", 1000, 64, 1)
	crowd.Name, crowd.Load.Idle = "crowd-1000-of-10000", 9000
	all = append(all, crowd)
	for _, s := range []Scenario{
		closedScenario(Unpinned, "unpinned", 64, 64, 1), closedScenario(Unpinned, "unpinned", 64, 1<<10, 1),
		closedScenario(Unpinned, "unpinned", 64, 64, 16), closedScenario(Unpinned, "unpinned", 1000, 64, 1),
	} {
		s.Loops, s.Load.Spin = 2, false // a spinning client would leave but one processor
		all = append(all, s)
	}
	for _, s := range []Scenario{
		closedScenario(Proxying, "proxy", 64, 1<<10, 1), closedScenario(Proxying, "proxy", 16, 16<<10, 16),
	} {
		s.Mode, s.Load.Spin = serve.Proxy, false // the backend needs the client's processor
		all = append(all, s)
	}
	markQuick(all)
	return all
}

func closedScenario(group Group, prefix string, conns, size, depth int) Scenario {
	return Scenario{
		Name:  fmt.Sprintf("%s-%dc-%s-d%d", prefix, conns, sizeName(size), depth),
		Group: group, Mode: serve.Echo, Loops: 1,
		Load: load.Config{Kind: load.Closed, Conns: conns, SizeBytes: size, Pipeline: depth, Spin: true},
	}
}

func sizeName(n int) string {
	if n >= 1<<10 {
		return strconv.Itoa(n>>10) + "K"
	}
	return strconv.Itoa(n) + "B"
}

func markQuick(all []Scenario) {
	quick := []string{
		"echo-1c-64B-d1", "echo-64c-64B-d1", "echo-64c-64B-d16", "echo-1000c-64B-d1", "open-64c-20k", "framed-64c-64B-d1",
		"framed-64c-64B-d16", "churn-32", "proxy-16c-16K-d16",
	}
	for i := range all {
		all[i].Quick = slices.Contains(quick, all[i].Name)
	}
}

// matches reports whether a name is asked for by a comma-separated list of parts of names; an empty list asks for all.
func matches(name, parts string) bool {
	if parts == "" {
		return true
	}
	return slices.ContainsFunc(strings.Split(parts, ","), func(part string) bool {
		return part != "" && strings.Contains(name, part)
	})
}
