//go:build linux

// Herd shows what the ways to accept cost. It reproduces the thundering herd, many loops that all wake up for one
// connection, and measures weir's ways beside it. Each server is a process of its own; the clients are in this one.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir"
)

type config struct {
	loops       int
	connections int
	clients     int
	window      time.Duration
	ways        string
	serve       string // the way to serve, in a server's process
	transport   weir.Kind
}

// The ways beside those of weir.Accept: one that has no server of weir's, and one that refuses everybody, with a byte.
const (
	naiveWay   = "naive"
	refusedWay = "refused"
)

// ways are the rows of the table.
func ways() []string {
	return []string{
		naiveWay, string(weir.AcceptReusePort), string(weir.AcceptExclusive), string(weir.AcceptMutex),
		string(weir.AcceptHandoff), refusedWay,
	}
}

// row is one line of the table: a way on a transport.
type row struct {
	way       string
	transport weir.Kind // empty: naive, which is on epoll
}

func rows(names string) (all []row, err error) {
	for _, w := range ways() {
		switch {
		case names != "" && !slices.Contains(strings.Split(names, ","), w):
		case w == naiveWay:
			all = append(all, row{way: w})
		default:
			all = append(all, row{w, weir.Epoll}, row{w, weir.Uring})
		}
	}
	for name := range strings.SplitSeq(names, ",") {
		if name != "" && !slices.Contains(ways(), name) {
			return nil, fmt.Errorf("no way %q: there are %s", name, strings.Join(ways(), ", "))
		}
	}
	return all, nil
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("herd: ")
	err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	cfg := config{}
	flags := flag.NewFlagSet("herd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&cfg.loops, "loops", 8, "loops of each server")
	flags.IntVar(&cfg.connections, "connections", 1000, "connections that are made one by one")
	flags.IntVar(&cfg.clients, "clients", 32, "clients that connect at once")
	flags.DurationVar(&cfg.window, "window", 1500*time.Millisecond, "how long they do")
	flags.StringVar(&cfg.ways, "ways", "", "ways to measure, separated by commas; empty: all")
	flags.StringVar(&cfg.serve, "serve", "", "serve in this way, for another herd")
	flags.StringVar((*string)(&cfg.transport), "transport", "epoll", "with -serve: epoll or uring")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if cfg.loops < 1 || cfg.connections < 1 || cfg.clients < 1 || cfg.window <= 0 || flags.NArg() > 0 {
		return fmt.Errorf("not positive, or too many arguments: %q", args)
	}
	if cfg.serve != "" {
		return serve(cfg, stdin, stdout)
	}
	all, err := rows(cfg.ways)
	if err != nil {
		return err
	}
	table := newTable(cfg)
	for _, r := range all {
		m, err := measure(cfg, r, stderr)
		if err != nil {
			fmt.Fprintf(stderr, "%s on %s is left out: %v\n", r.way, r.transport, err)
			continue
		}
		table.add(r, m)
	}
	return table.write(stdout)
}
