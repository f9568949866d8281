//go:build linux

package inbox

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/transport"
)

func newWaker(t *testing.T) *Waker {
	w := new(Waker)
	require.NoError(t, w.Open())
	return w
}

// written returns how often an eventfd was written to since it was last asked.
func written(t *testing.T, fd int) uint64 {
	t.Helper()
	var p [8]byte
	_, err := unix.Read(fd, p[:])
	if errors.Is(err, unix.EAGAIN) {
		return 0
	}
	require.NoError(t, err)
	return uint64(p[0]) // little or big, it is small: the other bytes are zero
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestAWakeOfALoopThatIsAwakeMakesNoSystemCall(t *testing.T) {
	w := newWaker(t)
	defer w.Close()
	for range 3 {
		require.NoError(t, w.Wake())
	}
	require.Zero(t, written(t, w.fd))
	require.False(t, w.Sleep(), "the wake is not forgotten")
	require.False(t, w.Sleep(), "until the loop takes notice")
	require.True(t, w.Rouse())
	require.True(t, w.Sleep(), "many count as one")
	for range 3 {
		require.NoError(t, w.Wake())
	}
	require.NotZero(t, written(t, w.fd))
	require.Zero(t, written(t, w.fd), "one write for many wakes")
	require.True(t, w.Rouse())
	require.False(t, w.Rouse())
	require.True(t, w.Sleep())
	require.False(t, w.Rouse(), "nobody woke it")
	require.NoError(t, w.Wake())
	require.True(t, w.Woken())
	require.True(t, w.Rouse())
	require.False(t, w.Woken())
}

func TestNobodyWritesToADescriptorThatIsClosed(t *testing.T) {
	w := newWaker(t)
	require.True(t, w.Sleep())
	// A goroutine has decided to write, and is preempted.
	w.state.Store(told + writer)
	require.Zero(t, w.Close())
	require.True(t, isOpen(w.fd), "closing is left to it")
	require.ErrorIs(t, w.Wake(), transport.ErrClosed)
	require.NoError(t, w.signal())
	require.False(t, isOpen(w.fd))
	require.ErrorIs(t, w.Wake(), transport.ErrClosed)
}

func TestCloseWithoutWritersClosesAtOnce(t *testing.T) {
	w := newWaker(t)
	require.NoError(t, w.Wake())
	require.Zero(t, w.Close())
	require.False(t, isOpen(w.fd))
	require.ErrorIs(t, w.Wake(), transport.ErrClosed)
}

func TestAWakerThatWasNotOpenedClosesNothing(t *testing.T) {
	var w Waker
	require.Zero(t, w.Close())
	require.True(t, isOpen(0))
	require.ErrorIs(t, w.Wake(), transport.ErrClosed)
	opened := newWaker(t)
	require.Zero(t, opened.Close())
	again := newWaker(t)
	require.Equal(t, opened.FD(), again.FD(), "the number is used again")
	require.Zero(t, opened.Close())
	require.True(t, isOpen(again.FD()))
	require.Zero(t, again.Close())
}
