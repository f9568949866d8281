//go:build linux

package weir_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/testenv"
)

const deniedEnv = "WEIR_TEST_DENIED" // in the child: how io_uring is denied

// TestServerWithoutIoUringServesOverEpollWithOneLogLine runs itself in children to which io_uring is denied in the ways
// that happen: by a container's seccomp filter or by sysctl (kernel.io_uring_disabled gives EPERM, too), and by a
// kernel (or a filter) that does not know the calls.
func TestServerWithoutIoUringServesOverEpollWithOneLogLine(t *testing.T) {
	if how := os.Getenv(deniedEnv); how != "" {
		serveDenied(t, how)
		return
	}
	for _, how := range []string{"EPERM", "ENOSYS"} {
		t.Run(how, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestServerWithoutIoUringServesOverEpollWithOneLogLine$", "-test.v")
			child.Env = append(os.Environ(), deniedEnv+"="+how)
			out, err := child.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "served over epoll", "%s", out)
			t.Logf("%s", out)
		})
	}
}

func serveDenied(t *testing.T, how string) {
	calls := []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}
	switch how {
	case "EPERM":
		require.NoError(t, testenv.DenyCalls(syscall.EPERM, calls...))
	case "ENOSYS":
		require.NoError(t, testenv.DenyCalls(syscall.ENOSYS, calls...))
	}
	var text bytes.Buffer
	srv := &weir.Server{Loops: 2, Init: initEcho, Logger: slog.New(slog.NewTextHandler(&text, nil))}
	at, err := srv.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := connect(t, "tcp", at.String())
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	require.NoError(t, srv.Close())

	forced := &weir.Server{Loops: 1, Transport: weir.Uring, Init: only(func() any { return echo{} }), Logger: quiet()}
	_, err = forced.Listen("tcp", "127.0.0.1:0")
	require.Error(t, err, "a chosen transport never falls back")
	_ = forced.Close()

	require.Equal(t, 1, strings.Count(text.String(), "\n"), "%s", text.String())
	require.Contains(t, text.String(), "falls back")
	fmt.Printf("served over epoll: %s", text.String())
	fmt.Printf("uring by name: %v\n", err)
}
