package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	fileLines     = 500 // a Go file has fewer
	functionLines = 70  // a function has fewer
	columns       = 120 // a line of Go has at most so many characters
)

// The project speaks of itself alone: machine matches paths of the machine it happens to be written on, proxy the
// names and settings of proxies and mirrors.
var (
	//weir:immutable a compiled expression
	machine = regexp.MustCompile(`(^|[^\w.$}~-])/(work|tmp|root|home)/`)
	//weir:immutable a compiled expression
	proxy = regexp.MustCompile(`(?i)\b(GOPROXY|GONOSUMDB|GONOSUMCHECK|https?_proxy)\s*=|` +
		`\b[\w-]*(proxy|mirror|artifactory|nexus)[\w-]*(\.[\w-]+)*\.(com|org|net|io|dev|internal|corp|local|lan|example)\b|` +
		`\b[\w-]+\.(internal|corp|intra|lan)\b`)
)

// Length finds files and functions that are too long to be about one thing.
func Length(t *Tree) (found []Finding) {
	for _, f := range t.written() {
		if f.Test { // tables of cases may be long
			continue
		}
		if f.Lines >= fileLines {
			found = append(found, Finding{f.Path, f.Lines, fmt.Sprintf("the file has %d lines", f.Lines)})
		}
		for _, decl := range f.Syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if n := f.line(fn.End()) - f.line(fn.Pos()) + 1; n >= functionLines {
				found = append(found, f.finding(fn.Pos(), "%s has %d lines", fn.Name.Name, n))
			}
		}
	}
	return sorted(found)
}

// written are the Go files that people write, those of nested modules included.
func (t *Tree) written() []*File {
	return slices.DeleteFunc(slices.Concat(t.Files, t.Nested), (*File).generated)
}

// Width finds lines of Go that do not fit on a screen. What can't be broken is excused: raw and long strings, struct
// tags, the addresses of pages, and the rows of tables, in code and in comments.
func Width(t *Tree) (found []Finding) {
	for _, f := range t.written() {
		whole := f.unbreakable()
		number := 0
		for line := range bytes.Lines(f.body) {
			number++
			line = bytes.TrimRight(line, "\n")
			n := utf8.RuneCount(line)
			if n <= columns || whole[number] || bytes.Contains(line, []byte("://")) || isTable(line) {
				continue
			}
			found = append(found, Finding{f.Path, number, fmt.Sprintf("the line has %d characters", n)})
		}
	}
	return sorted(found)
}

// unbreakable returns the lines with raw strings, which are also the tags of fields, with long ones, and with
// elements of tables.
func (f *File) unbreakable() map[int]bool {
	lines := map[int]bool{}
	mark := func(n ast.Node) {
		for line := f.line(n.Pos()); line <= f.line(n.End()); line++ {
			lines[line] = true
		}
	}
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING && (n.Value[0] == '`' || len(n.Value) > columns*2/3) {
				mark(n)
			}
		case *ast.CompositeLit:
			for _, row := range n.Elts {
				value := row
				if pair, ok := row.(*ast.KeyValueExpr); ok {
					value = pair.Value
				}
				if _, ok := value.(*ast.CompositeLit); ok && len(n.Elts) > 1 && f.line(row.Pos()) == f.line(row.End()) {
					mark(row)
				}
			}
		}
		return true
	})
	return lines
}

// isTable reports whether a line is a comment that draws something, or is a single word.
func isTable(line []byte) bool {
	text, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "//")
	return ok && (strings.ContainsAny(text, "|│─") || !strings.Contains(strings.TrimSpace(text), " "))
}

var (
	//weir:immutable a compiled expression
	answers = regexp.MustCompile(`(\w+) answers\b`)
	//weir:immutable a compiled expression
	tells = regexp.MustCompile(`()\btells? whether\b`)
	// beforeNouns are words behind which answers are what is sent or returned.
	//
	//weir:immutable a table
	beforeNouns = []string{"the", "its", "their", "all", "no", "of", "for", "many", "more", "two"}
)

// Words finds comments that do not use Go's words: a function "returns" something and "reports whether" it is so.
func Words(t *Tree) (found []Finding) {
	for _, f := range t.written() {
		report := func(comment *ast.CommentGroup, word *regexp.Regexp, instead string) {
			if comment == nil {
				return
			}
			for _, c := range comment.List {
				m := word.FindStringSubmatch(c.Text)
				if m != nil && !slices.Contains(beforeNouns, m[1]) {
					found = append(found, f.finding(c.Pos(), "%q instead of %q", strings.TrimSpace(m[0]), instead))
				}
			}
		}
		for _, group := range f.Syntax.Comments {
			report(group, tells, "reports whether")
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				report(n.Doc, answers, "returns")
				return false
			case *ast.Field:
				if _, ok := n.Type.(*ast.FuncType); ok {
					report(n.Doc, answers, "returns")
				}
			}
			return true
		})
	}
	return sorted(found)
}

// leftovers are the ends of names of files that tools and editors leave behind.
//
//weir:immutable a table
var leftovers = []string{
	".orig", ".rej", ".bak", ".old", ".swp", ".swo", "~", ".tmp", ".test", ".prof", ".pprof", ".out", ".exe", ".o", ".so",
	".log", ".DS_Store",
}

// Leftovers finds files that nobody meant to commit. The objects of programs for the kernel are meant: bpf2go writes
// them beside a Go file of the same name.
func Leftovers(t *Tree) (found []Finding) {
	for _, name := range t.Paths {
		if object, ok := strings.CutSuffix(name, "_bpfel.o"); ok && slices.Contains(t.Paths, object+"_bpfel.go") {
			continue
		}
		if slices.ContainsFunc(leftovers, func(end string) bool { return strings.HasSuffix(path.Base(name), end) }) {
			found = append(found, Finding{name, 1, "a file that a tool has left"})
		}
	}
	return found
}

// Machine finds paths and proxies of the machine that a file was written on. A line is excused by weir:path.
func Machine(t *Tree) (found []Finding) {
	for _, text := range t.Texts {
		excused := false // by the line before
		line := 0
		for l := range bytes.Lines(text.Body) {
			line++
			has := bytes.Contains(l, []byte("weir:path "))
			if !has && !excused {
				if m := machine.Find(l); m != nil {
					found = append(found, Finding{text.Path, line, "a path of the machine: " + string(bytes.TrimSpace(l))})
				}
				if m := proxy.Find(l); m != nil {
					found = append(found, Finding{text.Path, line, "a proxy: " + string(m)})
				}
			}
			excused = has
		}
	}
	return sorted(found)
}
