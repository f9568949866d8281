package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/lint"
)

var rules = []struct {
	name string
	rule func(*lint.Tree) []lint.Finding
}{
	{"imports", lint.Imports},
	{"kernel", lint.Kernel},
	{"unsafe", lint.Unsafe},
	{"state", lint.State},
	{"ownership", lint.Ownership},
	{"docs", lint.Docs},
	{"length", lint.Length},
	{"machine", lint.Machine},
	{"directives", lint.Directives},
}

// repository is the root of the module.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	root := filepath.Dir(filepath.Dir(dir))
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(mod), "module "+lint.Module+"\n")
	return root
}

func TestTheRepositoryKeepsTheRules(t *testing.T) {
	root := repository(t)
	tree, err := lint.Load(root)
	require.NoError(t, err)
	require.Greater(t, len(tree.Files), 20, "it was read")
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { report(t, r.rule(tree)) })
	}
	for _, tags := range []string{"", "invariants"} {
		t.Run("core/tags="+tags, func(t *testing.T) {
			exports, err := lint.ListExports(root, tags, "./buffer", "./flow", "./transport/...", "./loop", "./pipeline",
				"./channel")
			require.NoError(t, err)
			found, err := lint.Core(tree, exports, tags)
			require.NoError(t, err)
			report(t, found)
		})
	}
}

func report(t *testing.T, found []lint.Finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

// Every rule has a small module under testdata that breaks it. There, a comment `want "text"` says that the rule has to
// find something containing text on that line; what has no such comment must not be found.
func TestEachRuleFindsWhatBreaksIt(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			tree, err := lint.Load(filepath.Join("testdata", r.name))
			require.NoError(t, err)
			compareWithWants(t, tree, r.rule(tree))
		})
	}
	t.Run("core", func(t *testing.T) {
		tree, err := lint.Load(filepath.Join("testdata", "core"))
		require.NoError(t, err)
		exports, err := lint.ListExports(repository(t), "", "context", "maps", "math/rand/v2", "math/rand", "slices", "sync",
			"time")
		require.NoError(t, err)
		found, err := lint.Core(tree, exports, "")
		require.NoError(t, err)
		compareWithWants(t, tree, found)
	})
}

var want = regexp.MustCompile("want (\"[^\"]*\"( \"[^\"]*\")*)")

func compareWithWants(t *testing.T, tree *lint.Tree, found []lint.Finding) {
	t.Helper()
	wants := map[string][]string{} // by file:line
	total := 0
	for _, text := range tree.Texts {
		for i, line := range strings.Split(string(text.Body), "\n") {
			if m := want.FindStringSubmatch(line); m != nil {
				for _, w := range strings.Split(strings.Trim(m[1], `"`), `" "`) {
					at := fmt.Sprintf("%s:%d", text.Path, i+1)
					wants[at] = append(wants[at], w)
					total++
				}
			}
		}
	}
	require.NotZero(t, total, "no sample breaks the rule")
	for _, f := range found {
		at := fmt.Sprintf("%s:%d", f.File, f.Line)
		matched := false
		for i, w := range wants[at] {
			if strings.Contains(f.Text, w) {
				wants[at] = append(wants[at][:i:i], wants[at][i+1:]...)
				matched = true
				break
			}
		}
		assert.True(t, matched, "not wanted: %s", f)
	}
	for at, left := range wants {
		for _, w := range left {
			assert.Fail(t, "not found", "%s: %q", at, w)
		}
	}
}

// The table is only as good as its rows: each package of the design has one, and the rows forbid what the design
// forbids.
func TestTheTableForbidsWhatTheDesignForbids(t *testing.T) {
	for _, tc := range []struct{ pkg, imported string }{
		{"pipeline", "loop"},
		{"pipeline", "transport"},
		{"pipeline", "channel"},
		{"handlers/watermark", "loop"},
		{"handlers/codec/resp", "transport"},
		{"handlers/idle", "channel"},
		{"handlers/idle", "handlers/watermark"},
		{"loop", "channel"},
		{"loop", "pipeline"},
		{"buffer", "flow"},
		{"transport", "transport/epoll"},
		{"transport/sim", "internal/sys"},
		{".", "xdp"},
		{".", "metrics"},
		{".", "handlers/watermark"},
		{".", "transport/sim"},
		{"channel", "xdp/balance"},
		{"channel", "."},
		{"xdp/shield", "loop"},
	} {
		assert.False(t, lint.May(tc.pkg, tc.imported), "%s imports %s", tc.pkg, tc.imported)
	}
	for _, tc := range []struct{ pkg, imported string }{
		{"buffer", "internal/invariants"},
		{"channel", "internal/invariants"},
		{"channel", "flow"},
		{".", "transport/uring"},
		{"handlers/codec/resp", "handlers/codec"},
		{"metrics", "."},
		{"examples/echo", "."},
		{"cmd/weirbench", "xdp/balance"},
		{"internal/simtest", "channel"},
		{"xdp/shield", "xdp/internal/maps"},
	} {
		assert.True(t, lint.May(tc.pkg, tc.imported), "%s imports %s", tc.pkg, tc.imported)
	}
}
