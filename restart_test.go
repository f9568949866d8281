//go:build linux

package weir_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
)

const listeningOn = "listening on "

// serveUntilKilled is the child of TestARestartRightAfterAKillBinds.
func serveUntilKilled(kind weir.Kind) error {
	srv := &weir.Server{Transport: kind, Loops: 2, Init: initEcho}
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listeningOn + addr.String())
	return srv.Wait()
}

// TestARestartRightAfterAKillBinds although a ring keeps its listener for as long as the kernel takes to clear up
// behind a process that was killed.
func TestARestartRightAfterAKillBinds(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		rounds := 3
		if kind == weir.Uring {
			rounds = 12
		}
		for range rounds {
			server := exec.Command(os.Args[0])
			server.Env = append(os.Environ(), "WEIR_TEST_CHILD=until killed on "+string(kind))
			server.Stderr = os.Stderr
			out, err := server.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, server.Start())
			said, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			addr := strings.TrimSpace(strings.TrimPrefix(said, listeningOn))
			client := connect(t, "tcp", addr)
			require.NoError(t, server.Process.Kill())
			_ = server.Wait()

			srv := &weir.Server{Transport: kind, Loops: 2, Init: initEcho, Logger: quiet()}
			_, err = srv.Listen("tcp", addr)
			require.NoError(t, err)
			client.Close()
			require.NoError(t, srv.Close())
		}
	})
}

// TestListenOnAPortInUseFailsInTheEnd and says once why it waits.
func TestListenOnAPortInUseFailsInTheEnd(t *testing.T) {
	t.Parallel()
	owner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer owner.Close()
	var lines atomic.Int32
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		lines.Add(int32(strings.Count(string(p), owner.Addr().String())))
		return len(p), nil
	}), nil))
	srv := &weir.Server{Loops: 1, Init: initEcho, Logger: logger}
	defer srv.Close()
	_, err = srv.Listen("tcp", owner.Addr().String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.EqualValues(t, 1, lines.Load())
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// child is what this binary does as the child process of a test.
func child(role string) int {
	err := fmt.Errorf("unknown role")
	if kind, ok := strings.CutPrefix(role, "until killed on "); ok {
		err = serveUntilKilled(weir.Kind(kind))
	}
	if storm, ok := strings.CutPrefix(role, "storm "); ok {
		kind, way, _ := strings.Cut(storm, " ")
		err = serveInAStorm(weir.Kind(kind), weir.Accept(way))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		return 1
	}
	return 0
}
