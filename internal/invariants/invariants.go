// Package invariants holds the assertions that -tags invariants compiles in. They add checks and never change what the
// code does; without the tag, a block under "if invariants.Enabled" is removed by the compiler.
package invariants

import "fmt"

// Check panics with the formatted message when ok is false and the build has -tags invariants. Guard calls whose
// arguments cost something with "if invariants.Enabled".
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
