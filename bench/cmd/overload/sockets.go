package main

import (
	"fmt"
	"io"
	"time"

	"github.com/weirnet/weir/bench/internal/surge"
)

// sockets prints a table of one run each over loopback.
func sockets(w io.Writer, load surge.Load, phase surge.Phase) error {
	fmt.Fprintf(w, "\nOver sockets, %g times the capacity\n\n| | goodput | class 0 | class 3 | p50 ms | p99.9 ms | failed later | "+
		"sent late p99 ms |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", load.Times)
	for _, rung := range surge.Rungs(load.Workers) {
		policy, err := rung.Make()
		if err != nil {
			return err
		}
		m, err := surge.Sockets(load, phase, policy)
		if err != nil {
			return fmt.Errorf("%s: %w", rung.Name, err)
		}
		ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
		fmt.Fprintf(w, "| %s | %.2f | %.3f | %.3f | %.0f | %.0f | %.1f %% | %.1f |\n", rung.Name, m.Goodput,
			m.Class[0], m.Class[3], ms(m.P50), ms(m.P999), 100*m.Failed, ms(m.Lag))
	}
	return nil
}
