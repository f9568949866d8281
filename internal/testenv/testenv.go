// Package testenv decides what a test does when the machine lacks something it needs: skip with the reason, or fail
// where the environment says that it must be there; and it counts what a test may leave behind.
package testenv

import (
	"os"
	"strings"
	"testing"
)

// Variable names the environment variable that lists, separated by commas, the features that must be there; "all"
// stands for every feature. A gate sets it so that a skip cannot hide that something was not tested.
const Variable = "WEIR_REQUIRE"

// Require returns when err is nil: the feature is there. Otherwise the test is skipped with the reason, or fails when
// WEIR_REQUIRE names the feature. Features are short lower-case words: "uring", "ipv6", "netns", "root". It belongs to
// the test's goroutine.
func Require(t testing.TB, feature string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if Required(feature) {
		t.Fatalf("%s asks for %q, which is not there: %v", Variable, feature, err)
		return // a real Fatalf does not come here
	}
	t.Skipf("needs %q, which is not there: %v", feature, err)
}

// Required reports whether WEIR_REQUIRE names the feature.
func Required(feature string) bool {
	for name := range strings.SplitSeq(os.Getenv(Variable), ",") {
		if name = strings.TrimSpace(name); name == feature || name == "all" {
			return true
		}
	}
	return false
}

// Thorough reports whether tests take the time that the gate gives them: WEIR_REQUIRE names "thorough", and -short is
// not set. Otherwise models try fewer seeds, and tests of large numbers smaller ones. Any goroutine.
func Thorough() bool { return !testing.Short() && Required("thorough") }

// OpenDescriptors is how many descriptors the process has open, with the one that counting takes (proc(5)); 0 where
// that cannot be known. Any goroutine.
func OpenDescriptors() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(names)
}
