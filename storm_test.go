//go:build linux

package weir_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/testenv"
)

// The storm: so many clients at a time come so often to a server that has so many descriptors.
const (
	stormClients     = 700
	stormDescriptors = 500
	stormConnections = 20_000
)

// stormReport is what the server's process says at the end.
type stormReport struct {
	Accepted, AcceptErrors uint64
	Open, Descriptors      int // beyond those that it began with
}

// serveInAStorm echoes until its input ends, with few descriptors. It prints its address, then a report.
func serveInAStorm(kind weir.Kind, way weir.Accept) error {
	srv := &weir.Server{
		Transport: kind, Loops: 3, Accept: way, Init: initEcho, Logger: quiet(), AcceptBackoff: time.Millisecond,
	}
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	before := testenv.OpenDescriptors()
	limit := syscall.Rlimit{Cur: uint64(before + stormDescriptors), Max: uint64(before + stormDescriptors)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	fmt.Println(addr)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		st, err := srv.Stats(context.Background())
		if err != nil {
			return err
		}
		report := stormReport{st.Accepted, st.AcceptErrors, st.Open, testenv.OpenDescriptors() - before}
		if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
			return err
		}
	}
	return srv.Close()
}

// An accept storm against few descriptors costs waiting: everybody is served, nothing is left open, and nothing
// spins.
func TestAStormAgainstFewDescriptorsIsServed(t *testing.T) {
	n := stormConnections
	if !testenv.Thorough() {
		n /= 10
	}
	onEveryWay(t, func(t *testing.T, kind weir.Kind, way weir.Accept) {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("WEIR_TEST_CHILD=storm %s %s", kind, way))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		out := bufio.NewReader(pipe)
		addr, err := out.ReadString('\n')
		require.NoError(t, err)
		addr = strings.TrimSpace(addr)

		began := time.Now()
		require.NoError(t, all(stormClients, func(i int) error {
			for range (n + stormClients - 1) / stormClients {
				c, err := net.DialTimeout("tcp", addr, patience)
				if err != nil {
					return err
				}
				if err := ping(c, "hello"); err != nil {
					return err
				}
				_ = c.(*net.TCPConn).SetLinger(0) // no port stays in use
				c.Close()
			}
			return nil
		}))

		var report stormReport
		eventually(t, func() bool {
			if _, err := io.WriteString(in, "\n"); err != nil {
				return false
			}
			line, err := out.ReadBytes('\n')
			return err == nil && json.Unmarshal(line, &report) == nil && report.Open == 0 && report.Descriptors == 0
		}, "all are gone: %+v", &report)
		assert.GreaterOrEqual(t, report.Accepted, uint64(n))
		const listeners = 3 // at most, each of which rests for a millisecond behind an error
		assert.LessOrEqual(t, report.AcceptErrors, listeners*uint64(1+time.Since(began).Milliseconds()))
		t.Logf("%+v", report)
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
}
