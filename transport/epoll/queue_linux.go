package epoll

import "github.com/weirnet/weir/transport"

// completions is a first-in first-out queue of completions. Its memory grows to the longest it ever was.
type completions struct {
	list []transport.Completion
	head int // list[:head] was taken
}

func (q *completions) len() int { return len(q.list) - q.head }

// push returns a zero completion at the end of the queue, valid until the next push.
func (q *completions) push() *transport.Completion {
	if len(q.list) == cap(q.list) && q.head > cap(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, transport.Completion{})
	return &q.list[len(q.list)-1]
}

// take appends up to n completions to dst.
func (q *completions) take(dst []transport.Completion, n int) []transport.Completion {
	n = min(n, q.len())
	taken := q.list[q.head : q.head+n]
	dst = append(dst, taken...)
	clear(taken) // keep nobody's Buf alive
	q.head += n
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return dst
}
