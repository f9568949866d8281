// Command overload prints what becomes of a burst of load with different ways to control it, simulated or over
// loopback.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/weirnet/weir/bench/internal/surge"
)

func main() {
	quick := flag.Bool("quick", false, "one seed instead of five")
	plots := flag.String("svg", "", "directory for plots")
	workers := flag.Int("workers", 8, "requests that the upstream works on at a time")
	real := flag.Bool("sockets", false, "over loopback instead of simulated: two minutes")
	flag.Parse()
	seeds := 5
	if *quick {
		seeds = 1
	}
	if *real {
		load := surge.Load{Workers: *workers, Service: 5 * time.Millisecond, Deadline: 100 * time.Millisecond, Times: 5}
		err := sockets(os.Stdout, load, surge.Phase{Before: 3 * time.Second, Burst: 5 * time.Second, After: 3 * time.Second})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	for _, load := range []surge.Load{
		{Times: 2},
		{Times: 5},
		{Times: 10},
		{Times: 5, Slower: 10},
		{Times: 2, Retries: surge.Naive},
		{Times: 2, Retries: surge.Budgeted},
	} {
		load.Workers, load.Service, load.Deadline = *workers, 5*time.Millisecond, 100*time.Millisecond
		if err := surge.Table(os.Stdout, load, seeds, *plots); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
