//go:build linux

// Package fieldtest holds tests of the whole stack over real sockets, one for each kind of failure that users of
// event-loop frameworks met in the field. Each runs on every transport there is and ends with a check that nothing is
// left: goroutines, descriptors, buffers, channels.
package fieldtest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirnet/weir/internal/servertest"
)

// childVariable names what this binary does as the child process of a test.
const childVariable = "WEIR_FIELDTEST_CHILD"

// TestMain runs the tests. When all of them were asked for, each row that has a test must have had it run.
func TestMain(m *testing.M) {
	if role := os.Getenv(childVariable); role != "" {
		os.Exit(child(role))
	}
	servertest.ManyAtOnce()
	code := m.Run()
	if code == 0 && everythingRan() {
		if missing := ran.missing(); len(missing) > 0 {
			fmt.Fprintln(os.Stderr, "rows whose test did not run:", missing)
			code = 1
		}
	}
	os.Exit(code)
}

// everythingRan reports whether no flag left tests out.
func everythingRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// child is what this binary does as a child process: it returns the exit code.
func child(role string) int {
	run, known := map[string]func(args []string) error{
		"few descriptors": serveWithFewDescriptors,
		"goroutines":      countGoroutines,
	}[role]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown role", role)
		return 1
	}
	if err := run(flagless(os.Args[1:])); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

// flagless returns the arguments without flags.
func flagless(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return len(a) > 0 && a[0] == '-' })
}

// rowsRun is the rows whose test was started.
type rowsRun struct {
	mu   sync.Mutex
	rows map[string][]string // guarded by mu: the names of the tests, by row
}

var ran = rowsRun{rows: map[string][]string{}}

// covers registers the rows of the field's failures that a test is about. Each such test calls it first.
func covers(t *testing.T, rows ...string) {
	t.Helper()
	ran.mu.Lock()
	defer ran.mu.Unlock()
	for _, row := range rows {
		if !slices.Contains(fieldRows, row) {
			t.Errorf("%q is no row", row)
		}
		ran.rows[row] = append(ran.rows[row], t.Name())
	}
}

// missing returns the rows that neither ran nor belong elsewhere or to later.
func (r *rowsRun) missing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rows []string
	for _, row := range fieldRows {
		if len(r.rows[row]) == 0 && later[row] == "" && elsewhere[row] == (place{}) {
			rows = append(rows, row)
		}
	}
	return rows
}

// countGoroutines prints how many goroutines there are in a process that has imported everything and done nothing. Not
// ours are those that package ants starts when it is imported, which only handlers/offload does.
func countGoroutines([]string) error {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if !strings.Contains(stack, "created by github.com/panjf2000/ants/v2.") {
			n++
		}
	}
	fmt.Println(n)
	return nil
}
