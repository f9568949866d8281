// Ingest is a telemetry server: it takes syslog, Graphite, statsd and JSON over TCP and puts them, as lines of JSON,
// into rolling files or NATS JetStream. It stays within its memory whatever its clients and its sink do: a sink that is
// slow or dead makes the queue rise, the queue makes reading stop, and TCP makes the clients wait. Try it: ingest
// -demo.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

func main() {
	cfg, err := parseConfig(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	sigs := catchSignals()
	act := serve
	if cfg.demo {
		act = demo
	}
	if err := act(sigs, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a server until a signal ends it, and delivers what is there.
func serve(sigs *signals, cfg *config, out io.Writer) error {
	s, err := newServer(cfg, slog.Default())
	if err != nil {
		return err
	}
	return s.run(sigs, out)
}

// run serves until a signal ends it, or until it cannot serve any more. An error says that something was not delivered.
func (s *server) run(sigs *signals, out io.Writer) error {
	began := time.Now()
	for _, l := range s.listeners {
		mode := "clients wait for the sink"
		if l.lossy {
			mode = "frames are dropped when the sink is slow"
		}
		_, _ = fmt.Fprintf(out, "%-8s on %s (%s)\n", l.protocol.name, l.address, mode)
	}
	_, _ = fmt.Fprintf(out, "into     %s\n", s.where)
	serving, end := context.WithCancel(sigs.first)
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- s.allEnded(serving)
		end()
	}()
	go s.reopenFiles(serving, sigs.hangup)
	s.tell(serving, &printer{out: out, json: s.cfg.statsJSON}, began)
	_, _ = fmt.Fprintf(out, "draining, for %v at most\n", s.cfg.drain)
	err := errors.Join(<-ended, s.close(sigs.second, s.cfg.drain))
	r := s.report(began)
	_, _ = fmt.Fprintln(out, r.end())
	if r.Lost > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d", errLost, r.Lost))
	}
	return err
}

// reopenFiles begins new files with each SIGHUP, until ctx is done.
func (s *server) reopenFiles(ctx context.Context, hangup <-chan os.Signal) {
	for {
		select {
		case <-hangup:
			for _, f := range s.files {
				f.Reopen()
			}
			s.logger.Info("SIGHUP: what follows is in new files", "files", len(s.files))
		case <-ctx.Done():
			return
		}
	}
}

// tell prints reports, when they are wanted, until ctx is done, and measures the loops' lag.
func (s *server) tell(ctx context.Context, p *printer, began time.Time) {
	var ticks <-chan time.Time
	if s.cfg.stats > 0 {
		ticker := time.NewTicker(s.cfg.stats)
		defer ticker.Stop()
		ticks = ticker.C
	}
	go s.lag.run(s.weir.Group)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			p.print(s.report(began))
		}
	}
}
