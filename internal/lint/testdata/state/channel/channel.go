package channel

import (
	"errors"
	"fmt"
	"regexp"
)

var ErrClosed = errors.New("closed")

var (
	errA, errB = errors.New("a"), fmt.Errorf("b: %w", ErrClosed)

	errLater error // want "package-level variable errLater"
)

var _ fmt.Stringer = name("")

type name string

func (n name) String() string { return string(n) }

var counter int // want "package-level variable counter"

var table = [...]string{"a", "b"} // want "package-level variable table"

//weir:immutable a table
var marked = [...]string{"a", "b"}

var beside = regexp.MustCompile("a") //weir:immutable a compiled expression

var (
	//weir:immutable a table
	inGroup = []int{1}
	after   = []int{1} // want "package-level variable after"
)

//weir:immutable all of them
var (
	one = 1
	two = 2
)

var hook = func() {} // want "package-level variable hook"

//weir:state not here
var shared int // want "package-level variable shared"

func init() { counter = 1 } // want "init function"

func (n name) init() {}

func local() {
	var fine int
	_ = fine
}
