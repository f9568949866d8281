//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// greeting is what a server says to each connection, at once.
const greeting = "x"

// hello is a server's first line.
type hello struct {
	Address string `json:"address"`
}

// sample is what a server replies to each line.
type sample struct {
	Served  []uint64      `json:"served"` // connections so far, by loop
	Open    []int         `json:"open"`   // connections that are open, by loop
	Failed  uint64        `json:"failed"` // accepts that had nothing to accept
	Known   bool          `json:"known"`  // Failed is known
	Wakeups uint64        `json:"wakeups"`
	CPU     time.Duration `json:"cpu"`
}

// target is a server that accepts.
type target interface {
	address() string
	sample() (sample, error)
	close() error
}

// census counts by thread: whose loop a connection is on. Its methods are for any goroutine.
type census struct {
	mu       sync.Mutex
	loops    map[int]*seat // by thread
	order    []*seat
	acceptor int // a thread that only accepts; zero: none
}

type seat struct {
	thread int
	served uint64
	open   int
}

// enroll makes the calling thread a loop of its own.
func (c *census) enroll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loops == nil {
		c.loops = map[int]*seat{}
	}
	s := &seat{thread: unix.Gettid()}
	c.loops[s.thread] = s
	c.order = append(c.order, s)
}

// enrollAcceptor makes the calling thread one that wakes up for connections and serves none.
func (c *census) enrollAcceptor() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acceptor = unix.Gettid()
}

func (c *census) came() { c.count(1, 1) }
func (c *census) went() { c.count(0, -1) }

func (c *census) count(served uint64, open int) {
	thread := unix.Gettid()
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.loops[thread]; s != nil {
		s.served += served
		s.open += open
	}
}

// sample reads the counters. A thread is woken up as often as it has gone to sleep: the voluntary switches.
func (c *census) sample() (s sample, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, loop := range c.order {
		s.Served, s.Open = append(s.Served, loop.served), append(s.Open, loop.open)
		switches, err := sleeps(loop.thread)
		if err != nil {
			return s, err
		}
		s.Wakeups += switches
	}
	if c.acceptor != 0 {
		switches, err := sleeps(c.acceptor)
		if err != nil {
			return s, err
		}
		s.Wakeups += switches
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return s, err
	}
	s.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	return s, nil
}

// sleeps returns how often a thread of this process has waited (proc_pid_status(5)).
func sleeps(thread int) (uint64, error) {
	status, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(thread) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("thread %d: no voluntary_ctxt_switches", thread)
}

// serve is a server's process: it says where it listens, then replies to each line with a sample, until its input ends.
func serve(cfg config, stdin io.Reader, stdout io.Writer) error {
	// A P for each loop, as they all have to be able to run when they are woken, and for the rest.
	runtime.GOMAXPROCS(cfg.loops + 2)
	t, err := open(cfg)
	if err != nil {
		return err
	}
	defer t.close()
	out := json.NewEncoder(stdout)
	if err := out.Encode(hello{t.address()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		s, err := t.sample()
		if err != nil {
			return err
		}
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	return lines.Err()
}

func open(cfg config) (target, error) {
	switch {
	case cfg.serve == naiveWay:
		return openNaive(cfg.loops)
	case slices.Contains(ways(), cfg.serve):
		return openWeir(cfg)
	}
	return nil, fmt.Errorf("no way %q", cfg.serve)
}
