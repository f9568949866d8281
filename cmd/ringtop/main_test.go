package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/internal/testenv"
)

// asProgram makes the test's binary behave as ringtop.
const asProgram = "RINGTOP_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asProgram) != "":
		main()
		return
	case os.Getenv(asRing) != "":
		useRing(os.Getenv(asRing) == hidden)
		return
	}
	os.Exit(m.Run())
}

// asRing makes the test's binary a process that submits one NOP for each byte that it reads, and writes it back.
// Hidden, it closes the ring's descriptor and goes on with the one that its thread has registered.
const (
	asRing = "RINGTOP_TEST_AS_RING"
	hidden = "hidden"
)

func useRing(hide bool) {
	runtime.LockOSThread()
	r, err := ring.Open(ring.Config{Entries: 8, CQEntries: 16})
	if err == nil && hide {
		p, _ := FindProcess("/proc", os.Getpid())
		rings, _ := p.Rings()
		err = syscall.Close(rings[0].FD)
	}
	for b := make([]byte, 1); err == nil; {
		if _, err = os.Stdin.Read(b); err == nil {
			ring.Nop(r.Get())
			_ = r.Poll()
			_, end := r.Ready()
			r.Reaped(end)
			_, err = os.Stdout.Write(b)
		}
	}
}

// ringUser starts such a process. use makes it submit a number of NOPs.
func ringUser(t *testing.T, how string, flags uintptr) (pid int, use func(n int) error) {
	t.Helper()
	openRing(t, ring.Config{Entries: 8, CQEntries: 16}) // or there are none
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), asRing+"="+how)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	testenv.Require(t, "root", c.Start())
	t.Cleanup(func() { in.Close(); assert.NoError(t, c.Wait()) })
	use = func(n int) error {
		_, err := in.Write(make([]byte, n))
		if err == nil {
			_, err = io.ReadFull(out, make([]byte, n))
		}
		return err
	}
	require.NoError(t, use(1)) // its ring is there
	return c.Process.Pid, use
}

// A process in a container has another number for itself.
func TestProcessInAnotherNamespaceIsCounted(t *testing.T) {
	pid, use := ringUser(t, "plain", syscall.CLONE_NEWPID)
	tracer := openTracerOf(t, pid)
	require.NoError(t, use(2))
	assert.Equal(t, uint64(2), activity(t, tracer).Of("NOP").Submitted)
}

func TestRingWithoutDescriptorIsShownByItsOpcodes(t *testing.T) {
	pid, use := ringUser(t, hidden, 0)
	openTracerOf(t, pid)
	ended := make(chan error, 1)
	var out bytes.Buffer
	go func() {
		ended <- run(t.Context(), append(pidFlag(pid), "-once", "-json", "-interval", "100ms"), &out, io.Discard)
	}()
	for done := false; !done; {
		require.NoError(t, use(1))
		select {
		case err := <-ended:
			require.NoError(t, err)
			done = true
		default:
		}
	}
	var report Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	assert.Empty(t, report.Rings)
	require.Len(t, report.Opcodes, 1)
	assert.Equal(t, "NOP", report.Opcodes[0].Opcode)
}

// command is ringtop as a process of its own.
func command(args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

func pidFlag(pid int) []string { return []string{"-pid", strconv.Itoa(pid)} }

func TestBadFlagsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"-pid 0":              {},
		"-pid -4":             {"-pid", "-4"},
		"-interval 99ms":      {"-pid", "1", "-interval", "99ms"},
		"unexpected argument": {"-pid", "1", "2"},
		"not defined":         {"-pod", "1"},
	} {
		err := run(context.Background(), args, io.Discard, io.Discard)
		assert.ErrorContains(t, err, want, "%q", args)
	}
	_, err := parse([]string{"-pid", "1", "-interval", "100ms"}, io.Discard)
	assert.NoError(t, err)
}

func TestNoSuchProcess(t *testing.T) {
	// A process that has ended and was waited for.
	c := exec.Command("true")
	require.NoError(t, c.Run())
	err := run(context.Background(), pidFlag(c.Process.Pid), io.Discard, io.Discard)
	assert.ErrorIs(t, err, ErrNoProcess)
	assert.ErrorContains(t, err, strconv.Itoa(c.Process.Pid))
}

