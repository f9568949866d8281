package x

// one answers a number. want "answers"
func one() int { return 1 }

// two returns a number. It tells whether want "tells whether"
// it is even.
func two() (int, bool) { return 2, true }

// server answers each request: what it sends is an answer.
type server struct {
	// number answers a number. want "answers"
	number func() int
	// even tells whether it is even. want "tells whether"
	even bool
}

// counter counts.
type counter interface {
	// Count answers how many. want "answers"
	Count() int
	// Ready reports whether it answers. want "answers"
	Ready() bool
}

func three() int {
	// server answers here, and that is what it does
	return 3
}

// four waits for the answers that are still due.
func four() {}
