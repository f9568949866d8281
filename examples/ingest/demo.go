package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/weirnet/weir/examples/ingest/internal/load"
)

// The demonstration: load for demoLoad, with a sink that takes next to nothing from demoSlow to demoFast.
const (
	demoLoad     = 12 * time.Second
	demoSlow     = 4 * time.Second
	demoFast     = 8 * time.Second
	demoPatience = 30 * time.Second

	demoSlowRate        = 2 << 20 // bytes a second
	demoHigh            = 16 << 20
	demoClients         = 4 // of each kind
	demoFramesPerSecond = 3000
	demoPadding         = 40
)

// errDemo says that the numbers do not add up.
var errDemo = errors.New("ingest: demo failed")

// demo sends load to a server of its own and shows how the level breathes.
func demo(sigs *signals, cfg *config, out io.Writer) error {
	for name := range cfg.addresses {
		cfg.addresses[name] = "127.0.0.1:0"
	}
	cfg.lossy = "statsd"
	cfg.high, cfg.low, cfg.most = demoHigh, demoHigh/4, 4*demoHigh
	ctx, cancel := context.WithTimeout(sigs.first, demoLoad+demoPatience)
	defer cancel()
	s, err := newServer(cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, `%d clients send syslog, Graphite, JSON (they wait for the sink) and statsd (frames may be dropped)
into %s. From %v to %v the sink takes only %d MiB/s. Reading stops while %d MiB are pending.

`, 4*demoClients, s.where, demoSlow, demoFast, demoSlowRate>>20, demoHigh>>20)
	began := time.Now()
	clients := s.demoClients()
	ended := make(chan error)
	sending, stop := context.WithTimeout(ctx, demoLoad)
	defer stop()
	for _, c := range clients {
		go func() { ended <- c.Run(sending) }()
	}
	slow := time.AfterFunc(demoSlow, func() { _ = s.throttle.SetRate(demoSlowRate) })
	defer slow.Stop()
	fast := time.AfterFunc(demoFast, func() { _ = s.throttle.SetRate(0) })
	defer fast.Stop()
	telling, told := context.WithCancel(ctx)
	cfg.stats = time.Second
	quiet := make(chan struct{})
	go func() {
		s.tell(telling, &printer{out: out}, began)
		close(quiet)
	}()
	for range clients {
		err = errors.Join(err, <-ended)
	}
	for s.report(began).Open > 0 && ctx.Err() == nil { // they have sent FIN; what they sent is on its way
		time.Sleep(10 * time.Millisecond)
	}
	told()
	<-quiet
	return errors.Join(err, s.close(sigs.second, demoPatience), s.demoResult(clients, began, out))
}

// demoClients makes the load: the first clients are the lossy ones.
func (s *server) demoClients() (clients []*load.Client) {
	for i, c := range []struct {
		protocol string
		format   load.Format
	}{{"statsd", load.Statsd}, {"syslog", load.SyslogCounted}, {"graphite", load.Graphite}, {"json", load.JSON}} {
		for j := range demoClients {
			clients = append(clients, &load.Client{
				Address: s.at(c.protocol), Format: c.format, Number: uint64(i*demoClients + j),
				FramesPerSecond: demoFramesPerSecond,
				PaddingBytes:    demoPadding,
			})
		}
	}
	return clients
}

// demoResult says whether everything that was sent was delivered or dropped, and dropped only where that is allowed.
func (s *server) demoResult(clients []*load.Client, began time.Time, out io.Writer) error {
	var sent, lossy uint64
	for i, c := range clients {
		sent += c.Sent()
		if i < demoClients {
			lossy += c.Sent()
		}
	}
	r := s.report(began)
	kept := sent - lossy
	_, _ = fmt.Fprintf(out, `
waiting clients:  sent %9d = delivered %9d
lossy clients:    sent %9d = delivered %9d + dropped %d
the level rose %d times; at most %d MiB were queued; every line is in %s
`, kept, r.Delivered-(lossy-r.Dropped), lossy, lossy-r.Dropped, r.Dropped, r.Rises, r.MostQueued>>20, s.where)
	if r.Delivered+r.Dropped != sent || r.Lost != 0 || r.Malformed != 0 {
		return fmt.Errorf("%w: sent %d, delivered %d, dropped %d, lost %d, malformed %d", errDemo, sent, r.Delivered,
			r.Dropped, r.Lost, r.Malformed)
	}
	return nil
}
