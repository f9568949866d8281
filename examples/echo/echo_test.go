package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
)

// TestMain lets the test binary be the program.
func TestMain(m *testing.M) {
	if os.Getenv("ECHO_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheProgramEchoes(t *testing.T) {
	probe := weir.Server{Loops: 1, Init: func(*pipeline.Pipeline) error { return nil }}
	addr, err := probe.Listen("tcp", "127.0.0.1:0")
	if errors.Is(err, transport.ErrNotSupported) {
		testenv.Require(t, "transport", err)
	}
	require.NoError(t, err)
	require.NoError(t, probe.Close()) // the port is free again

	cmd := exec.Command(os.Args[0], "-addr", addr.String(), "-loops", "2", "-transport", "auto")
	cmd.Env = append(os.Environ(), "ECHO_MAIN=1")
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var c net.Conn
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if c, err = net.Dial("tcp", addr.String()); err == nil {
			break
		}
		require.True(t, time.Now().Before(deadline), "%v", err)
	}
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(c, "hello")
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
}
