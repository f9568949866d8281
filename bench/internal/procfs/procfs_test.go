//go:build linux

package procfs

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCPUTimeGrowsWithWork(t *testing.T) {
	before, err := CPUTime(os.Getpid())
	require.NoError(t, err)
	assert.Positive(t, before)
	after := before
	for deadline := time.Now().Add(30 * time.Second); after < before+time.Millisecond && time.Now().Before(deadline); {
		after, err = CPUTime(os.Getpid())
		require.NoError(t, err)
	}
	assert.GreaterOrEqual(t, after, before+time.Millisecond)
}

func TestAProcessThatIsNotThereIsAnError(t *testing.T) {
	const none = 1 << 22 // the largest pid_max there is; identifiers are below it
	_, err := CPUTime(none)
	assert.Error(t, err)
	_, err = RSSBytes(none)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Threads(none)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestRSSAndThreadsOfThisProcess(t *testing.T) {
	rss, err := RSSBytes(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, rss, int64(1<<20))
	threads, err := Threads(os.Getpid())
	require.NoError(t, err)
	sum := time.Duration(0)
	for _, th := range threads {
		sum += th.CPU
		assert.GreaterOrEqual(t, th.Switches, int64(0))
	}
	assert.Positive(t, sum)
}

func TestBusyTimeLeavesIdleOut(t *testing.T) {
	busy, err := busyTime([]byte("cpu  1 2 3 1000 2000 4 5 6 700 800\ncpu0 1\n"))
	require.NoError(t, err)
	assert.Equal(t, (1+2+3+4+5+6)*10*time.Millisecond, busy, "guest time is in user time already")
	for _, bad := range []string{"", "cpu 1 2 3\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu a b c d e f g h i\n"} {
		_, err := busyTime([]byte(bad))
		assert.Error(t, err, "%q", bad)
	}
	_, err = BusyTime()
	assert.NoError(t, err)
}
