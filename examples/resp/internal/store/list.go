package store

// List is a queue with two ends in a ring of strings. Pushing and popping take constant time on average. Its memory
// follows its length. The zero value is empty.
type List struct {
	ring  []string // its length is a power of two, or 0
	first int
	n     int
}

// Len is the number of elements.
func (l *List) Len() int { return l.n }

// At is the element i, counted from 0 at the left.
func (l *List) At(i int) string { return l.ring[l.place(i)] }

// PushLeft puts s before the others.
func (l *List) PushLeft(s string) {
	l.grow()
	l.first = l.place(len(l.ring) - 1)
	l.ring[l.first] = s
	l.n++
}

// PushRight puts s behind the others.
func (l *List) PushRight(s string) {
	l.grow()
	l.ring[l.place(l.n)] = s
	l.n++
}

// PopLeft takes the first element, which must exist.
func (l *List) PopLeft() string {
	s := l.ring[l.first]
	l.ring[l.first] = ""
	l.first = l.place(1)
	l.n--
	l.shrink()
	return s
}

// PopRight takes the last element, which must exist.
func (l *List) PopRight() string {
	i := l.place(l.n - 1)
	s := l.ring[i]
	l.ring[i] = ""
	l.n--
	l.shrink()
	return s
}

func (l *List) place(i int) int { return (l.first + i) & (len(l.ring) - 1) }

func (l *List) grow() {
	if l.n == len(l.ring) {
		l.move(max(4, 2*len(l.ring)))
	}
}

// shrink halves the ring when a quarter is in use: never right after it has grown.
func (l *List) shrink() {
	if len(l.ring) > 16 && l.n <= len(l.ring)/4 {
		l.move(len(l.ring) / 2)
	}
}

func (l *List) move(size int) {
	ring := make([]string, size)
	for i := range l.n {
		ring[i] = l.At(i)
	}
	l.ring, l.first = ring, 0
}
