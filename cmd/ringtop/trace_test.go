package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/internal/testenv"
)

// openRing returns a ring of this test's goroutine.
func openRing(t testing.TB, cfg ring.Config) *ring.Ring {
	t.Helper()
	runtime.LockOSThread()
	r, err := ring.Open(cfg)
	testenv.Require(t, "uring", err)
	t.Cleanup(func() {
		r.Close()
		runtime.UnlockOSThread()
	})
	return r
}

func self(t testing.TB) *Process {
	t.Helper()
	p, err := FindProcess("/proc", os.Getpid())
	require.NoError(t, err)
	return p
}

// openTracer traces this process.
func openTracer(t testing.TB) *Tracer {
	t.Helper()
	tracer, err := OpenTracer(self(t))
	testenv.Require(t, "bpf", err)
	t.Cleanup(func() { assert.NoError(t, tracer.Close()) })
	return tracer
}

func activity(t *testing.T, tracer *Tracer) Activity {
	t.Helper()
	a, err := tracer.Activity()
	require.NoError(t, err)
	return a
}

// onlyRing returns the one ring of this process as /proc shows it.
func onlyRing(t *testing.T) Ring {
	t.Helper()
	rings, err := self(t).Rings()
	require.NoError(t, err)
	require.Len(t, rings, 1)
	require.True(t, rings[0].Queues)
	return rings[0]
}

func TestRequestsAndOverflowAreCountedExactly(t *testing.T) {
	const cq, more = 16, 5
	r := openRing(t, ring.Config{Entries: 8, CQEntries: cq})
	tracer := openTracer(t)
	for range (cq + more) / 7 {
		for range 7 {
			ring.Nop(r.Get())
		}
		require.NoError(t, r.Submit())
	}
	got := onlyRing(t)
	assert.Equal(t, Queue{Entries: cq, Tail: cq}, got.CQ)
	assert.Equal(t, uint32(cq), got.CQ.Used())
	assert.Equal(t, uint32(8), got.SQ.Entries)
	assert.Equal(t, uint32(cq+more), got.SQ.Head)
	assert.Equal(t, more, got.Overflow)

	nop := activity(t, tracer).Of("NOP")
	assert.Equal(t, uint64(cq), nop.Latency.Count(), "what overflowed has no latency")
	nop.Latency = Histogram{}
	assert.Equal(t, counters{Submitted: cq + more, Completed: cq + more, Overflow: more}, nop)
}

func TestEntriesThatWaitForSubmissionAreShown(t *testing.T) {
	r := openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	ring.Nop(r.Get())
	require.NoError(t, r.Poll())
	assert.Equal(t, uint32(0), onlyRing(t).SQ.Used())
	assert.Equal(t, uint32(1), onlyRing(t).CQ.Used())
}

func TestPollsAndFailuresAreCounted(t *testing.T) {
	r := openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { reader.Close(); writer.Close() })
	tracer := openTracer(t)

	e := r.Get()
	ring.Poll(e, int32(reader.Fd()), 1, true)
	e.SetUserData(42)
	require.NoError(t, r.Submit())
	assert.Equal(t, 1, onlyRing(t).Polls)

	// Each readiness of a poll that stays armed is a completion that is not its last.
	_, err = writer.WriteString("x")
	require.NoError(t, err)
	require.NoError(t, r.Poll())
	poll := activity(t, tracer).Of("POLL_ADD")
	assert.Equal(t, counters{Submitted: 1, Completed: 1, Posted: 1}, poll)

	ring.Cancel(r.Get(), 42)
	require.NoError(t, r.Poll())
	require.NoError(t, r.Poll())
	poll = activity(t, tracer).Of("POLL_ADD")
	assert.Equal(t, uint64(1), poll.Latency.Count())
	poll.Latency = Histogram{}
	assert.Equal(t, counters{Submitted: 1, Completed: 2, Posted: 1, Failed: 1}, poll, "ECANCELED")
	assert.Equal(t, uint64(1), activity(t, tracer).Of("ASYNC_CANCEL").Submitted)
}

func TestWorkersAreSeen(t *testing.T) {
	r := openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	tracer := openTracer(t)
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("some text"), 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()

	const async = 1 << 4 // IOSQE_ASYNC, io_uring_enter(2)
	e := r.Get()
	into := make([]byte, 9)
	ring.ReadAt(e, int32(file.Fd()), into, 0)
	e.SetFlags(async)
	require.NoError(t, r.Submit())
	servertest.Eventually(t, func() bool { // it completes when its thread enters the kernel
		return r.Poll() == nil && activity(t, tracer).Of("READ").Completed == 1
	}, "the read")
	read := activity(t, tracer).Of("READ")
	assert.Equal(t, []uint64{1, 1, 1}, []uint64{read.Submitted, read.Async, read.Latency.Count()})
	threads, err := self(t).Threads()
	require.NoError(t, err)
	assert.Equal(t, Threads{Workers: 1}, threads) // it stays a while for more
	runtime.KeepAlive(into)
}

