package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Errors of looking at a process.
var (
	ErrNoProcess  = errors.New("no such process")
	ErrNoRings    = errors.New("the process has no io_uring")
	ErrPermission = errors.New("not permitted")
)

// ringLink is what the descriptor of a ring points to.
const ringLink = "anon_inode:[io_uring]"

// A ring whose lock is held is read again, so often and after so long a pause: the holder may not be running.
const (
	lockedTries = 10
	lockedPause = time.Millisecond
)

// Process is one process as /proc shows it.
type Process struct {
	PID     int
	Command string
	dir     string
	started string // when it started, by which a later process with the same number is told apart
}

// Threads are the kernel's threads that work for a process's rings.
type Threads struct {
	Workers int // io-wq: requests that would block
	Pollers int // IORING_SETUP_SQPOLL
}

// FindProcess looks the process up.
func FindProcess(proc string, pid int) (*Process, error) {
	p := &Process{PID: pid, dir: filepath.Join(proc, strconv.Itoa(pid))}
	command, started, err := p.stat()
	if err != nil {
		return nil, p.failure("stat", err)
	}
	p.Command, p.started = command, started
	return p, nil
}

// stat returns the name and the time of start (proc_pid_stat(5)). A name may contain spaces and parentheses.
func (p *Process) stat() (command, started string, err error) {
	body, err := os.ReadFile(filepath.Join(p.dir, "stat"))
	if err != nil {
		return "", "", err
	}
	text := string(body)
	first, last := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if first < 0 || last < first {
		return "", "", fmt.Errorf("no name in %q", text)
	}
	const startTime = 22 - 3 // the fields behind the name begin with the third
	fields := strings.Fields(text[last+1:])
	if len(fields) <= startTime {
		return "", "", fmt.Errorf("%d fields behind the name in %q", len(fields), text)
	}
	return text[first+1 : last], fields[startTime], nil
}

// Gone reports whether the process has ended, also when another has its number by now.
func (p *Process) Gone() bool {
	_, started, err := p.stat()
	return err != nil || started != p.started
}

// Rings reads the process's rings, in the order of their descriptors. Those that close meanwhile are left out.
func (p *Process) Rings() ([]Ring, error) {
	names, err := os.ReadDir(filepath.Join(p.dir, "fd"))
	if err != nil {
		return nil, p.failure("descriptors", err)
	}
	var rings []Ring
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		ring, err := p.ring(fd)
		switch {
		case errors.Is(err, ErrNoRing) || errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, p.failure(fmt.Sprintf("ring %d", fd), err)
		default:
			rings = append(rings, ring)
		}
	}
	slices.SortFunc(rings, func(a, b Ring) int { return a.FD - b.FD })
	return rings, nil
}

func (p *Process) ring(fd int) (ring Ring, err error) {
	name := strconv.Itoa(fd)
	link, err := os.Readlink(filepath.Join(p.dir, "fd", name))
	if err != nil {
		return Ring{}, err
	}
	if link != ringLink {
		return Ring{}, ErrNoRing
	}
	// The kernel only tries to take the ring's lock. When it can't, everything is missing.
	for try := 0; ; try++ {
		ring, err = p.fdinfo(name)
		if err != nil || !ring.locked || try == lockedTries {
			ring.FD = fd
			return ring, err
		}
		time.Sleep(lockedPause)
	}
}

func (p *Process) fdinfo(name string) (Ring, error) {
	file, err := os.Open(filepath.Join(p.dir, "fdinfo", name))
	if err != nil {
		return Ring{}, err
	}
	defer file.Close()
	return ParseRing(file)
}

// Threads counts the kernel's threads by their names.
func (p *Process) Threads() (found Threads, err error) {
	tasks, err := os.ReadDir(filepath.Join(p.dir, "task"))
	if err != nil {
		return Threads{}, p.failure("threads", err)
	}
	for _, task := range tasks {
		name, err := os.ReadFile(filepath.Join(p.dir, "task", task.Name(), "comm"))
		if err != nil { // it has ended
			continue
		}
		switch {
		case strings.HasPrefix(string(name), "iou-wrk-"):
			found.Workers++
		case strings.HasPrefix(string(name), "iou-sqp-"):
			found.Pollers++
		}
	}
	return found, nil
}

// Namespace is a process as its own PID namespace names it: what a program in the kernel compares with.
type Namespace struct {
	Device, Inode uint64
	PID           int32
}

// Namespace returns the process's number in its own PID namespace, and which that is.
func (p *Process) Namespace() (Namespace, error) {
	info, err := os.Stat(filepath.Join(p.dir, "ns", "pid"))
	if err != nil {
		return Namespace{}, p.failure("PID namespace", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Namespace{}, fmt.Errorf("process %d: PID namespace: no inode", p.PID)
	}
	status, err := os.ReadFile(filepath.Join(p.dir, "status"))
	if err != nil {
		return Namespace{}, p.failure("status", err)
	}
	pid, err := innermost(string(status))
	if err != nil {
		return Namespace{}, fmt.Errorf("process %d: %w", p.PID, err)
	}
	return Namespace{Device: stat.Dev, Inode: stat.Ino, PID: pid}, nil
}

// innermost returns the last number of the line NSpid, which has one for each namespace, the process's own last.
func innermost(status string) (int32, error) {
	for line := range strings.Lines(status) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			if len(fields) == 0 {
				break
			}
			pid, err := strconv.ParseInt(fields[len(fields)-1], 10, 32)
			return int32(pid), err
		}
	}
	return 0, errors.New("status has no NSpid")
}

// failure says in the user's words why the process could not be read.
func (p *Process) failure(what string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("process %d: %w", p.PID, ErrNoProcess)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("process %d: %s: %w: run as the process's user or as root", p.PID, what, ErrPermission)
	}
	return fmt.Errorf("process %d: %s: %w", p.PID, what, err)
}
