//go:build linux

// Package lab builds, starts and stops servers and load generators as processes of their own, each on the processors
// that it was given.
package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoAnswer is the error of a process that ends, or says nothing for too long, when it should answer.
var ErrNoAnswer = errors.New("lab: no answer")

const (
	answerTimeout = 60 * time.Second
	endTimeout    = 5 * time.Second
)

// Anywhere leaves it to the kernel on which processor a process runs.
const Anywhere = -1

// Build compiles everything that the comparison runs into dir. root is the directory of the bench.
func Build(ctx context.Context, root, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	const module = "github.com/weirnet/weir/bench"
	for _, command := range [][]string{
		{
			"go", "build", "-o", dir + "/", module + "/servers/weir", module + "/servers/net", module + "/servers/netpoll",
			module + "/servers/nbio", module + "/cmd/load",
		},
		{"go", "-C", "../examples/resp", "build", "-o", dir + "/resp", "."},
		{"go", "build", "-tags", "poll_opt", "-o", dir + "/", module + "/servers/gnet"},
		{"gcc", "-O2", "-std=gnu11", "-pthread", "-o", dir + "/c-epoll", "servers/c-epoll/main.c"},
		{"gcc", "-O2", "-std=gnu11", "-pthread", "-o", dir + "/c-uring", "servers/c-uring/main.c"},
	} {
		if err := build(ctx, root, command...); err != nil {
			return err
		}
	}
	return nil
}

// BuildBefore compiles weir's servers of another checkout of the repository into dir: the programs of Spec.Before. What
// they are measured with is the present bench's.
func BuildBefore(ctx context.Context, checkout, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for _, program := range []struct{ name, folder string }{{"weir", "bench/servers/weir"}, {"resp", "examples/resp"}} {
		out := filepath.Join(dir, program.name+beforeSuffix)
		if err := build(ctx, filepath.Join(checkout, program.folder), "go", "build", "-o", out, "."); err != nil {
			return err
		}
	}
	return nil
}

// Revision names the commit of a checkout, or the folder where git does not know one.
func Revision(ctx context.Context, checkout string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", checkout, "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return filepath.Base(checkout)
	}
	return strings.TrimSpace(string(out))
}

func build(ctx context.Context, dir string, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("lab: %s in %s: %w\n%s", strings.Join(command, " "), dir, err, out)
	}
	return nil
}

// Process is a running program that answers lines on its standard output and ends with its standard input. It belongs
// to one goroutine.
type Process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	errs  *tail
}

// Start starts a program on a processor, or Anywhere.
func Start(name string, cpu int, env []string, program string, args ...string) (*Process, error) {
	p := &Process{name: name, cmd: exec.Command(program, args...), lines: make(chan string, 16), errs: &tail{}}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.errs
	p.cmd.WaitDelay = endTimeout
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("lab: %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("lab: %s: %w", name, err)
	}
	p.in = in
	if err := Pinned(cpu, p.cmd.Start); err != nil {
		return nil, fmt.Errorf("lab: %s: %w", name, err)
	}
	go func() { // ends with the process
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p, nil
}

// Pinned runs start on a thread that is bound to the processor: processes inherit it.
func Pinned(cpu int, start func() error) error {
	if cpu == Anywhere {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("sched_setaffinity to processor %d: %w", cpu, err)
	}
	err := start()
	if back := unix.SchedSetaffinity(0, &was); err == nil && back != nil {
		err = fmt.Errorf("sched_setaffinity: %w", back)
	}
	return err
}

// PID is the process's identifier.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Say writes a line to the process.
func (p *Process) Say(line string) error {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return fmt.Errorf("lab: %s: %w%s", p.name, err, p.errs)
	}
	return nil
}

// Line returns the next line of the process.
func (p *Process) Line() (string, error) {
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			// What it said on its standard error may still be on its way.
			for i := 0; i < 100 && p.errs.String() == ""; i++ {
				time.Sleep(10 * time.Millisecond)
			}
			return "", fmt.Errorf("%w: %s has ended%s", ErrNoAnswer, p.name, p.errs)
		}
		return line, nil
	case <-timeout.C:
		return "", fmt.Errorf("%w: %s for %v%s", ErrNoAnswer, p.name, answerTimeout, p.errs)
	}
}

// Stop ends the process: it closes its input and kills it when that does not help.
func (p *Process) Stop() error {
	_ = p.in.Close() // it may have ended already
	kill := time.AfterFunc(endTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.lines { // until its output ends
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("lab: end of %s: %w%s", p.name, err, p.errs)
	}
	return nil
}

// Terminate ends a program that does not mind its standard input.
func (p *Process) Terminate() error {
	_ = p.cmd.Process.Signal(unix.SIGTERM) // it may have ended already
	err := p.Stop()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return nil // as it was told
	}
	return err
}

// tail is the last of what a process wrote to its standard error. Any goroutine may use it.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

const tailBytes = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if extra := t.text.Len() - tailBytes; extra > 0 {
		t.text.Next(extra)
	}
	return len(p), nil
}

// String is what follows an error.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() == 0 {
		return ""
	}
	return ": " + strings.TrimSpace(t.text.String())
}