func TestRequestsUnderWayBeforeTracingKeepTheirOpcode(t *testing.T) {
	r := openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { reader.Close(); writer.Close() })
	const once, always = 1, 2
	for data, multishot := range map[uint64]bool{once: false, always: true} {
		e := r.Get()
		ring.Poll(e, int32(reader.Fd()), 1, multishot)
		e.SetUserData(data)
	}
	require.NoError(t, r.Submit())
	tracer := openTracer(t)
	ring.Nop(r.Get()) // by which the ring becomes known
	require.NoError(t, r.Submit())
	_, err = writer.WriteString("x")
	require.NoError(t, err)
	require.NoError(t, r.Poll())
	assert.Equal(t, counters{Completed: 2, Posted: 1}, activity(t, tracer).Of("POLL_ADD"))
}

func TestAnotherProcessIsNotCounted(t *testing.T) {
	r := openRing(t, ring.Config{Entries: 8, CQEntries: 16})
	other, err := FindProcess("/proc", os.Getppid())
	require.NoError(t, err)
	tracer, err := OpenTracer(other)
	testenv.Require(t, "bpf", err)
	defer tracer.Close()
	ring.Nop(r.Get())
	require.NoError(t, r.Poll())
	assert.Zero(t, activity(t, tracer).Of("NOP"))
}

func TestWeirServerIsSeen(t *testing.T) {
	servertest.Need(t, weir.Uring)
	tracer := openTracer(t)
	address := servertest.StartTCP(t, &weir.Server{Transport: weir.Uring, Loops: 2, Init: servertest.InitEcho})
	rings, err := self(t).Rings()
	require.NoError(t, err)
	require.Len(t, rings, 2)

	const clients, messages = 3, 20
	for i := range clients {
		conn := servertest.Dial(t, "tcp", address)
		for j := range messages {
			require.NoError(t, servertest.Ping(conn, fmt.Sprint(i, j)))
		}
	}
	seen := activity(t, tracer)
	assert.GreaterOrEqual(t, seen.Of("ACCEPT").Completed, uint64(clients))
	recv := seen.Of("RECV")
	assert.GreaterOrEqual(t, recv.Completed, uint64(clients*messages), "%+v", seen)
	assert.LessOrEqual(t, recv.Submitted, uint64(clients*messages), "one receive delivers many times")
	assert.GreaterOrEqual(t, seen.Of("SEND").Submitted, uint64(clients*messages))
	assert.Zero(t, seen.Of("SEND").Overflow)
}

// programs are the numbers of ringtop's programs that the kernel holds, but for those known before.
func programs(t *testing.T, before map[ebpf.ProgramID]bool) map[ebpf.ProgramID]bool {
	t.Helper()
	found := map[ebpf.ProgramID]bool{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return found
		}
		testenv.Require(t, "bpf", err)
		id = next
		program, err := ebpf.NewProgramFromID(id)
		if err != nil { // gone since
			continue
		}
		if info, err := program.Info(); err == nil && info.Name == "ringtop" && !before[id] {
			found[id] = true
		}
		program.Close()
	}
}

// gone waits until none of the programs is left: the kernel frees them a grace period after their last user.
func gone(t *testing.T, mine map[ebpf.ProgramID]bool) {
	t.Helper()
	servertest.Eventually(t, func() bool {
		for id := range programs(t, nil) {
			if mine[id] {
				return false
			}
		}
		return true
	}, "the programs go")
}

func TestClosedTracerLeavesNothing(t *testing.T) {
	descriptors, before := testenv.OpenDescriptors(), programs(t, nil)
	tracer := openTracer(t)
	mine := programs(t, before)
	assert.GreaterOrEqual(t, len(mine), len(points()))
	require.NoError(t, tracer.Close())
	assert.Equal(t, descriptors, testenv.OpenDescriptors())
	gone(t, mine)
}

func TestSizesFitTheKernelsLayout(t *testing.T) {
	assert.Equal(t, sizeCounters, int(8*(6+buckets)))
	assert.Equal(t, time.Duration(0), (&Histogram{}).Quantile(1))
}

// BenchmarkRequests is what tracing costs the process that is looked at: a NOP, alone and traced, in batches of 8.
func BenchmarkRequests(b *testing.B) {
	for _, traced := range []bool{false, true} {
		b.Run(fmt.Sprintf("traced=%t", traced), func(b *testing.B) {
			r := openRing(b, ring.Config{Entries: 8, CQEntries: 16})
			if traced {
				openTracer(b)
			}
			for b.Loop() {
				for range 8 {
					ring.Nop(r.Get())
				}
				if err := r.Poll(); err != nil {
					b.Fatal(err)
				}
				_, end := r.Ready()
				r.Reaped(end)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(8*b.N), "ns/request")
		})
	}
}
