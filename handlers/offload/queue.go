package offload

// ring is a queue in a circle of memory, which grows as needed and shrinks when it is empty.
type ring[T any] struct {
	items []T // a power of two of them, or none
	head  int
	n     int
}

// keepItems is for how many items an empty ring keeps its memory.
const keepItems = 256

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) push(v T) {
	if r.n == len(r.items) {
		grown := make([]T, max(8, 2*r.n))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.items, r.head = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = v
}

// pop takes the oldest one out. There must be one.
func (r *ring[T]) pop() T {
	var zero T
	v := r.items[r.head]
	r.items[r.head] = zero
	r.head = (r.head + 1) & (len(r.items) - 1)
	if r.n--; r.n == 0 && len(r.items) > keepItems {
		r.items, r.head = nil, 0
	}
	return v
}

// at is the place of the i-th oldest.
func (r *ring[T]) at(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

// waiters is a list of links in the order they came.
type waiters struct {
	first, last *link
	n           int
}

// push puts l, which is in no list, behind the others.
func (w *waiters) push(l *link) {
	l.listed, l.prev, l.next = true, w.last, nil
	if w.last != nil {
		w.last.next = l
	} else {
		w.first = l
	}
	w.last = l
	w.n++
}

// remove reports whether l was in the list.
func (w *waiters) remove(l *link) bool {
	if !l.listed {
		return false
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		w.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		w.last = l.prev
	}
	l.listed, l.prev, l.next = false, nil, nil
	w.n--
	return true
}
