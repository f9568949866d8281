// Profile runs one server under one load of the comparison and keeps its CPU profile.
//
//	go run ./cmd/profile -server weir-uring -scenario echo-64c-64B-d1 -out results    # pprof: the Go side
//	go run ./cmd/profile -server weir-uring -scenario echo-64c-64B-d1 -perf # kernel and Go (Debian: linux-perf)
//
// Then: go tool pprof -top results/weir results/weir-uring.pprof, or perf report -i results/weir-uring.perf.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weirnet/weir/bench/internal/compare"
	"github.com/weirnet/weir/bench/internal/lab"
	"github.com/weirnet/weir/bench/internal/serve"
)

// loadCPU is the processor of the load generator; the server has processor 0.
const loadCPU = 1

var errNoSuch = errors.New("profile: no such thing")

func main() {
	server := flag.String("server", "weir-uring", "one of the servers (compare -list)")
	scenario := flag.String("scenario", "echo-64c-64B-d1", "one of the scenarios (compare -list), but for resp and idle")
	window := flag.Duration("window", 5*time.Second, "how long to measure")
	perf := flag.Bool("perf", false, "use perf record instead of Go's profiler")
	root := flag.String("root", ".", "directory of the bench")
	out := flag.String("out", "results", "directory for the profile and the programs")
	flag.Parse()
	if err := run(*server, *scenario, *window, *perf, *root, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(server, scenario string, window time.Duration, perf bool, root, out string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	spec, s, err := find(server, scenario)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := lab.Build(ctx, root, out); err != nil {
		return err
	}
	at := lab.Setting{Mode: s.Mode, Loops: s.Loops}
	if !s.Pinned() {
		at.CPU = lab.Anywhere
	}
	if !perf {
		at.Profile = filepath.Join(out, server+".pprof")
	}
	if s.Mode == serve.Proxy {
		backend, err := lab.StartServer(out, lab.Spec{Name: "backend", Program: "c-epoll"},
			lab.Setting{Mode: serve.Echo, Loops: 1, CPU: loadCPU})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, backend.Stop()) }()
		at.Backend = backend.Address
	}
	running, err := lab.StartServer(out, spec, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop()) }() // which writes the profile
	return measure(ctx, running, s, window, perf, filepath.Join(out, server+".perf"))
}

func find(server, scenario string) (lab.Spec, compare.Scenario, error) {
	for _, spec := range lab.Specs() {
		for _, s := range compare.Scenarios() {
			if spec.Name == server && s.Name == scenario {
				return spec, s, nil
			}
		}
	}
	return lab.Spec{}, compare.Scenario{}, fmt.Errorf("%w: server %q or scenario %q", errNoSuch, server, scenario)
}

func measure(
	ctx context.Context, running *lab.Server, s compare.Scenario, window time.Duration, perf bool, file string,
) error {
	s.Load.Address, s.Load.ServerPID = running.Address, running.PID()
	client, err := lab.StartClient(filepath.Dir(file), loadCPU, s.Load)
	if err != nil {
		return err
	}
	var recorder *exec.Cmd
	if perf {
		recorder = exec.CommandContext(ctx, "perf", "record", "-g", "-o", file, "-p", strconv.Itoa(running.PID()))
		recorder.Stderr = os.Stderr
		if err := recorder.Start(); err != nil {
			return errors.Join(fmt.Errorf("profile: perf: %w", err), client.Stop())
		}
	}
	got, err := client.Slice(100*time.Millisecond, window)
	if perf {
		_ = recorder.Process.Signal(os.Interrupt)
		var exit *exec.ExitError
		if waitErr := recorder.Wait(); waitErr != nil && !errors.As(waitErr, &exit) { // it ends by the signal
			err = errors.Join(err, waitErr)
		}
	}
	if err == nil {
		fmt.Printf("%s, %s: %d messages, %.3f µs of CPU each, p50 %v, p99 %v\n", running.Spec.Name, s.Name, got.Messages,
			float64(got.ServerCPU.Nanoseconds())/1e3/float64(max(got.Messages, 1)), got.P50, got.P99)
	}
	return errors.Join(err, client.Stop())
}