// sleeper is a process that does nothing until the test ends.
func sleeper(t *testing.T) int {
	t.Helper()
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { in.Close(); assert.NoError(t, c.Wait()) })
	return c.Process.Pid
}

func TestNoRings(t *testing.T) {
	pid := sleeper(t)
	for _, trace := range []string{"-trace=false", "-trace=true"} {
		err := run(context.Background(), append(pidFlag(pid), trace, "-once", "-interval", "100ms"), io.Discard, io.Discard)
		assert.ErrorIs(t, err, ErrNoRings, trace)
		assert.ErrorContains(t, err, "(cat)")
	}
}

// nobody runs a command as the user nobody, in a directory that nobody may enter.
func nobody(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		testenv.Require(t, "root", os.ErrPermission)
	}
	const id = 65534
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	c.Dir = "/"
}

func TestAnotherUsersProcessIsNotPermitted(t *testing.T) {
	c := command(append(pidFlag(os.Getpid()), "-once")...)
	nobody(t, c)
	out, err := c.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "not permitted: run as the process's user or as root")
}

// Without the privilege the rings are shown, and what is missing is said.
func TestWithoutTracingRingsAreShown(t *testing.T) {
	openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	want, args := "-trace=false", append(pidFlag(os.Getpid()), "-once", "-interval", "100ms")
	if os.Geteuid() == 0 {
		args = append(args, "-trace=false")
	} else {
		want = "tracing: not permitted: it needs the capabilities CAP_BPF and CAP_PERFMON"
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), args, &out, io.Discard))
	assert.Contains(t, out.String(), "No opcodes, no latencies: "+want)
	assert.Regexp(t, `(?m)^ +\d+ +0 +8 +0 +16 `, out.String())
}

func TestPlainUserIsToldWhatIsMissing(t *testing.T) {
	c := exec.Command("/proc/self/exe", "-test.run=^TestWithoutTracingRingsAreShown$", "-test.v")
	nobody(t, c)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestWithoutTracingRingsAreShown")
}

func TestJSONIsOneObjectPerReport(t *testing.T) {
	r := openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	ring.Nop(r.Get())
	require.NoError(t, r.Poll())
	var out bytes.Buffer
	args := append(pidFlag(os.Getpid()), "-once", "-json", "-interval", "100ms")
	require.NoError(t, run(context.Background(), args, &out, io.Discard))
	var report Report
	decoder := json.NewDecoder(&out)
	require.NoError(t, decoder.Decode(&report))
	assert.Equal(t, io.EOF, decoder.Decode(&report))
	require.Len(t, report.Rings, 1)
	assert.Equal(t, uint32(16), report.Rings[0].CQEntries)
	assert.Equal(t, uint32(1), report.Rings[0].CQUsed)
	assert.Greater(t, report.Seconds, 0.0)
}

// fio reads a file by io_uring until the test ends.
func fio(t *testing.T) int {
	t.Helper()
	_, err := exec.LookPath("fio")
	testenv.Require(t, "fio", err)
	c := exec.Command("fio", "--name=ringtop", "--filename="+filepath.Join(t.TempDir(), "data"), "--size=4m",
		"--rw=randread", "--bs=4k", "--ioengine=io_uring", "--iodepth=8", "--thread", "--time_based", "--runtime=60",
		"--rate_iops=2000")
	var out bytes.Buffer
	c.Stdout, c.Stderr, c.Dir = &out, &out, t.TempDir()
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("fio: %s", out.String())
		}
	})
	p, err := FindProcess("/proc", c.Process.Pid)
	require.NoError(t, err)
	servertest.Eventually(t, func() bool {
		rings, err := p.Rings()
		return err == nil && len(rings) == 1 && rings[0].SQ.Head > 0
	}, "fio uses its ring")
	return c.Process.Pid
}

