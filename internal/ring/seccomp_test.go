//go:build linux

package ring

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/testenv"
)

const seccompEnv = "WEIR_TEST_SECCOMP_ERRNO"

// TestOpenSaysThatAFilterDeniesIt runs itself in a child that denies itself io_uring_setup, as container runtimes do.
func TestOpenSaysThatAFilterDeniesIt(t *testing.T) {
	if text := os.Getenv(seccompEnv); text != "" {
		errno, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.NoError(t, testenv.DenyCalls(syscall.Errno(errno), unix.SYS_IO_URING_SETUP))
		_, err = Open(Config{Entries: 8})
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, syscall.Errno(errno))
		fmt.Printf("child: %v\n", err)
		return
	}
	for errno, want := range map[syscall.Errno]string{unix.EPERM: "seccomp", unix.ENOSYS: "seccomp"} {
		child := exec.Command(os.Args[0], "-test.run=^TestOpenSaysThatAFilterDeniesIt$", "-test.v")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", seccompEnv, int(errno)))
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "child: io_uring is not available")
		require.Contains(t, string(out), want)
	}
}
