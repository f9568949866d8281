//go:build linux

// L4lb shows the load balancer at work. It builds a network of namespaces on this machine, a client, the balancer
// and three servers around a bridge, and sends real TCP and UDP through it, while a server is drained, another one
// dies, and the program is reloaded. What was claimed is printed with figures, as PASS or FAIL. It needs root, or
// the capabilities SYS_ADMIN and NET_ADMIN; nothing of it is left afterwards, however it ends.
//
//	go build ./examples/l4lb && sudo ./l4lb
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/weirnet/weir/xdp"
)

type config struct {
	mode        string
	connections int
	uploadMiB   int
	reloads     int
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("l4lb: ")
	var cfg config
	flag.StringVar(&cfg.mode, "mode", "native", "where the program runs: native, generic")
	flag.IntVar(&cfg.connections, "connections", 60, "connections at a time, for each family")
	flag.IntVar(&cfg.uploadMiB, "upload", 64, "MiB to send up and back, for each family")
	flag.IntVar(&cfg.reloads, "reloads", 20, "times that the program is replaced under load")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		stop()
		log.Fatal(err) // the network ends with the process
	}
}

// step is a claim: what it returns are the figures.
type step struct {
	claim string
	check func(context.Context, *lab) (string, error)
}

func steps(cfg config) []step {
	return []step{
		{"TCP and UDP over IPv4 and IPv6 reach all servers", func(ctx context.Context, l *lab) (string, error) {
			return l.reach(ctx, cfg.connections)
		}},
		{"uploads come back as they were", func(ctx context.Context, l *lab) (string, error) {
			return l.upload(ctx, cfg.uploadMiB<<20)
		}},
		{"a server drains without losing a connection", func(ctx context.Context, l *lab) (string, error) {
			return l.drain(ctx, cfg.connections)
		}},
		{"a server dies and new connections go to the others", func(ctx context.Context, l *lab) (string, error) {
			return l.kill(ctx, cfg.connections)
		}},
		{"the program is replaced without losing a connection", func(ctx context.Context, l *lab) (string, error) {
			return l.reload(ctx, cfg.connections, cfg.reloads)
		}},
	}
}

// run builds the network, checks each claim, and prints what the balancer has counted.
func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.mode != "native" && cfg.mode != "generic" || cfg.connections < 1 || cfg.uploadMiB < 1 || cfg.reloads < 1 {
		return fmt.Errorf("mode %q, %d connections, %d MiB, %d reloads: no such experiment",
			cfg.mode, cfg.connections, cfg.uploadMiB, cfg.reloads)
	}
	if err := xdp.Check(); err != nil {
		return err
	}
	mode := xdp.Native
	if cfg.mode == "generic" {
		mode = xdp.Generic
	}
	l, err := newLab(ctx, mode)
	if err != nil {
		return err
	}
	defer l.close()
	fmt.Fprintf(out, "a client, a balancer (%s) and %d servers\n", cfg.mode, servers)
	failed := 0
	for _, s := range steps(cfg) {
		figures, err := s.check(ctx, l)
		switch {
		case ctx.Err() != nil:
			return errors.New("interrupted, and all taken down")
		case err != nil:
			failed++
			fmt.Fprintf(out, "FAIL %s: %v\n", s.claim, err)
		default:
			fmt.Fprintf(out, "PASS %s: %s\n", s.claim, figures)
		}
	}
	if err := l.report(out); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d claims do not hold", failed, len(steps(cfg)))
	}
	return nil
}
