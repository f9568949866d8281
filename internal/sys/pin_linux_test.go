package sys

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPinThreadTakesTheAllowedProcessorsInTurn(t *testing.T) {
	done := make(chan struct{})
	go func() { // a thread of its own, which ends with the goroutine
		defer close(done)
		runtime.LockOSThread()
		var allowed unix.CPUSet
		if !assert.NoError(t, unix.SchedGetaffinity(0, &allowed)) {
			return
		}
		n := allowed.Count()
		seen := map[unix.CPUSet]bool{}
		for i := range n {
			if !assert.NoError(t, unix.SchedSetaffinity(0, &allowed)) || !assert.NoError(t, PinThread(i)) {
				return
			}
			var now unix.CPUSet
			assert.NoError(t, unix.SchedGetaffinity(0, &now))
			assert.Equal(t, 1, now.Count())
			seen[now] = true
		}
		assert.Len(t, seen, n)
		assert.NoError(t, unix.SchedSetaffinity(0, &allowed))
		assert.NoError(t, PinThread(n), "counted round")
		var now unix.CPUSet
		assert.NoError(t, unix.SchedGetaffinity(0, &now))
		assert.True(t, seen[now])
	}()
	<-done
	require.False(t, t.Failed())
}
