package lint_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/lint"
)

type rule struct {
	name string
	rule func(*lint.Tree) []lint.Finding
}

// rules have samples below testdata, named after them; those that are about files have tests of their own.
var rules = []rule{
	{"imports", lint.Imports},
	{"kernel", lint.Kernel},
	{"unsafe", lint.Unsafe},
	{"state", lint.State},
	{"ownership", lint.Ownership},
	{"docs", lint.Docs},
	{"words", lint.Words},
	{"width", lint.Width},
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
	for _, r := range append(rules, rule{"length", lint.Length}, rule{"leftovers", lint.Leftovers}) {
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

// The table is only as good as its rows: they forbid what the design forbids.
func TestTheTableForbidsWhatTheDesignForbids(t *testing.T) {
	tree, err := lint.Load(repository(t))
	require.NoError(t, err)
	table := tree.Table()
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
		{".", "handlers/watermark"},
		{".", "transport/sim"},
		{"channel", "."},
		{"nowhere", "buffer"},
	} {
		assert.False(t, table.May(tc.pkg, tc.imported), "%s imports %s", tc.pkg, tc.imported)
	}
	for _, tc := range []struct{ pkg, imported string }{
		{"buffer", "internal/invariants"},
		{"channel", "internal/invariants"},
		{".", "transport/uring"},
		{"handlers/codec/resp", "handlers/codec"},
		{"examples/echo", "."},
		{"internal/simtest", "channel"},
	} {
		assert.True(t, table.May(tc.pkg, tc.imported), "%s imports %s", tc.pkg, tc.imported)
	}
}

// write makes files below a new directory.
func write(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return root
}

func TestLengthsAreCountedExactly(t *testing.T) {
	file := func(n int, head string) string {
		return head + strings.Repeat("// line\n", n-strings.Count(head, "\n"))
	}
	function := func(name string, n int) string {
		return "\nfunc " + name + "() {\n" + strings.Repeat("\t// line\n", n-2) + "}\n"
	}
	root := write(t, map[string]string{
		"x/short.go":        file(499, "package x\n"),
		"x/long.go":         file(500, "package x\n"),
		"x/longer.go":       file(501, "package x\n"),
		"x/long_test.go":    file(500, "package x\n"),
		"x/generated.go":    file(700, "// Code generated by a program. DO NOT EDIT.\n\npackage x\n"),
		"nested/go.mod":     "module nested\n",
		"nested/y/long.go":  file(500, "package y\n"),
		"x/functions.go":    "package x\n" + function("short", 69) + function("long", 70) + function("longer", 71),
		"x/cases_test.go":   "package x\n" + function("cases", 100),
		"x/testdata/big.go": file(700, "package x\n"),
	})
	tree, err := lint.Load(root)
	require.NoError(t, err)
	var got []string
	for _, f := range lint.Length(tree) {
		got = append(got, f.File+": "+f.Text)
	}
	assert.Equal(t, []string{
		"nested/y/long.go: the file has 500 lines",
		"x/functions.go: long has 70 lines",
		"x/functions.go: longer has 71 lines",
		"x/long.go: the file has 500 lines",
		"x/longer.go: the file has 501 lines",
	}, got)
}

func TestLeftoversAreFound(t *testing.T) {
	root := write(t, map[string]string{
		"a.go": "package a\n", "a.go.orig": "", "b/a.go.rej": "", "c~": "", "b/.a.go.swp": "", "old.go": "package a\n",
		"x.patch": "", "a_bpfel.go": "package a\n", "a_bpfel.o": "", "b_bpfel.o": "",
	})
	tree, err := lint.Load(root)
	require.NoError(t, err)
	var got []string
	for _, f := range lint.Leftovers(tree) {
		got = append(got, f.File)
	}
	assert.ElementsMatch(t, []string{"a.go.orig", "b/a.go.rej", "c~", "b/.a.go.swp", "b_bpfel.o"}, got)
}

// Whoever measures or builds has files that git ignores, and files that are not added yet.
func TestOnlyWhatGitHasOrWouldAddIsRead(t *testing.T) {
	root := write(t, map[string]string{
		".gitignore": "/results/\n", "results/report.json": "/tmp/weir\n", "results/x.go": "not Go", //weir:path a sample
		"a.go": "package a\n", "added.go": "package a\n", "gone.go": "package a\n",
	})
	git := func(args ...string) {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q")
	git("add", ".gitignore", "a.go", "gone.go")
	require.NoError(t, os.Remove(filepath.Join(root, "gone.go")))
	tree, err := lint.Load(root)
	require.NoError(t, err)
	assert.Equal(t, []string{".gitignore", "a.go", "added.go"}, tree.Paths)
	assert.Empty(t, lint.Machine(tree))
	require.NoError(t, os.RemoveAll(filepath.Join(root, ".git")))
	_, err = lint.Load(root)
	assert.Error(t, err, "without git there is nobody to say what is ignored")
}
