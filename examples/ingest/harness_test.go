//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/examples/ingest/internal/load"
	"github.com/weirnet/weir/examples/ingest/internal/sink"
	"github.com/weirnet/weir/internal/testenv"
)

// patience bounds every wait. Nothing is expected to take long; a shared machine may.
const patience = 60 * time.Second

// role names the environment variable that makes the test binary another program.
const role = "INGEST_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "ingest":
		os.Exit(ingestMain())
	case "nats":
		os.Exit(natsMain())
	}
	os.Exit(m.Run())
}

// ingestMain is the program, with two commands on its standard input: "rate N" for the sink, and "report".
func ingestMain() int {
	cfg, err := parseConfig(os.Args[1:], os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	sigs := catchSignals()
	s, err := newServer(cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		began := time.Now()
		for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
			if rate, ok := strings.CutPrefix(commands.Text(), "rate "); ok {
				n, _ := strconv.ParseInt(rate, 10, 64)
				_ = s.throttle.SetRate(n)
			}
			(&printer{out: os.Stdout, json: true}).print(s.report(began))
		}
	}()
	if err := s.run(sigs, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// natsMain is a NATS server with JetStream: PORT DIRECTORY.
func natsMain() int {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return 2
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: port, JetStream: true,
		StoreDir: os.Args[2],
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		return 1
	}
	fmt.Println("ready")
	s.WaitForShutdown()
	return 0
}

// process is a program of ours that runs. It belongs to the test's goroutine.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string // of its standard output; closed at its end
	errs  *strings.Builder
	dir   string
	at    map[string]string // addresses by protocol
}

// start runs the test binary in a role.
func start(t *testing.T, as string, args ...string) *process {
	t.Helper()
	p := &process{t: t, lines: make(chan string, 1000), errs: &strings.Builder{}, at: map[string]string{}}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), role+"="+as)
	p.cmd.Stderr = p.errs
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.in = in
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
		close(p.lines)
	}()
	return p
}

// startIngest runs a server on free ports, with files in a directory of the test where args say nothing else.
func startIngest(t *testing.T, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	all := []string{
		"-sink", dir, "-syslog", "127.0.0.1:0", "-graphite", "127.0.0.1:0", "-statsd", "127.0.0.1:0",
		"-json", "127.0.0.1:0",
	}
	p := start(t, "ingest", append(all, args...)...)
	p.dir = dir
	for line := p.line(); !strings.HasPrefix(line, "into "); line = p.line() {
		fields := strings.Fields(line)
		require.Greater(t, len(fields), 2, line)
		p.at[fields[0]] = fields[2]
	}
	return p
}

// line waits for the next line.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(p.t, ok, "the program has ended: %s", p.errs)
		return line
	case <-time.After(patience):
		require.Fail(p.t, "the program says nothing")
		return ""
	}
}

// command sends a command and returns the report that follows.
func (p *process) command(format string, args ...any) (r report) {
	p.t.Helper()
	_, err := fmt.Fprintf(p.in, format+"\n", args...)
	require.NoError(p.t, err)
	require.NoError(p.t, json.Unmarshal([]byte(p.line()), &r))
	return r
}

// until asks for reports until one is as wanted.
func (p *process) until(what string, wanted func(report) bool) report {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r := p.command("report")
		if wanted(r) {
			return r
		}
		require.True(p.t, time.Now().Before(deadline), "%s: not so: %+v\n%s", what, r, p.errs)
	}
}

// stop ends the server with a signal and returns what it says last.
func (p *process) stop() string {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	last := ""
	for line := range p.lines {
		last = line
	}
	require.NoError(p.t, p.cmd.Wait(), "%s", p.errs)
	return last
}

// rss is the memory of the process that is resident, from /proc.
func (p *process) rss() int {
	p.t.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	require.NoError(p.t, err)
	return pages * os.Getpagesize()
}

// tally reads the lines that have been stored.
func (p *process) tally(skip func(line []byte) bool) *load.Tally {
	p.t.Helper()
	names, err := sink.Files(p.dir)
	require.NoError(p.t, err)
	tally := &load.Tally{}
	require.NoError(p.t, tally.ReadFiles(names, skip))
	return tally
}

// run starts clients and returns what waits for them.
func run(ctx context.Context, clients []*load.Client) (wait func() error) {
	ended := make(chan error)
	for _, c := range clients {
		go func() { ended <- c.Run(ctx) }()
	}
	return func() (first error) {
		for range clients {
			if err := <-ended; err != nil && first == nil {
				first = err
			}
		}
		return first
	}
}

// until returns signals that come when ctx is done.
func until(ctx context.Context) *signals { return &signals{first: ctx, second: context.Background()} }

// program returns the path of a program that a test needs.
func program(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path
		}
	}
	testenv.Require(t, name, exec.ErrNotFound)
	return ""
}

// marks writes a file with n marks of a connection, one a line, and returns its name.
func marks(t *testing.T, connection uint64, n int, line func(mark []byte) []byte) string {
	t.Helper()
	var all []byte
	for i := range n {
		all = append(all, line(load.AppendMark(nil, connection, uint64(i), "padding"))...)
		all = append(all, '\n')
	}
	name := filepath.Join(t.TempDir(), "marks")
	require.NoError(t, os.WriteFile(name, all, 0o600))
	return name
}
