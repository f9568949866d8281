//go:build linux

package epoll

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/transport"
)

func TestAWakeEndsOneWaitOnly(t *testing.T) {
	f := open(t, Config{})
	h, _ := f.connection()
	require.NoError(t, f.tr.Wake())
	send := f.send(h, []byte("x"))
	before := f.tr.Counters().BlockingWaits
	f.wait(-1)
	require.True(t, send.done)
	f.wait(time.Millisecond)
	require.EqualValues(t, 1, f.tr.Stats().Wakes)
	require.NotEqual(t, before, f.tr.Counters().BlockingWaits, "the second one waits")
}

func TestWakesFromManyGoroutinesAreNeverLostAndEndWithClose(t *testing.T) {
	for _, raw := range []bool{false, true} {
		f := open(t, Config{Raw: raw})
		const goroutines, rounds = 4, 500
		var posted atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range rounds {
					posted.Add(1)
					assert.NoError(t, f.tr.Wake())
				}
			})
		}
		seen := int64(0)
		for seen < goroutines*rounds { // without limit: a lost wake hangs here
			if now := posted.Load(); now > seen {
				seen = now
				continue
			}
			f.wait(-1)
		}
		all.Wait()
		var stop atomic.Bool
		for range goroutines {
			all.Go(func() {
				for !stop.Load() {
					if err := f.tr.Wake(); err != nil {
						assert.ErrorIs(t, err, transport.ErrClosed)
						return
					}
				}
			})
		}
		f.wait(-1)
		require.NoError(t, f.tr.Close())
		all.Wait()
		stop.Store(true)
		require.ErrorIs(t, f.tr.Wake(), transport.ErrClosed)
	}
}

func TestARawWaitLetsTheRuntimeStopTheWorld(t *testing.T) {
	f := open(t, Config{Raw: true, RawWait: time.Hour})
	var waiting, returned atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		waiting.Store(true)
		_, err := f.tr.Wait(nil, -1)
		assert.NoError(t, err)
		returned.Store(true)
	}()
	for !waiting.Load() || !f.tr.wake.Asleep() {
		runtime.Gosched()
	}
	for range 5 {
		runtime.GC() // would not return while the goroutine holds its P in the kernel for an hour
	}
	require.False(t, returned.Load())
	require.NoError(t, f.tr.Wake())
	<-done
	require.Zero(t, f.tr.Counters().BlockingWaits)
}

func TestARawWaitIsBoundedAndThenTheSchedulerIsTold(t *testing.T) {
	for _, c := range []struct {
		raw           bool
		timeout, wait time.Duration
		blocking      uint64
	}{
		{true, time.Millisecond, 2 * time.Millisecond, 0},
		{true, 2 * time.Millisecond, 2 * time.Millisecond, 0},
		{true, 3 * time.Millisecond, 2 * time.Millisecond, 1},
		{true, 2500 * time.Microsecond, 1300 * time.Microsecond, 1},
		{false, time.Millisecond, 2 * time.Millisecond, 1},
		{false, 0, 2 * time.Millisecond, 0},
	} {
		f := open(t, Config{Raw: c.raw, RawWait: c.wait})
		want := Counters{EpollWaits: 1, BlockingWaits: c.blocking}
		if c.raw && c.blocking == 1 {
			want.EpollWaits = 2
		}
		var got Counters
		for range 100 { // a signal makes it wait again
			before := f.tr.Counters()
			f.wait(c.timeout)
			after := f.tr.Counters()
			got = Counters{
				EpollWaits:    after.EpollWaits - before.EpollWaits,
				BlockingWaits: after.BlockingWaits - before.BlockingWaits,
			}
			if got == want {
				break
			}
		}
		require.Equal(t, want, got, "%+v", c)
	}
}

// sleeping runs one endless Wait on another goroutine, and fn when it has begun; fn ends it.
func (f *fixture) sleeping(fn func()) {
	f.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := f.tr.Wait(nil, -1)
		assert.NoError(f, err)
	}()
	for !f.tr.wake.Asleep() {
		runtime.Gosched()
	}
	fn()
	<-done
}

func TestAnEndlessRawWaitTellsTheSchedulerInTheEnd(t *testing.T) {
	f := open(t, Config{Raw: true, RawWait: time.Millisecond})
	for head := time.Millisecond; f.tr.Counters().BlockingWaits == 0; head *= 2 {
		require.Less(t, head, patience)
		f.sleeping(func() {
			time.Sleep(head) // more than RawWait, unless the machine is very busy
			assert.NoError(t, f.tr.Wake())
		})
	}
}

func TestAWakeThatWasSeenDoesNotWakeAgain(t *testing.T) {
	f := open(t, Config{})
	for range 3 {
		f.sleeping(func() { assert.NoError(t, f.tr.Wake()) })
	}
	require.EqualValues(t, 3, f.tr.Stats().Wakes)
	f.wait(0)
	require.Zero(t, f.wakeUps())
}

func TestASignalDoesNotEndAWait(t *testing.T) {
	for _, raw := range []bool{false, true} {
		f := open(t, Config{Raw: raw})
		var tid atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid.Store(int64(unix.Gettid()))
			_, err := f.tr.Wait(nil, time.Hour)
			assert.NoError(t, err)
		}()
		for tid.Load() == 0 || !f.tr.wake.Asleep() {
			runtime.Gosched()
		}
		for range 20 {
			// The signal Go's runtime uses itself; it is harmless and makes epoll_wait return EINTR (signal(7)).
			require.NoError(t, unix.Tgkill(unix.Getpid(), int(tid.Load()), unix.SIGURG))
			time.Sleep(100 * time.Microsecond) // time for the signal to arrive; the claim holds without it
		}
		select {
		case <-done:
			require.Fail(t, "the wait ended")
		default:
		}
		require.NoError(t, f.tr.Wake())
		<-done
	}
}

func TestErrnosOfCompletionsDoNotAllocate(t *testing.T) {
	var err error
	allocs := testing.AllocsPerRun(100, func() { err = syscall.ECONNRESET })
	require.Zero(t, allocs)
	require.Error(t, err)
}
