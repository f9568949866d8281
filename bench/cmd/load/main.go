// Load puts load on an echo server and prints what it measured as JSON, one line a window.
//
// By itself it runs -slices windows of -window. With -control it reads commands from standard input instead, one a
// line, and answers each with a line of JSON: "slice WARMUP WINDOW" (durations as Go writes them), "touch" (one message
// on each idle connection). It ends with its standard input.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weirnet/weir/bench/internal/load"
)

func main() {
	cfg := load.Config{}
	flag.StringVar(&cfg.Address, "addr", "", "address of the server, on loopback")
	flag.StringVar(&cfg.Kind, "kind", load.Closed, "closed, open or churn")
	flag.IntVar(&cfg.Conns, "conns", 64, "connections")
	flag.IntVar(&cfg.Idle, "idle", 0, "idle connections beside")
	flag.IntVar(&cfg.SizeBytes, "size", 64, "bytes of a message, or of a frame's payload")
	flag.IntVar(&cfg.Pipeline, "pipeline", 1, "messages written at once (closed)")
	flag.Float64Var(&cfg.Rate, "rate", 20_000, "messages a second (open)")
	flag.BoolVar(&cfg.Framed, "framed", false, "messages are frames with a length field of four bytes")
	flag.BoolVar(&cfg.Spin, "spin", true, "never sleep")
	flag.IntVar(&cfg.ServerPID, "pid", 0, "process of the server, to measure its CPU time")
	control := flag.Bool("control", false, "take commands from standard input")
	slices := flag.Int("slices", 1, "windows")
	warmUp := flag.Duration("warmup", 100*time.Millisecond, "load before each window")
	window := flag.Duration("window", time.Second, "length of a window")
	flag.Parse()
	debug.SetGCPercent(-1) // a running window allocates nothing, so there is nothing to collect
	if err := run(cfg, *control, *slices, *warmUp, *window); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(cfg load.Config, control bool, slices int, warmUp, window time.Duration) error {
	e, err := load.New(cfg)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if control {
		err = commands(e, out)
	} else {
		for range slices {
			var r load.Result
			if r, err = e.Slice(warmUp, window); err != nil {
				break
			}
			if err = out.Encode(r); err != nil {
				break
			}
		}
	}
	if closeErr := e.Close(); err == nil {
		err = closeErr
	}
	return err
}

func commands(e *load.Engine, out *json.Encoder) error {
	if err := out.Encode("ready"); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		answer, err := command(e, strings.Fields(in.Text()))
		if err != nil {
			return err
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return in.Err()
}

func command(e *load.Engine, words []string) (any, error) {
	switch {
	case len(words) == 1 && words[0] == "touch":
		return "touched", e.Touch()
	case len(words) == 3 && words[0] == "slice":
		warmUp, err := time.ParseDuration(words[1])
		if err != nil {
			return nil, err
		}
		window, err := time.ParseDuration(words[2])
		if err != nil {
			return nil, err
		}
		return e.Slice(warmUp, window)
	}
	return nil, fmt.Errorf("load: no command %q", words)
}
