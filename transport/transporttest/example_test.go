package transporttest_test

import (
	"fmt"

	"github.com/weirnet/weir/transport/transporttest"
)

// Every claim is a sentence and the name of a subtest.
func ExampleClaims() {
	for _, claim := range transporttest.Claims(transporttest.All())[:3] {
		fmt.Println(claim)
	}
	// Output:
	// Wait appends to dst and leaves alone what dst holds
	// Wait never hands out more than dst has room for
	// Wait hands out at most 256 completions when dst has no room
}
