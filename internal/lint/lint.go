// Package lint holds the rules of the architecture as tests: who imports whom, what the core must not do, what comments
// have to say. Its tests read the source of the whole module. Each rule has samples under testdata that break it.
//
// Where a rule has exceptions, the code claims one with a comment that says why, on the line itself, right above it or,
// for weir:goroutines, above the package clause:
//
//	//weir:immutable why    a package-level variable that nothing changes after it was initialised
//	//weir:state            the one package-level variable that changes, in package loop
//	//weir:unordered why    the result does not depend on the order of this map iteration
//	//weir:goroutines why   this line or file runs beside a loop: it may start goroutines, select and use Go's timers
//	//weir:path why         this path of the file system is a program's own default
package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the module whose rules these are.
const Module = "github.com/weirnet/weir"

// Finding is a place where a rule is broken.
type Finding struct {
	File string // relative to the tree's root
	Line int
	Text string
}

// String is file:line: text.
func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text) }

// Tree is the source of a module, as git would commit it. It is immutable once loaded.
type Tree struct {
	Root   string
	Paths  []string // all files, but for the samples of this package
	Files  []*File  // Go files, without nested modules and testdata
	Nested []*File  // Go files of nested modules, without testdata
	Texts  []Text   // all files that people read, testdata and nested modules included
	fset   *token.FileSet
}

// File is a Go file.
type File struct {
	Path    string // relative to the root, with slashes
	Package string // its package's directory below the root; "." is the root
	Test    bool
	Lines   int
	Syntax  *ast.File

	tree       *Tree
	body       []byte
	directives map[int]directive // by line
	whole      map[string]bool   // directives above the package clause
}

// Text is a file as bytes.
type Text struct {
	Path string
	Body []byte
}

// directive is a comment of the form //weir:name why.
type directive struct{ name, why string }

// Load reads the module below root: the files that git has or would add. What git ignores is not the project's. Where
// git knows nothing, all files are read.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root, fset: token.NewFileSet()}
	paths, err := committed(root)
	if err != nil {
		paths, err = walked(root)
	}
	if err != nil {
		return nil, fmt.Errorf("lint: load %s: %w", root, err)
	}
	t.Paths = slices.DeleteFunc(paths, func(rel string) bool { return strings.HasPrefix(rel, "internal/lint/testdata/") })
	for _, rel := range t.Paths {
		if err := t.add(rel); err != nil {
			return nil, fmt.Errorf("lint: load %s: %w", root, err)
		}
	}
	return t, nil
}

// committed returns the files that git has below root, or would have after git add.
func committed(root string) (paths []string, err error) {
	// Tests may run as another user than the one whose tree it is (git-config(1), safe.directory).
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", root,
		"ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, err
	}
	for rel := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, rel)); err == nil && info.Mode().IsRegular() { // not removed since
			paths = append(paths, rel)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// walked returns all files below root.
func walked(root string) (paths []string, err error) {
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, name)
		paths = append(paths, filepath.ToSlash(rel))
		return err
	})
	return paths, err
}

// add reads a file.
func (t *Tree) add(rel string) error {
	ext := path.Ext(rel)
	if !isText(rel, ext) {
		return nil
	}
	body, err := os.ReadFile(filepath.Join(t.Root, rel))
	if err != nil {
		return err
	}
	t.Texts = append(t.Texts, Text{rel, body})
	if ext != ".go" || strings.Contains("/"+rel, "/testdata/") {
		return nil
	}
	syntax, err := parser.ParseFile(t.fset, filepath.Join(t.Root, rel), body,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &File{
		Path: rel, Package: path.Dir(rel), Test: strings.HasSuffix(rel, "_test.go"),
		Lines: bytes.Count(body, []byte("\n")), Syntax: syntax,
		tree: t, body: body, directives: map[int]directive{}, whole: map[string]bool{},
	}
	f.collectDirectives()
	if t.nested(rel) {
		t.Nested = append(t.Nested, f)
	} else {
		t.Files = append(t.Files, f)
	}
	return nil
}

// nested reports whether a file belongs to a module below the root's.
func (t *Tree) nested(rel string) bool {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		if _, found := slices.BinarySearch(t.Paths, dir+"/go.mod"); found {
			return true
		}
	}
	return false
}

func isText(rel, ext string) bool {
	switch ext {
	case ".go", ".md", ".sh", ".patch", ".diff", ".yml", ".yaml", ".json", ".mod", ".c", ".h", ".py", ".txt", ".conf",
		".service":
		return true
	}
	switch path.Dir(rel) {
	case "scripts", ".ci":
		return true
	}
	return ext == "" && (path.Base(rel) == "Makefile" || path.Base(rel) == "Dockerfile")
}

func (f *File) collectDirectives() {
	for _, group := range f.Syntax.Comments {
		for _, c := range group.List {
			text, ok := strings.CutPrefix(c.Text, "//weir:")
			if !ok {
				continue
			}
			name, why, _ := strings.Cut(text, " ")
			f.directives[f.line(c.Pos())] = directive{name, strings.TrimSpace(why)}
			if c.End() < f.Syntax.Package {
				f.whole[name] = true
			}
		}
	}
}

// allowed reports whether the code at pos claims the exception: on its line or in the comment that ends right above it.
func (f *File) allowed(name string, pos token.Pos) bool {
	line := f.line(pos)
	if f.directives[line].name == name {
		return true
	}
	for _, group := range f.Syntax.Comments {
		if f.line(group.End()) != line-1 {
			continue
		}
		for _, c := range group.List {
			if f.directives[f.line(c.Pos())].name == name {
				return true
			}
		}
	}
	return false
}

func (f *File) line(pos token.Pos) int { return f.tree.fset.Position(pos).Line }

func (f *File) finding(pos token.Pos, format string, args ...any) Finding {
	return Finding{f.Path, f.line(pos), fmt.Sprintf(format, args...)}
}

// imports returns the paths that f imports.
func (f *File) imports(yield func(path string, spec *ast.ImportSpec) bool) {
	for _, spec := range f.Syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil && !yield(p, spec) {
			return
		}
	}
}

// generated reports whether a program wrote f.
func (f *File) generated() bool { return ast.IsGenerated(f.Syntax) }

// under reports whether the package directory dir is one of roots or below one.
func under(dir string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}

// Directives finds exceptions that are misspelt or give no reason.
func Directives(t *Tree) (found []Finding) {
	known := []string{"immutable", "state", "unordered", "goroutines", "path"}
	for _, f := range t.Files {
		for line, d := range f.directives { //weir:unordered sorted by the caller
			switch {
			case !slices.Contains(known, d.name):
				found = append(found, Finding{f.Path, line, fmt.Sprintf("unknown directive weir:%s", d.name)})
			case d.why == "" && d.name != "state":
				found = append(found, Finding{f.Path, line, fmt.Sprintf("weir:%s does not say why", d.name)})
			}
		}
	}
	return sorted(found)
}

func sorted(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return found
}
