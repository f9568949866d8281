//go:build linux

package ring

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	abi "github.com/iceber/iouring-go/syscall"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/testenv"
)

// open returns a ring on this goroutine, locked to its thread until the test ends. Without io_uring the test is
// skipped, or fails where the environment says that io_uring must be there.
func open(tb testing.TB, cfg Config) *Ring {
	tb.Helper()
	runtime.LockOSThread()
	r, err := Open(cfg)
	testenv.Require(tb, "uring", err)
	tb.Cleanup(func() {
		r.Close()
		runtime.UnlockOSThread()
	})
	return r
}

type result struct {
	data  uint64
	res   int32
	flags uint32
}

// reap returns what has completed.
func reap(r *Ring) []result {
	var all []result
	first, end := r.Ready()
	for ; first != end; first++ {
		c := r.Completion(first)
		all = append(all, result{c.UserData(), c.Result(), c.Flags()})
	}
	r.Reaped(end)
	return all
}

// collect enters until there are n completions.
func collect(tb testing.TB, r *Ring, n int) []result {
	tb.Helper()
	all := reap(r)
	for tries := 0; len(all) < n; tries++ {
		require.Less(tb, tries, 200, "completions missing: have %v, want %d", all, n)
		require.NoError(tb, r.Wait(50*time.Millisecond, true))
		all = append(all, reap(r)...)
	}
	require.Len(tb, all, n)
	return all
}

func nop(r *Ring, data uint64) bool {
	e := r.Get()
	if e == nil {
		return false
	}
	Nop(e)
	e.SetUserData(data)
	return true
}

func pair(tb testing.TB) (int32, int) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
	})
	return int32(fds[0]), fds[1]
}

func TestRingWorksWithWhateverFlagsAreLeft(t *testing.T) {
	for _, tc := range []struct {
		name          string
		without, gone Flags
	}{
		{name: "all"},
		{name: "no NO_SQARRAY", without: NoSQArray, gone: NoSQArray},
		{name: "no DEFER_TASKRUN", without: DeferTaskrun, gone: DeferTaskrun},
		{name: "no SINGLE_ISSUER", without: SingleIssuer, gone: SingleIssuer | DeferTaskrun},
		{name: "no COOP_TASKRUN", without: DeferTaskrun | CoopTaskrun, gone: DeferTaskrun | CoopTaskrun},
		{name: "no SUBMIT_ALL", without: SubmitAll, gone: SubmitAll},
		{name: "no CLAMP", without: Clamp, gone: Clamp},
		{name: "none", without: ^Flags(0), gone: ^Flags(0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := open(t, Config{Entries: 8, CQEntries: 16, Without: tc.without})
			require.Zero(t, r.Flags()&tc.gone)
			require.Equal(t, wanted&^tc.gone, r.Flags()&wanted)
			for round := uint64(0); round < 100; round++ { // the queues wrap around
				for i := range uint64(5) {
					require.True(t, nop(r, round<<8|i))
				}
				for i, c := range collect(t, r, 5) {
					require.Equal(t, result{data: round<<8 | uint64(i)}, c)
				}
			}
		})
	}
}

func TestGetAnswersNothingWhenTheQueueIsFull(t *testing.T) {
	r := open(t, Config{Entries: 8, CQEntries: 16})
	require.Equal(t, 8, r.Room())
	for i := range uint64(7) {
		require.True(t, nop(r, i))
	}
	require.Equal(t, 1, r.Room())
	require.True(t, nop(r, 7))
	require.Equal(t, 0, r.Room())
	require.False(t, nop(r, 8))
	require.Equal(t, 8, r.Pending())
	require.NoError(t, r.Submit())
	require.Equal(t, r.Prepared(), r.Consumed())
	require.Zero(t, r.Pending())
	require.True(t, nop(r, 8))
	collect(t, r, 9)
}

func TestWaitEndsWithoutCompletions(t *testing.T) {
	r := open(t, Config{Entries: 8})
	for _, raw := range []bool{true, false} {
		require.NoError(t, r.Wait(time.Millisecond, raw))
		require.NoError(t, r.Wait(0, raw))
		require.Empty(t, reap(r))
	}
}

func TestOverflowLosesNothing(t *testing.T) {
	const queue, n = 4, 12
	r := open(t, Config{Entries: queue, CQEntries: queue})
	for i := range uint64(n) {
		require.True(t, nop(r, i))
		require.NoError(t, r.Submit())
		if i == queue-1 {
			require.False(t, r.Overflown(), "the queue holds %d", queue)
			require.Zero(t, r.CQSpace())
		}
	}
	require.True(t, r.Overflown())
	for i, c := range collect(t, r, n) {
		require.Equal(t, uint64(i), c.data)
	}
	require.NoError(t, r.Poll())
	require.False(t, r.Overflown())
	require.Zero(t, r.Dropped())
}

func TestOnlyTheOpeningThreadEnters(t *testing.T) {
	r := open(t, Config{Entries: 8})
	if r.Flags()&SingleIssuer == 0 {
		t.Skip("this kernel has no SINGLE_ISSUER")
	}
	require.NoError(t, r.Poll())
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and die with the thread
		_, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 0, enterGetEvents, 0, 0)
		done <- errno
	}()
	require.ErrorIs(t, <-done, unix.EEXIST)
}

func TestEnteringAndReapingDoesNotAllocate(t *testing.T) {
	r := open(t, Config{Entries: 8})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		nop(r, 1)
		_ = r.Wait(time.Second, true)
		first, end := r.Ready()
		for ; first != end; first++ {
			_ = r.Completion(first).Result()
		}
		r.Reaped(end)
	}))
}

func TestErrorsOfSetupNameTheReason(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		unix.ENOSYS: "ENOSYS",
		unix.EPERM:  "EPERM",
		unix.ENOMEM: "RLIMIT_MEMLOCK",
		unix.EMFILE: "descriptor",
		unix.EINVAL: "invalid argument",
	} {
		err := unavailable(errno)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, errno)
		require.ErrorContains(t, err, want)
	}
}

func TestOpenRefusesLengthsThatAreNoPowersOfTwo(t *testing.T) {
	for _, cfg := range []Config{{Entries: 6}, {Entries: 8, CQEntries: 12}} {
		_, err := Open(cfg)
		require.ErrorContains(t, err, "not powers of two")
	}
}

func TestProbeKnowsWhatThisKernelHas(t *testing.T) {
	ops := open(t, Config{Entries: 8}).Probe()
	require.True(t, ops.Has(abi.IORING_OP_RECV))
	require.True(t, ops.Has(abi.IORING_OP_ASYNC_CANCEL))
	require.False(t, ops.Has(255))
}

func BenchmarkEnter(b *testing.B) {
	for _, tc := range []struct {
		name string
		raw  bool
	}{{"raw=true", true}, {"raw=false", false}} {
		b.Run(tc.name, func(b *testing.B) {
			r := open(b, Config{Entries: 64})
			b.ReportAllocs()
			for b.Loop() {
				nop(r, 1)
				_ = r.Wait(time.Second, tc.raw)
				_, end := r.Ready()
				r.Reaped(end)
			}
		})
	}
}
