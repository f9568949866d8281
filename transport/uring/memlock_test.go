//go:build linux

package uring

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/testenv"
)

// withLockedMemory runs fn on a thread without CAP_IPC_LOCK while RLIMIT_MEMLOCK is limit.
func withLockedMemory(t *testing.T, limit uint64, fn func()) {
	t.Helper()
	runtime.LockOSThread() // and not unlocked: the thread ends with its goroutine
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &caps[0]))
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&header, &caps[0]))
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: old.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)) }()
	fn()
}

// TestQueuesAreAsLongAsTheLimitOnLockedMemoryAllows, and when there is no room for the shortest, or for those that were
// asked for, the error names the limit and how to raise it.
func TestQueuesAreAsLongAsTheLimitOnLockedMemoryAllows(t *testing.T) {
	testenv.Require(t, "uring", Probe())
	withLockedMemory(t, 300<<10, func() {
		tr, err := Open(Config{})
		require.NoError(t, err)
		defer tr.Close()
		if len(tr.ring.SQEs) == 4096 {
			t.Skip("this kernel does not count the queues")
		}
		require.GreaterOrEqual(t, len(tr.ring.SQEs), leastEntries)
		require.Len(t, tr.ring.CQEs, 4*len(tr.ring.SQEs))
		_, err = Open(Config{Entries: 4096})
		require.ErrorIs(t, err, ErrUnavailable)
	})
	withLockedMemory(t, 4096, func() {
		_, err := Open(Config{})
		require.True(t, errors.Is(err, ErrUnavailable) && errors.Is(err, unix.ENOMEM), "%v", err)
		for _, said := range []string{"RLIMIT_MEMLOCK", "4 KiB", "LimitMEMLOCK="} {
			require.ErrorContains(t, err, said)
		}
	})
}
