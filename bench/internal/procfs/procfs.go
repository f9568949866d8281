//go:build linux

// Package procfs reads what the kernel counts for processes and for the machine, see proc(5).
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrFormat is the error of a file of /proc that does not look as expected.
var ErrFormat = errors.New("procfs: unexpected format")

// CPUTime returns the CPU time that all threads of a process have used, to the nanosecond: its CPU-time clock, whose
// identifier is made of the process's, see clock_getcpuclockid(3).
func CPUTime(pid int) (time.Duration, error) {
	const clockSched = 2 // CPUCLOCK_SCHED in the kernel's posix-timers.h
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|clockSched), &ts); err != nil {
		return 0, fmt.Errorf("procfs: CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// RSSBytes returns how much memory of a process is resident.
func RSSBytes(pid int) (int64, error) {
	kib, err := status(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	return kib << 10, err
}

// Thread is what one thread of a process has used.
type Thread struct {
	ID       int
	CPU      time.Duration
	Switches int64 // context switches, voluntary ones and others
}

// Threads returns the threads that a process has now.
func Threads(pid int) ([]Thread, error) {
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return nil, err
	}
	var all []Thread
	for _, dir := range dirs {
		t, err := thread(dir)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("procfs: process %d: %w", pid, os.ErrNotExist)
	}
	return all, nil
}

func thread(dir string) (t Thread, err error) {
	if t.ID, err = strconv.Atoi(filepath.Base(dir)); err != nil {
		return t, err
	}
	sched, err := os.ReadFile(dir + "/schedstat") // nanoseconds on a CPU, nanoseconds waiting, slices
	if err != nil {
		return t, err
	}
	fields := bytes.Fields(sched)
	if len(fields) != 3 {
		return t, fmt.Errorf("%w: %s/schedstat: %q", ErrFormat, dir, sched)
	}
	ns, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return t, err
	}
	t.CPU = time.Duration(ns)
	for _, key := range []string{"voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"} {
		n, err := status(dir+"/status", key)
		if err != nil {
			return t, err
		}
		t.Switches += n
	}
	return t, nil
}

// status returns the number behind a key at the start of a line.
func status(file, key string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				return strconv.ParseInt(string(fields[0]), 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("%w: %s has no %s", ErrFormat, file, key)
}

// userHz is the unit of /proc/stat on every Linux that Go runs on, whatever CONFIG_HZ is.
const userHz = 100

// BusyTime returns how long the machine's processors were busy since it was started, in sum, time stolen by a
// hypervisor included. It counts in steps of 10 ms.
func BusyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return busyTime(text)
}

func busyTime(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line) // cpu user nice system idle iowait irq softirq steal guest guest_nice
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("%w: /proc/stat: %q", ErrFormat, line)
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%w: /proc/stat: %w", ErrFormat, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHz, nil
}
