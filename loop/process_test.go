package loop_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

func TestLoopsThatWaitRawLeaveOnePToTheRest(t *testing.T) {
	for _, procs := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			const n = 3
			for round := range 2 { // the second finds the places given back
				var raw [n]bool
				g, _, out := testGroup(t, n, func(i int, c *loop.Config) {
					open := c.Open
					c.Open = func(r bool) (transport.Transport, error) { raw[i] = r; return open(r) }
				})
				require.NoError(t, g.Start())
				count := 0
				for i, r := range raw {
					assert.Equal(t, r, g.Loop(i).Raw())
					if r {
						count++
					}
				}
				assert.Equal(t, min(n, procs-1), count, "round %d", round)

				single := openLoop(t) // the count is the process's, not the group's
				assert.Equal(t, n < procs-1, single.Raw())
				require.NoError(t, single.Close())

				g.Stop()
				require.NoError(t, g.Wait(context.Background()))
				lines := 0
				for _, line := range out.all() {
					if strings.Contains(line, "Go's scheduler") {
						lines++
					}
				}
				assert.Equal(t, count < n, lines == 1, "one line for the group: %d", lines)
			}
		})
	}
}

func TestRawPlaceIsGivenBackWhateverEndsTheLoop(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	refused := errors.New("refused")
	for range 2 {
		l := newTestLoop(t, func(c *loop.Config) {
			c.Open = func(raw bool) (transport.Transport, error) {
				assert.True(t, raw)
				return nil, refused
			}
		})
		require.ErrorIs(t, l.Run(), refused)
		assert.Empty(t, l.out.all())

		l = newTestLoop(t, func(c *loop.Config) {
			c.Open = func(bool) (transport.Transport, error) { return nil, refused }
		})
		require.ErrorIs(t, l.Open(), refused)
		assert.False(t, l.Raw())
		_, err := l.RunOnce(0)
		require.ErrorIs(t, err, loop.ErrState)

		l = newTestLoop(t)
		require.NoError(t, l.Execute(runtime.Goexit))
		go func() { _ = l.Run() }()
		closesInTime(t, l.Done(), "the loop")
	}
	l := openLoop(t)
	assert.True(t, l.Raw())
}
