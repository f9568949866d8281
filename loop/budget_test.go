package loop_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// work is one thing that always wants to be done again: a completion's source, a timer, a node or a task.
type work struct {
	kind string
	last int // the turn in which it was done
}

// Whatever the mix, a turn takes no longer than a share for each kind of work and what lies between two looks at the
// clock, each kind gets on in each turn, and within a kind everybody has his turn.
func TestNothingStarvesWhateverTheMix(t *testing.T) {
	const (
		turnTime = time.Millisecond
		mostCost = 200 * time.Microsecond
		turns    = 60
		// Two stretches without a look for each kind: before its share begins, and until it is seen to be over.
		mostTurn = 4*turnTime + 2*(16+16+4+4)*mostCost
	)
	seeds := uint64(10)
	if testenv.Thorough() {
		seeds = 100
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		clocked := &clockedTransport{fakeTransport: newFake()}
		l := openLoop(t, func(c *loop.Config) {
			c.TurnTime = turnTime
			c.Open = func(bool) (transport.Transport, error) { return clocked, nil }
		})
		turn := 0
		var all []*work
		count := map[string]int{}
		add := func(kind string, again func()) (do func()) {
			w := &work{kind: kind}
			all = append(all, w)
			count[kind]++
			return func() {
				w.last = turn
				clocked.passed += time.Duration(rng.Int64N(int64(mostCost)))
				if turn <= turns {
					again()
				}
			}
		}
		costly := func(n int) int { return rng.IntN(2) * rng.IntN(n) }
		for range costly(400) { // sources whose next completion is there as soon as one is dispatched
			p := l.probe(t, "p")
			p.complete = add("completion", func() { clocked.deliver(p.data()) })
			clocked.deliver(p.data())
		}
		for range costly(400) {
			var timer *loop.Timer
			timer = l.NewTimer(l.probe(t, "t"), add("timer", func() { timer.Reset(0) }))
			timer.Reset(0)
		}
		for range costly(400) {
			p := l.probe(t, "n")
			p.runNode = add("node", func() { l.Post(&p.node) })
			l.Post(&p.node)
		}
		for range costly(400) {
			var task func()
			task = add("task", func() { require.NoError(t, l.Execute(task)) })
			require.NoError(t, l.Execute(task))
		}
		for turn = 1; turn <= turns; turn++ {
			clocked.advance(clocked.passed)
			clocked.passed = 0
			_, err := l.RunOnce(0)
			require.NoError(t, err)
			require.LessOrEqual(t, clocked.passed, mostTurn, "seed %d, turn %d, %v", seed, turn, count)
			newest := map[string]int{}
			for _, w := range all {
				newest[w.kind] = max(newest[w.kind], w.last)
				require.LessOrEqual(t, turn-w.last, count[w.kind]/4+1, "seed %d: a %s waits, %v", seed, w.kind, count)
			}
			for kind, last := range newest {
				require.Equal(t, turn, last, "seed %d: no %s was done in a turn, %v", seed, kind, count)
			}
		}
	}
}
