//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/examples/ingest/internal/load"
)

func plain(mark []byte) []byte { return mark }

// background runs a program that ends with a signal.
func background(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(program(t, name), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			ended <- nil
		case <-time.After(patience):
			_ = cmd.Process.Kill()
		}
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%s said: %s", name, out.String())
		}
	})
	return stop
}

// foreground runs a program to its end.
func foreground(t *testing.T, stdin *os.File, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, name), args...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

func TestRsyslog(t *testing.T) {
	const messages = 50_000
	for _, c := range []struct{ framing, template, format string }{
		{"octet-counted", "RSYSLOG_SyslogProtocol23Format", "syslog5424"},
		{"traditional", "RSYSLOG_TraditionalForwardFormat", "syslog3164"},
		{"traditional", "RSYSLOG_ForwardFormat", "syslog3164"},
	} {
		t.Run("framing="+c.framing+"/template="+c.template, func(t *testing.T) {
			program(t, "rsyslogd")
			// A small queue, so that the level rises and rsyslog has to wait, too.
			p := startIngest(t, "-high", "256KiB", "-sink-rate", "8MB")
			dir := t.TempDir()
			_, port, err := net.SplitHostPort(p.at["syslog"])
			require.NoError(t, err)
			conf := filepath.Join(dir, "conf")
			require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
global(workDirectory="%s")
module(load="imfile")
input(type="imfile" File="%s" Tag="load:" reopenOnTruncate="off")
action(type="omfwd" Target="127.0.0.1" Port="%s" Protocol="tcp" TCP_Framing="%s" Template="%s" action.resumeRetryCount="-1")
`, dir, marks(t, 7, messages, plain), port, c.framing, c.template), 0o600))
			stop := background(t, "rsyslogd", "-n", "-f", conf, "-i", filepath.Join(dir, "pid"))
			p.until("all have come", func(r report) bool { return r.Delivered >= messages })
			stop()
			assert.Equal(t, fmt.Sprintf("delivered %d of %d, dropped 0, lost 0", messages, messages), p.stop())
			understood := 0
			tally := p.tally(func(line []byte) bool {
				if bytes.Contains(line, []byte(`"format":"`+c.format+`"`)) {
					understood++
				}
				return false
			})
			assert.Equal(t, messages, understood)
			assert.Equal(t, messages, tally.Count(7))
			assert.Empty(t, tally.Missing(7, messages))
			assert.Zero(t, tally.Twice)
		})
	}
}

func TestLogger(t *testing.T) {
	const messages = 1000
	p := startIngest(t)
	host, port, err := net.SplitHostPort(p.at["syslog"])
	require.NoError(t, err)
	foreground(t, nil, "logger", "-n", host, "-P", port, "-T", "--octet-count", "-f", marks(t, 1, messages, plain))
	foreground(t, nil, "logger", "-n", host, "-P", port, "-T", "--rfc3164", "-f", marks(t, 2, messages, plain))
	foreground(t, nil, "logger", "-n", host, "-P", port, "-T", "-f", marks(t, 3, messages, plain))
	r := p.until("all have come", func(r report) bool { return r.Delivered+r.Truncated >= 3*messages })
	assert.Zero(t, r.Malformed)
	assert.Zero(t, r.Truncated)
	p.stop()
	tally := p.tally(nil)
	for c := uint64(1); c <= 3; c++ {
		assert.Equal(t, messages, tally.Count(c))
	}
	assert.Zero(t, tally.Twice)
}

func TestCollectd(t *testing.T) {
	const values = 1000
	program(t, "collectd")
	p := startIngest(t)
	dir := t.TempDir()
	_, port, err := net.SplitHostPort(p.at["graphite"])
	require.NoError(t, err)
	socket, conf := filepath.Join(dir, "socket"), filepath.Join(dir, "conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
Hostname "host"
BaseDir "%s"
PIDFile "%s/pid"
TypesDB "/usr/share/collectd/types.db"
LoadPlugin unixsock
LoadPlugin write_graphite
LoadPlugin load
<Plugin unixsock>
	SocketFile "%s"
</Plugin>
<Plugin write_graphite>
	<Node "weir">
		Host "127.0.0.1"
		Port "%s"
		Protocol "tcp"
		Prefix "collectd."
	</Node>
</Plugin>
`, dir, dir, socket, port), 0o600))
	stop := background(t, "collectd", "-f", "-C", conf)
	var c net.Conn
	require.Eventually(t, func() bool {
		c, err = net.Dial("unix", socket)
		return err == nil
	}, patience, 20*time.Millisecond)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	answers := bufio.NewReader(c)
	for i := range values {
		_, err := fmt.Fprintf(c, "PUTVAL host/load-%s/gauge interval=10 N:%d\n", load.AppendMark(nil, 5, uint64(i), ""),
			i)
		require.NoError(t, err)
		answer, err := answers.ReadString('\n')
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(answer, "0 "), answer)
	}
	stop() // it sends what it has
	p.until("all have come", func(r report) bool { return r.Delivered >= values && r.Open == 0 })
	p.stop()
	tally := &load.Tally{}
	for _, line := range p.stored() {
		line = bytes.ReplaceAll(line, []byte("_"), []byte(".")) // collectd's way with dots
		require.NoError(t, tally.Add(line, func(line []byte) bool { return !bytes.Contains(line, []byte("load-c5")) }))
	}
	assert.Equal(t, values, tally.Count(5))
	assert.Zero(t, tally.Twice)
}

func TestNetcat(t *testing.T) {
	const values = 2000
	p := startIngest(t)
	host, port, err := net.SplitHostPort(p.at["graphite"])
	require.NoError(t, err)
	in, err := os.Open(marks(t, 4, values, func(mark []byte) []byte {
		return fmt.Appendf(nil, "a.%s 1 1767323045", mark)
	}))
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	foreground(t, in, "nc", "-N", host, port)
	p.until("all have come", func(r report) bool { return r.Delivered >= values })
	p.stop()
	assert.Equal(t, values, p.tally(nil).Count(4))
}

// stored returns the lines that have been stored.
func (p *process) stored() (lines [][]byte) {
	p.t.Helper()
	names, err := filepath.Glob(filepath.Join(p.dir, "*.jsonl"))
	require.NoError(p.t, err)
	for _, name := range names {
		content, err := os.ReadFile(name)
		require.NoError(p.t, err)
		for line := range bytes.Lines(content) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return lines
}
