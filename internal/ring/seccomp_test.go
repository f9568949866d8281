//go:build linux

package ring

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const seccompEnv = "WEIR_TEST_SECCOMP_ERRNO"

// TestOpenSaysThatAFilterDeniesIt runs itself in a child that denies itself io_uring_setup, as container runtimes do.
func TestOpenSaysThatAFilterDeniesIt(t *testing.T) {
	if text := os.Getenv(seccompEnv); text != "" {
		errno, err := strconv.Atoi(text)
		require.NoError(t, err)
		deny(t, unix.SYS_IO_URING_SETUP, syscall.Errno(errno))
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

// deny makes a system call of this process fail, for good: seccomp(2).
func deny(t *testing.T, call uint32, errno syscall.Errno) {
	t.Helper()
	const loadNumber = 0 // offset of nr in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: loadNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	// SAFETY: the kernel reads the program during the call only.
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	require.Zero(t, failed, "seccomp: %v", failed)
}
