// Ringtop shows a process's io_uring rings while they work: queues and their use from /proc, and, with the privilege,
// what each opcode does from the kernel's tracepoints. It works on any program that uses io_uring and changes nothing
// in it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// minInterval is the shortest time between two reports: the tool must not be the load.
const minInterval = 100 * time.Millisecond

// clearScreen moves to the top left corner and clears from there.
const clearScreen = "\x1b[H\x1b[2J"

type config struct {
	pid      int
	interval time.Duration
	once     bool
	json     bool
	trace    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "ringtop:", err)
		os.Exit(1)
	}
}

// run is the program. It returns nil when ctx ended it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, stderr)
	if err != nil {
		return err
	}
	process, err := FindProcess("/proc", cfg.pid)
	if err != nil {
		return err
	}
	w := &watch{process: process, cfg: cfg, out: stdout}
	defer w.close()
	return w.run(ctx)
}

func parse(args []string, stderr io.Writer) (cfg config, err error) {
	flags := flag.NewFlagSet("ringtop", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&cfg.pid, "pid", 0, "process to look at")
	flags.DurationVar(&cfg.interval, "interval", time.Second, "time between two reports")
	flags.BoolVar(&cfg.once, "once", false, "end after one interval's report")
	flags.BoolVar(&cfg.json, "json", false, "one JSON object for each report")
	flags.BoolVar(&cfg.trace, "trace", true, "count by opcode with programs on the kernel's tracepoints")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.pid <= 0:
		return cfg, fmt.Errorf("-pid %d: give the number of a process", cfg.pid)
	case cfg.interval < minInterval:
		return cfg, fmt.Errorf("-interval %v: at least %v", cfg.interval, minInterval)
	}
	return cfg, nil
}

// watch reports on one process until it ends or the user has seen enough.
type watch struct {
	process *Process
	cfg     config
	out     io.Writer
	tracer  *Tracer // nil without tracing
	missing string  // why
}

func (w *watch) run(ctx context.Context) error {
	// Permission first: what /proc does not show is not worth tracing.
	rings, err := w.process.Rings()
	if err != nil {
		return err
	}
	w.open()
	if len(rings) == 0 && w.tracer == nil {
		return w.noRings()
	}
	before, err := w.sample()
	if err != nil {
		return err
	}
	clock := time.NewTicker(w.cfg.interval)
	defer clock.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return nil
		case <-clock.C:
		}
		now, err := w.sample()
		if err != nil {
			return err
		}
		report := newReport(w.process, before, now, w.missing)
		if first && len(report.Rings) == 0 && len(report.Opcodes) == 0 {
			return w.noRings()
		}
		if err := w.print(report); err != nil || w.cfg.once {
			return err
		}
		before = now
	}
}

func (w *watch) open() {
	if !w.cfg.trace {
		w.missing = "-trace=false"
		return
	}
	var err error
	if w.tracer, err = OpenTracer(w.process); err != nil {
		w.missing = err.Error()
	}
}

// noRings is about a process without descriptors of rings. Rings can be used without one, but only tracing sees that.
func (w *watch) noRings() error {
	why := "nor did it submit anything meanwhile"
	if w.tracer == nil {
		why = "a ring that is registered and has no descriptor could be seen by tracing only: " + w.missing
	}
	return fmt.Errorf("process %d (%s): %w with a descriptor; %s", w.process.PID, printable(w.process.Command),
		ErrNoRings, why)
}

func (w *watch) sample() (s sample, err error) {
	if w.process.Gone() {
		return s, fmt.Errorf("process %d (%s) has ended", w.process.PID, printable(w.process.Command))
	}
	if s.rings, err = w.process.Rings(); err != nil {
		return s, err
	}
	if s.threads, err = w.process.Threads(); err != nil {
		return s, err
	}
	if w.tracer != nil {
		if s.activity, err = w.tracer.Activity(); err != nil {
			return s, err
		}
	}
	s.at = time.Now()
	return s, nil
}

func (w *watch) print(r Report) error {
	if w.cfg.json {
		return json.NewEncoder(w.out).Encode(r)
	}
	if !w.cfg.once && terminal(w.out) {
		if _, err := io.WriteString(w.out, clearScreen); err != nil {
			return err
		}
	}
	return r.Text(w.out)
}

// terminal reports whether a terminal shows what is written to w.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

func (w *watch) close() {
	if w.tracer != nil {
		_ = w.tracer.Close() // the kernel takes the rest when the process ends
	}
}
