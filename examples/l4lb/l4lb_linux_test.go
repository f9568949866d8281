package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/netlab"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp"
)

// TestMain lets the test binary be the program.
func TestMain(m *testing.M) {
	if os.Getenv("L4LB_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func needed(t *testing.T) {
	t.Helper()
	testenv.Require(t, "xdp", xdp.Check())
	s, err := netlab.NewSpace("probe")
	testenv.Require(t, "netns", err)
	s.Close()
}

func TestEachClaimHolds(t *testing.T) {
	needed(t)
	for _, mode := range []string{"native", "generic"} {
		var out bytes.Buffer
		err := run(context.Background(), config{mode: mode, connections: 20, uploadMiB: 4, reloads: 3}, &out)
		require.NoError(t, err, out.String())
		assert.Equal(t, len(steps(config{})), strings.Count(out.String(), "PASS "), out.String())
		assert.NotContains(t, out.String(), "FAIL")
		t.Log(out.String())
	}
}

func TestAnInterruptTakesAllDown(t *testing.T) {
	needed(t)
	cmd := exec.Command(os.Args[0], "-upload", "100000")
	cmd.Env = append(os.Environ(), "L4LB_MAIN=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "PASS ") { // now it uploads for a long time
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
	}
	assert.Error(t, cmd.Wait())
	assert.Equal(t, "l4lb: interrupted, and all taken down\n", stderr.String())
}

func TestExperimentsThatMeanNothingAreRefused(t *testing.T) {
	for _, cfg := range []config{
		{mode: "offload", connections: 1, uploadMiB: 1, reloads: 1},
		{mode: "native", uploadMiB: 1, reloads: 1},
		{mode: "native", connections: 1, reloads: 1},
		{mode: "native", connections: 1, uploadMiB: 1},
	} {
		assert.ErrorContains(t, run(context.Background(), cfg, nil), "no such experiment", "%+v", cfg)
	}
}
