//go:build linux

package compare

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/procfs"
)

const (
	respConns    = 50
	startTimeout = 10 * time.Second
	redis        = "redis"
	// calibrating is how many requests find out how fast a server is.
	calibrating            = 20_000
	minRequests            = 5_000
	maxRequests            = 2_000_000
	latencyP50, latencyP99 = 4, 6 // columns of redis-benchmark --csv
)

// respLoad is a load of redis-benchmark.
type respLoad struct {
	command string
	depth   int // requests in flight on each connection
}

func (l respLoad) name() string { return fmt.Sprintf("resp-%s-P%d", l.command, l.depth) }

// respScenarios are set first, so that there is something to get.
var respScenarios = []respLoad{{"set", 1}, {"set", 16}, {"get", 1}, {"get", 16}}

// respServer is a running server of the Redis protocol.
type respServer struct {
	*lab.Process
	name string
	port int
	cell *Cell
	size int // requests of a slice
}

// Resp compares weir's example of a Redis server with Redis, under redis-benchmark. Without Redis on this machine it
// answers nothing.
func (r *Runner) Resp(ctx context.Context) (all []Outcome, err error) {
	for _, program := range []string{"redis-server", "redis-benchmark"} {
		if _, err := exec.LookPath(program); err != nil {
			r.progress("resp: left out: %v", err)
			return nil, nil
		}
	}
	wanted := func(l respLoad) bool { return matches(l.name(), r.cfg.Scenario) }
	if !slices.ContainsFunc(respScenarios, wanted) {
		return nil, nil
	}
	servers, err := r.startResp()
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Terminate())
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, what := range respScenarios {
		if !wanted(what) {
			continue
		}
		r.progress("%s", what.name())
		o, err := r.respScenario(ctx, what, servers)
		all = append(all, o)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (r *Runner) startResp() (servers []*respServer, err error) {
	specs := []lab.Spec{{Name: redis}}
	for _, kind := range []string{"uring", "epoll"} {
		spec := lab.Spec{
			Name: "weir-" + kind, Program: "resp", Args: []string{"-transport", kind}, Procs: cmp.Or(r.procs["weir-"+kind], 2),
		}
		specs = append(specs, spec)
		if r.cfg.Against != "" {
			specs = append(specs, spec.Before())
		}
	}
	for _, spec := range specs {
		port, err := freePort()
		if err != nil {
			return servers, err
		}
		var p *lab.Process
		if spec.Program == "" {
			p, err = lab.Start(spec.Name, r.cfg.ServerCPU, nil, "redis-server", "--bind", "127.0.0.1",
				"--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--daemonize", "no")
		} else {
			args := append([]string{"-addr", "127.0.0.1:" + strconv.Itoa(port), "-loops", "1"}, spec.Args...)
			p, err = lab.Start(spec.Name, r.cfg.ServerCPU, []string{"GOMAXPROCS=" + strconv.Itoa(spec.Procs)},
				filepath.Join(r.cfg.Programs, spec.Program), args...)
		}
		if err != nil {
			return servers, err
		}
		servers = append(servers, &respServer{Process: p, name: spec.Name, port: port})
		if err := answers(port); err != nil {
			return servers, fmt.Errorf("compare: %s: %w", spec.Name, err)
		}
	}
	return servers, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// answers waits until a port accepts connections.
func answers(port int) error {
	deadline := time.Now().Add(startTimeout)
	for {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			return c.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *Runner) respScenario(ctx context.Context, what respLoad, servers []*respServer) (o Outcome, err error) {
	o = Outcome{Scenario: Scenario{Name: what.name(), Group: respGroup}, Cells: make([]Cell, len(servers))}
	for i, s := range servers {
		s.cell = &o.Cells[i]
		s.cell.Server = s.name
		s.size = calibrating
		first, err := r.benchmark(ctx, s, what) // also fills the store
		if err != nil {
			return o, err
		}
		s.size = min(max(int(first.PerSecond*r.cfg.Slice.Seconds()), minRequests), maxRequests)
	}
	for i := range o.Scenario.Rounds(&r.cfg) {
		for j := range servers {
			s := servers[j]
			if i%2 == 1 {
				s = servers[len(servers)-1-j]
			}
			round, err := r.benchmark(ctx, s, what)
			if err != nil {
				return o, err
			}
			s.cell.Rounds = append(s.cell.Rounds, round)
		}
	}
	for _, s := range servers {
		if s.cell.RSSBytes, err = procfs.RSSBytes(s.PID()); err != nil {
			return o, err
		}
	}
	return o, nil
}

// respGroup is the group of the Redis scenarios.
const respGroup Group = "resp"

// benchmark runs redis-benchmark once, again when it was disturbed.
func (r *Runner) benchmark(ctx context.Context, s *respServer, what respLoad) (round Round, err error) {
	for tries := 1; tries <= maxTries; tries++ {
		before, err := readClocksOf(s.PID())
		if err != nil {
			return round, err
		}
		client, out, err := r.redisBenchmark(ctx, s, what)
		if err != nil {
			return round, err
		}
		after, err := readClocksOf(s.PID())
		if err != nil {
			return round, err
		}
		if round, err = parseRedisBenchmark(out); err != nil {
			return round, err
		}
		round.CPUMicros = float64((after.ours - before.ours).Nanoseconds()) / 1e3 / float64(s.size)
		round.Tries = tries
		after.ours += client
		round.Others = after.others(before)
		if round.Disturbed = round.Others > disturbedAbove; !round.Disturbed {
			break
		}
	}
	return round, nil
}

// redisBenchmark returns the CPU time that redis-benchmark used, and what it printed.
func (r *Runner) redisBenchmark(ctx context.Context, s *respServer, what respLoad) (time.Duration, string, error) {
	cmd := exec.CommandContext(ctx, "redis-benchmark", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-c",
		strconv.Itoa(respConns), "-t", what.command, "-P", strconv.Itoa(what.depth), "-n", strconv.Itoa(s.size), "--csv")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := lab.Pinned(r.cfg.LoadCPU, cmd.Start); err != nil {
		return 0, "", fmt.Errorf("compare: redis-benchmark: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return 0, "", fmt.Errorf("compare: redis-benchmark: %w", err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), out.String(), nil
}

// parseRedisBenchmark reads what redis-benchmark --csv prints for one test: a line of column names, and one of values.
func parseRedisBenchmark(out string) (round Round, err error) {
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[1]) <= latencyP99 {
		return round, fmt.Errorf("compare: redis-benchmark printed %q: %w", out, errors.Join(err, ErrWrong))
	}
	values := make([]float64, len(rows[1]))
	for i, text := range rows[1][1:] {
		if values[i+1], err = strconv.ParseFloat(text, 64); err != nil {
			return round, fmt.Errorf("compare: redis-benchmark printed %q: %w", out, err)
		}
	}
	return Round{PerSecond: values[1], P50Micros: values[latencyP50] * 1e3, P99Micros: values[latencyP99] * 1e3}, nil
}
