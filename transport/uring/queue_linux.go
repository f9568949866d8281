package uring

// fifo is a queue that reuses its memory. It is bounded by what is put in: at most a few entries for each operation of
// each socket.
type fifo[T any] struct {
	items []T
	first int
}

func (q *fifo[T]) len() int { return len(q.items) - q.first }

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }

// peek returns the first entry of a queue that is not empty.
func (q *fifo[T]) peek() *T { return &q.items[q.first] }

// pop drops the first entry.
func (q *fifo[T]) pop() {
	q.first++
	switch {
	case q.first == len(q.items):
		q.items, q.first = q.items[:0], 0
	case q.first >= 1024 && 2*q.first >= len(q.items):
		// A queue that never runs empty must not grow: move what is left to the front, at most once per entry popped.
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
}
