// Package inbox is where a loop's transport finds what others leave for it between two Waits: wake-ups of other
// goroutines, and completions and work that wait their turn. Both transports of Linux have it.
package inbox

// Queue is a first-in first-out queue that uses its memory again. It is bounded by what is put in. It belongs to the
// loop.
type Queue[T any] struct {
	items []T
	first int
}

// Len is how many entries there are.
func (q *Queue[T]) Len() int { return len(q.items) - q.first }

// Push appends an entry.
func (q *Queue[T]) Push(v T) { q.items = append(q.items, v) }

// Add appends a zero entry and returns it. It is valid until the next Push or Add.
func (q *Queue[T]) Add() *T {
	var zero T
	q.items = append(q.items, zero)
	return &q.items[len(q.items)-1]
}

// Peek returns the first entry of a queue that is not empty.
func (q *Queue[T]) Peek() *T { return &q.items[q.first] }

// Pop drops the first entry.
func (q *Queue[T]) Pop() { q.drop(1) }

// Take moves up to n entries to dst and returns it.
func (q *Queue[T]) Take(dst []T, n int) []T {
	n = min(n, q.Len())
	dst = append(dst, q.items[q.first:q.first+n]...)
	q.drop(n)
	return dst
}

func (q *Queue[T]) drop(n int) {
	clear(q.items[q.first : q.first+n]) // keep nothing alive
	q.first += n
	switch {
	case q.first == len(q.items):
		q.items, q.first = q.items[:0], 0
	case q.first >= 1024 && 2*q.first >= len(q.items):
		// A queue that never runs empty must not grow: move what is left to the front, at most once per entry dropped.
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
}
