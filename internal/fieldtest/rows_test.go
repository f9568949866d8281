//go:build linux

package fieldtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fieldRows are the failures, as repository and number of the report.
var fieldRows = strings.Fields(`
panjf2000/gnet#420 panjf2000/gnet#337 panjf2000/gnet#214 panjf2000/gnet#722 panjf2000/gnet#672 panjf2000/gnet#546
panjf2000/gnet#621 panjf2000/gnet#398 panjf2000/gnet#29 panjf2000/gnet#110 panjf2000/gnet#417 panjf2000/gnet#414
panjf2000/gnet#393 panjf2000/gnet#341 panjf2000/gnet#368 panjf2000/gnet#179 apache/inlong#10670 panjf2000/gnet#526
panjf2000/gnet#303 panjf2000/gnet#431 panjf2000/gnet#569 panjf2000/gnet#16 panjf2000/gnet#448 panjf2000/gnet#703
panjf2000/gnet#634 panjf2000/gnet#321 panjf2000/gnet#484 panjf2000/gnet#694 panjf2000/gnet#579 panjf2000/gnet#733
cloudwego/netpoll#422 cloudwego/netpoll#143 cloudwego/netpoll#140 cloudwego/netpoll#355 cloudwego/netpoll#408
cloudwego/netpoll#412 cloudwego/netpoll#421 cloudwego/netpoll#201 cloudwego/netpoll#107 cloudwego/netpoll#305
cloudwego/netpoll#109 cloudwego/netpoll#293 cloudwego/netpoll#387 cloudwego/netpoll#385 cloudwego/netpoll#195
cloudwego/kitex#427 lesismal/nbio#40 lesismal/nbio#113 lesismal/nbio#470 lesismal/nbio#459 lesismal/nbio#75
lesismal/nbio#279 lesismal/llib#2 tidwall/evio#72 xtaci/gaio#17 Allenxuxu/gev#101 hodgesds/iouring-go#4
netty/netty#15502 netty/netty#14819 axboe/liburing#1275 containerd/containerd#9320 netty/netty#8427 netty/netty#4317
golang/go#65064
`)

// later are the rows that need what does not exist yet, with the reason.
var later = map[string]string{
	"panjf2000/gnet#569":    "There is no io.Reader or io.Writer on a channel; the net.Conn adapter brings them.",
	"panjf2000/gnet#16":     "TLS is a handler of its own.",
	"panjf2000/gnet#321":    "Serving on Windows needs a transport on Go's net.",
	"panjf2000/gnet#484":    "Datagrams are not part of the transport contract yet.",
	"panjf2000/gnet#694":    "Datagrams are not part of the transport contract yet.",
	"panjf2000/gnet#733":    "What a benchmark's numbers stand for is the benchmarks' matter.",
	"cloudwego/netpoll#140": "A blocking Read that Close has to end comes with the net.Conn adapter.",
	"cloudwego/netpoll#408": "nettest.TestConn needs the net.Conn adapter.",
	"cloudwego/netpoll#293": "Percentiles of latency under open load are the benchmarks' matter.",
	"cloudwego/netpoll#387": "The speed of TLS needs the TLS handler.",
	"cloudwego/netpoll#195": "Datagrams are not part of the transport contract yet.",
	"lesismal/nbio#459":     "Clients of other TLS stacks need the TLS handler.",
	"lesismal/nbio#279":     "Memory per idle TLS connection needs the TLS handler.",
	"lesismal/llib#2":       "Clients of other TLS stacks need the TLS handler.",
	"golang/go#65064":       "Scaling over many processors is the benchmarks' matter.",
}

// place is a test in another package.
type place struct{ dir, test, why string }

// elsewhere are the rows that a test of another package covers.
var elsewhere = map[string]place{
	"panjf2000/gnet#579": {
		".", "TestSpreadsConnectionsOverTheLoops",
		"how SO_REUSEPORT spreads is tested where listeners are opened; Linux only",
	},
	"panjf2000/gnet#621": {
		".", "TestAStaleRefNeverReachesAnotherConnection", "the same, with the sockets that a Server has",
	},
	"panjf2000/gnet#110": {
		".", "TestCloseFromManyGoroutinesClosesOnce", "eight goroutines and the peer close one channel",
	},
	"panjf2000/gnet#417": {
		".", "TestAPanicClosesOnlyItsChannel", "handlers that panic now and then, among many that do not",
	},
	"cloudwego/netpoll#385": {
		".", "TestAChosenTransportNeverFallsBack", "a transport that is not there is a typed error and nothing is started",
	},
	"containerd/containerd#9320": {
		".", "TestAutoFallsBackWithOneLineOfTheReason",
		"denied io_uring falls back to epoll, on which all tests of this package run, with one line",
	},
}

func TestEveryRowIsCovered(t *testing.T) {
	require.Len(t, fieldRows, 64)
	assert.Equal(t, len(fieldRows), len(slices.Compact(slices.Sorted(slices.Values(fieldRows)))), "no row twice")
	tests := testsByRow(t)
	for _, row := range fieldRows {
		answers := 0
		if names := tests[row]; len(names) > 0 {
			answers++
			t.Logf("%s: %s", row, strings.Join(names, ", "))
		}
		if why := later[row]; why != "" {
			answers++
			t.Logf("%s: later: %s", row, why)
		}
		if p := elsewhere[row]; p != (place{}) {
			answers++
			assert.Contains(t, testsOf(t, filepath.Join("..", "..", p.dir)), p.test, "%s names it", row)
			t.Logf("%s: %s of %q: %s", row, p.test, p.dir, p.why)
		}
		assert.Equal(t, 1, answers, "%s has a test, or is elsewhere, or is later", row)
	}
	for _, listed := range []map[string]bool{keys(tests), keys(later), keys(elsewhere)} {
		for row := range listed {
			assert.Contains(t, fieldRows, row, "it is a row")
		}
	}
}

func keys[V any](m map[string]V) map[string]bool {
	k := map[string]bool{}
	for row := range m {
		k[row] = true
	}
	return k
}

// testsByRow reads from this package's source which test calls covers with which rows. TestMain holds against it what
// has run.
func testsByRow(t *testing.T) map[string][]string {
	rows := map[string][]string{}
	for _, fn := range functions(t, ".") {
		if !strings.HasPrefix(fn.Name.Name, "Test") {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); !ok || name.Name != "covers" {
				return true
			}
			for _, arg := range call.Args[1:] {
				lit, ok := arg.(*ast.BasicLit)
				require.True(t, ok, "%s: covers takes literals", fn.Name.Name)
				row, err := strconv.Unquote(lit.Value)
				require.NoError(t, err)
				rows[row] = append(rows[row], fn.Name.Name)
			}
			return true
		})
	}
	return rows
}

// testsOf returns the names of the tests of a directory.
func testsOf(t *testing.T, dir string) (names []string) {
	for _, fn := range functions(t, dir) {
		names = append(names, fn.Name.Name)
	}
	return names
}

// functions returns the functions in the test files of a directory.
func functions(t *testing.T, dir string) (fns []*ast.FuncDecl) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				fns = append(fns, fn)
			}
		}
	}
	return fns
}