func TestForeignProgramIsShown(t *testing.T) {
	pid := fio(t)
	_ = openTracerOf(t, pid)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append(pidFlag(pid), "-json", "-interval", "200ms"), in, io.Discard)
		in.CloseWithError(io.EOF)
		ended <- err
	}()
	var report Report
	// A ring that is locked at a look shows no queues, and has no rates at the next.
	for decoder := json.NewDecoder(out); len(report.Rings) == 0 || report.Rings[0].Completed == 0; {
		report = Report{}
		require.NoError(t, decoder.Decode(&report))
	}
	cancel()
	_, _ = io.Copy(io.Discard, out)
	require.NoError(t, servertest.Receive(t, ended, "the end"))

	assert.Equal(t, "fio", report.Command)
	require.Len(t, report.Rings, 1)
	assert.Equal(t, uint32(8), report.Rings[0].SQEntries)
	assert.Positive(t, report.Rings[0].Submitted)
	require.NotEmpty(t, report.Opcodes, "%+v", report)
	read := report.Opcodes[0]
	assert.Equal(t, "READ", read.Opcode)
	assert.Positive(t, read.Submitted)
	assert.Positive(t, read.Completed)
	assert.NotZero(t, read.Measured)
	assert.True(t, 0 < read.P50 && read.P50 <= read.P99 && read.P99 <= read.Max, "%+v", read)
	assert.NotEmpty(t, report.Latency)
}

// openTracerOf skips the test where a process cannot be traced.
func openTracerOf(t *testing.T, pid int) *Tracer {
	t.Helper()
	p, err := FindProcess("/proc", pid)
	require.NoError(t, err)
	tracer, err := OpenTracer(p)
	testenv.Require(t, "bpf", err)
	t.Cleanup(func() { assert.NoError(t, tracer.Close()) })
	return tracer
}

func TestInterruptEndsItAndLeavesNothing(t *testing.T) {
	openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	before := programs(t, nil)
	c := command(append(pidFlag(os.Getpid()), "-interval", "100ms")...)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	// Two reports: it goes on by itself.
	text := ""
	for buf := make([]byte, 4096); strings.Count(text, "process ") < 2; {
		n, err := out.Read(buf)
		require.NoError(t, err, "%s", text)
		text += string(buf[:n])
	}
	assert.NotContains(t, text, "\x1b", "no terminal, no control sequences")
	mine := programs(t, before)
	assert.NotEmpty(t, mine)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, out)
	assert.NoError(t, c.Wait(), "an interrupt is the usual way to end")
	gone(t, mine)
}

func TestProcessThatEndsIsSaid(t *testing.T) {
	p := &Process{PID: os.Getpid(), Command: "earlier", dir: "/proc/self", started: "1"}
	w := &watch{process: p, cfg: config{}, out: io.Discard}
	_, err := w.sample()
	assert.ErrorContains(t, err, "(earlier) has ended", "another process has the number now")
}

func TestNamesCannotMoveTheCursor(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Report{Command: "a\x1b[2J\u009bb\n"}.Text(&out))
	assert.Contains(t, out.String(), "(a?[2J?b?)")
}

func TestInnermostNumberOfAProcess(t *testing.T) {
	pid, err := innermost("Name:\tx\nNSpid:\t30033\t12\t1\nNSpgid:\t1\n")
	require.NoError(t, err)
	assert.Equal(t, int32(1), pid)
	for _, bad := range []string{"", "NSpid:\n", "NSpid:\tx\n", "NSpid:\t99999999999\n"} {
		_, err := innermost(bad)
		assert.Error(t, err, "%q", bad)
	}
}

func TestProcessNameWithParentheses(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "7"), 0o700))
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "7", "stat"), []byte(text), 0o600))
	}
	write("7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21")
	p, err := FindProcess(dir, 7)
	require.NoError(t, err)
	assert.Equal(t, "a) b (c", p.Command)
	assert.Equal(t, "4711", p.started)
	assert.False(t, p.Gone())
	write("7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4712 20 21")
	assert.True(t, p.Gone())
	for _, bad := range []string{"", "7", "7 (a", "7 (a) S 1"} {
		write(bad)
		_, err := FindProcess(dir, 7)
		assert.Error(t, err, "%q", bad)
	}
}
