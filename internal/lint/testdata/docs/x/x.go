package x // want "package x has no comment"

func Bad() {} // want "Bad has no comment"

// Good is good.
func Good() {}

func unexported() {}

type T struct{} // want "T has no comment"

func (t T) Method() {} // want "Method has no comment"

type hidden struct{}

func (h hidden) Method() {}

// Many are many.
const (
	A = iota
	B
)

const (
	C = iota // C is fine.
	// E is fine.
	E
)

var (
	X/* want "X has no comment" */ int

	y int
)

// Types are types.
type (
	U int
	V int
)

//weir:immutable a directive is no comment
var Z /* want "Z has no comment" */ int

// G is generic.
type G[T any] struct{}

func (g *G[T]) Method() {} // want "Method has no comment"
