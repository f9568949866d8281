//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir"
)

// table is the result, as Markdown.
type table struct {
	b   strings.Builder
	cpu map[row]time.Duration
}

func newTable(cfg config) *table {
	t := &table{cpu: map[row]time.Duration{}}
	fmt.Fprintf(&t.b, "%d loops; %d connections one by one, then %d clients for %v; %d long-lived ones on two loops\n\n",
		cfg.loops, cfg.connections, cfg.clients, cfg.window, few)
	t.b.WriteString("| way | transport | wake-ups per connection | failed accepts per connection | max/min over loops | " +
		"CPU per connection | connections/s | p99 to first byte | two loops |\n")
	t.b.WriteString("|-|-|-|-|-|-|-|-|-|\n")
	return t
}

func (t *table) add(r row, m measurement) {
	t.cpu[r] = m.cpu
	transport, failed := string(r.transport), "-"
	if transport == "" {
		transport = "epoll"
	}
	if m.failed >= 0 {
		failed = fmt.Sprintf("%.2f", m.failed)
	}
	fmt.Fprintf(&t.b, "| %s | %s | %.2f | %s | %s | %.1f µs | %.0f | %v | %s |\n", r.way, transport, m.wakeups, failed,
		spread(m.spread), float64(m.cpu.Nanoseconds())/1000, m.rate, m.latency.Round(10*time.Microsecond), spread(m.two))
}

// spread writes the largest and the smallest number, and their ratio when there is one.
func spread(loops []int) string {
	if len(loops) == 0 || slices.Max(loops) == 0 {
		return "-"
	}
	most, least := slices.Max(loops), slices.Min(loops)
	if least == 0 {
		return fmt.Sprintf("%d/0", most)
	}
	return fmt.Sprintf("%d/%d = %.2f", most, least, float64(most)/float64(least))
}

func (t *table) write(w io.Writer) error {
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return err
	}
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		refused, served := t.cpu[row{refusedWay, kind}], t.cpu[row{string(weir.AcceptReusePort), kind}]
		if refused == 0 || served == 0 {
			continue
		}
		ratio := float64(refused) / float64(served)
		if _, err := fmt.Fprintf(w, "\nrefusing costs %.2f of serving on %s\n", ratio, kind); err != nil {
			return err
		}
	}
	return nil
}
