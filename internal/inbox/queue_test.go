package inbox

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheQueueKeepsOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var q Queue[int]
	var model, dst []int
	for i := range 100_000 {
		switch rng.IntN(4) {
		case 0:
			q.Push(i)
			model = append(model, i)
		case 1:
			p := q.Add()
			require.Zero(t, *p)
			*p = i
			model = append(model, i)
		case 2:
			if len(model) > 0 {
				require.Equal(t, model[0], *q.Peek())
				q.Pop()
				model = model[1:]
			}
		default:
			n := min(rng.IntN(5), len(model))
			dst = q.Take(append(dst[:0], -1), n)
			require.Equal(t, append([]int{-1}, model[:n]...), dst)
			model = model[n:]
		}
		require.Equal(t, len(model), q.Len())
	}
}

// TestAQueueKeepsNothingAlive that was taken, and does not grow while it never runs empty.
func TestAQueueKeepsNothingAlive(t *testing.T) {
	var q Queue[*int]
	q.Push(new(int))
	for range 1_000_000 {
		q.Push(new(int))
		q.Pop()
	}
	require.LessOrEqual(t, cap(q.items), 8192)
	alive := 0
	for _, p := range q.items[:cap(q.items)] {
		if p != nil {
			alive++
		}
	}
	require.Equal(t, 1, alive)
}

func Example() {
	var q Queue[string]
	q.Push("a")
	*q.Add() = "b"
	fmt.Println(q.Take(nil, 10), q.Len())
	// Output: [a b] 0
}
