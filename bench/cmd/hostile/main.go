//go:build linux

// Hostile measures what a hostile mix on one loop costs the connections of the other loops: the 99th percentile of
// their round trips, beside the same without the mix, in alternating windows.
//
//	go run ./cmd/hostile                    # both transports, about two minutes
//	go run ./cmd/hostile -rounds 3 -window 1s -transports epoll
//
// The mix, all on the first loop of four: a handler that blocks its loop nine tenths of the time, peers that ask for
// megabytes and never read, bursts of tasks posted to fifty channels, and connections that are reset.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/weirnet/weir/bench/internal/stats"
)

// mostTimes is the target: so many times the 99th percentile of the windows without the mix.
const mostTimes = 2

func main() {
	serve := flag.String("serve", "", "be the server, on this transport (for the program itself)")
	transports := flag.String("transports", "epoll,uring", "transports to measure")
	rounds := flag.Int("rounds", 9, "pairs of windows")
	window := flag.Duration("window", 2*time.Second, "length of a window")
	flag.Parse()
	if *serve != "" {
		exit(serveUntilEOF(*serve))
	}
	if *rounds < 1 || *window < 100*time.Millisecond {
		exit(fmt.Errorf("hostile: want at least 1 round and 100 ms, have -rounds %d -window %v", *rounds, *window))
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	var failed error
	for _, transport := range strings.Split(*transports, ",") {
		failed = errors.Join(failed, measure(transport, *rounds, *window, stop))
	}
	exit(failed)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// measure prints a line for each pair of windows and the median ratio.
func measure(transport string, rounds int, window time.Duration, stop <-chan os.Signal) (err error) {
	server, err := startServer(transport)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	c, err := connect(server.address)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.window(window / 2); err != nil { // warms up
		return err
	}
	fmt.Printf("%s: %d quiet connections on loops 1 to %d, %d on loop 0\n", transport, len(c.quiet), loops-1,
		len(c.victims))
	fmt.Println("  round   alone p99    with mix p99   ratio   round trips   blocked   posted   reset")
	var ratios []float64
	for round := range rounds {
		select {
		case <-stop:
			return errors.New("hostile: interrupted")
		default:
		}
		alone, err := c.window(window)
		if err != nil {
			return err
		}
		mixed, done, err := c.mixedWindow(window)
		if err != nil {
			return err
		}
		ratio := float64(mixed.p99) / float64(alone.p99)
		ratios = append(ratios, ratio)
		fmt.Printf("  %5d %11v %15v %7.2f %13d %9d %8d %7d\n", round+1, alone.p99.Round(time.Microsecond),
			mixed.p99.Round(time.Microsecond), ratio, mixed.trips, done.blocked, done.posted, done.reset)
	}
	s := stats.Summarize(ratios)
	verdict := "yes"
	if !(s.Median <= mostTimes) || math.IsNaN(s.Median) {
		verdict = "NO"
	}
	fmt.Printf("  %s: with the mix / alone, median %.2f (%.2f to %.2f), at most %d: %s\n", transport, s.Median, s.Min,
		s.Max,
		mostTimes, verdict)
	return nil
}
