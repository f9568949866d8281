package loop

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
)

func TestGoroutineStackIsThatOfTheGoroutineAlone(t *testing.T) {
	release := make(chan struct{})
	id := make(chan int64)
	go waitNamed(id, release)
	stack := goroutineStack(<-id)
	close(release)
	assert.Contains(t, stack, "loop.waitNamed")
	assert.NotContains(t, stack, "testing.tRunner", "another goroutine's frames")
	assert.True(t, strings.HasPrefix(stack, "goroutine "))
}

func waitNamed(id chan int64, release chan struct{}) {
	id <- goroutineID()
	<-release
}

func TestWatchdogThatNobodyWantsIsNotStarted(t *testing.T) {
	for after, want := range map[time.Duration]bool{-1: false, 0: true, time.Second: true} {
		g, err := NewGroup(2, func(int) Config {
			return Config{
				Open:          func(bool) (transport.Transport, error) { return &clockOnly{}, nil },
				Logger:        slog.New(slog.DiscardHandler),
				WatchdogAfter: after,
			}
		})
		require.NoError(t, err)
		g.Stop() // the loops end as soon as they are open
		require.NoError(t, g.Start())
		g.watchdog.mu.Lock()
		assert.Equal(t, want, g.watchdog.timer != nil, "WatchdogAfter %v", after)
		g.watchdog.mu.Unlock()
		require.NoError(t, g.Wait(context.Background()))
	}
}

func TestCutStack(t *testing.T) {
	dump := []byte("goroutine 1 [running]:\na\n\ngoroutine 12 [select]:\nb\nc\n\ngoroutine 123 [chan receive]:\nd\n")
	for id, want := range map[int64]string{
		1:   "goroutine 1 [running]:\na",
		12:  "goroutine 12 [select]:\nb\nc",
		123: "goroutine 123 [chan receive]:\nd\n",
		2:   "",
		-1:  "",
	} {
		assert.Equal(t, want, cutStack(dump, id))
	}
}

func TestGoroutineIDIsThatOfTheHeadLine(t *testing.T) {
	buf := make([]byte, 1<<10)
	head := string(buf[:runtime.Stack(buf, false)])
	assert.Contains(t, head, "goroutine "+itoa(goroutineID())+" [")
}

func itoa(n int64) string {
	var b []byte
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}
