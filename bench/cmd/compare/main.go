// Compare runs weir, its peers and two bare servers in C side by side under the same loads, on this machine, and writes
// tables (report.md) and everything it measured (report.json).
//
//	go run ./cmd/compare -quick            # five minutes
//	go run ./cmd/compare -out results      # everything
//	go run ./cmd/compare -quick -servers weir -against ../../weir-before
//	go run ./cmd/compare -scenario echo-64c -servers weir,gnet,c-epoll
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/weirnet/weir/bench/internal/compare"
	"github.com/weirnet/weir/bench/internal/lab"
)

type options struct {
	compare.Config
	root, out string
	against   string
	list      bool
}

func main() {
	var o options
	flag.BoolVar(&o.Quick, "quick", false,
		"some scenarios, fewer and shorter slices: five minutes or so on a quiet machine")
	flag.StringVar(&o.against, "against", "", "another checkout of weir: its servers run beside the present ones")
	flag.StringVar(&o.Scenario, "scenario", "", "only scenarios whose names contain one of these parts, comma-separated")
	flag.StringVar(&o.Servers, "servers", "", "only servers whose names contain one of these parts, comma-separated")
	flag.IntVar(&o.Rounds, "rounds", 0, "rounds; 0: 7, quick 5")
	flag.DurationVar(&o.Slice, "slice", 0, "length of a window; 0: 300ms, quick 200ms")
	flag.DurationVar(&o.WarmUp, "warmup", 0, "load before each window; 0: 50ms, quick 20ms")
	flag.IntVar(&o.Procs, "procs", 0, "GOMAXPROCS of Go servers on one processor; 0: what serves each best, of 1 and 2")
	flag.IntVar(&o.Idle, "idle", 0, "idle connections; 0: 18900, quick 4000")
	flag.DurationVar(&o.IdleFor, "idle-for", 0, "how long to watch them; 0: 30s, quick 5s")
	flag.IntVar(&o.ServerCPU, "server-cpu", 0, "processor of the servers")
	flag.IntVar(&o.LoadCPU, "load-cpu", 1, "processor of the load generator")
	flag.StringVar(&o.Programs, "bin", "", "keep the built programs in this directory; empty: a temporary one")
	flag.StringVar(&o.root, "root", ".", "directory of the bench")
	flag.StringVar(&o.out, "out", "results", "directory of the report")
	flag.BoolVar(&o.list, "list", false, "list the scenarios and servers")
	flag.Parse()
	o.defaults()
	if o.list {
		list()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *options) defaults() {
	o.Progress = os.Stderr
	pick := func(full, quick int) int {
		if o.Quick {
			return quick
		}
		return full
	}
	if o.Rounds == 0 {
		o.Rounds = pick(7, 5)
	}
	if o.Slice == 0 {
		o.Slice = time.Duration(pick(300, 200)) * time.Millisecond
	}
	if o.WarmUp == 0 {
		o.WarmUp = time.Duration(pick(50, 20)) * time.Millisecond
	}
	if o.Idle == 0 {
		o.Idle = pick(18_900, 4_000)
	}
	if o.IdleFor == 0 {
		o.IdleFor = time.Duration(pick(30, 5)) * time.Second
	}
}

func list() {
	for _, name := range compare.Names() {
		fmt.Println(name)
	}
	fmt.Println()
	for _, spec := range lab.Specs() {
		fmt.Println(spec.Name)
	}
}

func run(ctx context.Context, o options) error {
	if n := runtime.NumCPU(); o.ServerCPU == o.LoadCPU || n < 2 {
		return fmt.Errorf("compare: %d processors; the servers and the load generator need one each", n)
	}
	if o.Programs == "" {
		dir, err := os.MkdirTemp("", "weir-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.Programs = dir
	} else if err := os.MkdirAll(o.Programs, 0o755); err != nil {
		return err
	}
	if err := lab.Build(ctx, o.root, o.Programs); err != nil {
		return err
	}
	if o.against != "" {
		if err := lab.BuildBefore(ctx, o.against, o.Programs); err != nil {
			return err
		}
		o.Against = lab.Revision(ctx, o.against)
	}
	report, err := compare.Run(ctx, o.Config)
	if report != nil { // also when it was interrupted: what there is is worth something
		if writeErr := report.Write(o.out); err == nil {
			err = writeErr
		}
		fmt.Println(report.Markdown())
	}
	if err == nil && report.Failed() {
		err = compare.ErrWrong
	}
	return err
}
