package lint

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// tableFile is where the table of packages is.
const tableFile = "docs/architecture.md"

// Table says which packages of this module a package may import: the table of docs/architecture.md, which is the only
// one. Every package may import internal/invariants besides.
type Table struct{ rows []row }

// row is one line: packages, and what they may import. A pattern that ends in "/..." is a package and everything below
// it; "..." is the whole module.
type row struct {
	line          int
	packages, may []string
}

// quoted matches what stands between backquotes.
//
//weir:immutable a compiled expression
var quoted = regexp.MustCompile("`([^`]+)`")

// Table reads the table of packages. It is empty where there is none.
func (t *Tree) Table() (table Table) {
	i := slices.IndexFunc(t.Texts, func(text Text) bool { return text.Path == tableFile })
	if i < 0 {
		return table
	}
	line, in := 0, false
	for l := range bytes.Lines(t.Texts[i].Body) {
		line++
		cells := strings.Split(strings.Trim(string(l), "|\n "), "|")
		switch {
		case len(cells) != 3 || l[0] != '|':
			in = false
		case strings.Contains(cells[2], "imports of this module"):
			in = true
		case in && !strings.HasPrefix(strings.TrimSpace(cells[0]), "---"):
			table.rows = append(table.rows, row{line, patterns(cells[0]), patterns(cells[2])})
		}
	}
	return table
}

// patterns reads a cell.
func patterns(cell string) (all []string) {
	cell = strings.TrimSpace(cell)
	switch {
	case cell == "all":
		return []string{"..."}
	case strings.HasPrefix(cell, "root "):
		return []string{"."}
	}
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// Imports holds the table for what is compiled into programs; tests may import what they like. It also finds rows that
// say more than is true: packages that do not exist, and imports that nobody has.
func Imports(t *Tree) (found []Finding) {
	table := t.Table()
	if len(table.rows) == 0 {
		return []Finding{{tableFile, 1, "no table of packages"}}
	}
	used := map[use]bool{}
	for _, f := range t.Files {
		row := table.row(f.Package)
		if row == nil {
			found = append(found, f.finding(f.Syntax.Package, "package %s is not in the table of packages", f.Package))
			continue
		}
		row.mark(used, f.Package, "")
		if f.Test {
			continue
		}
		for imported, spec := range f.imports {
			dir, ours := strings.CutPrefix(imported, Module)
			if !ours || dir != "" && dir[0] != '/' {
				continue
			}
			dir = path.Join(".", strings.TrimPrefix(dir, "/"))
			if !table.May(f.Package, dir) {
				found = append(found, f.finding(spec.Pos(), "%s must not import %s", f.Package, dir))
			}
			row.mark(used, f.Package, dir)
		}
	}
	for i := range table.rows {
		found = append(found, table.rows[i].unused(used)...)
	}
	return sorted(found)
}

// use is a part of a row that is true: a line and a pattern of an import, or of a package.
type use struct {
	line    int
	pattern string
	pkg     bool
}

// mark notes what of r is true because package pkg exists and imports package imported, if that is not empty.
func (r *row) mark(used map[use]bool, pkg, imported string) {
	for _, pattern := range r.packages {
		if matches(pattern, pkg) {
			used[use{r.line, pattern, true}] = true
		}
	}
	for _, pattern := range r.may {
		if imported != "" && matches(pattern, imported) {
			used[use{r.line, pattern, false}] = true
		}
	}
}

func (r *row) unused(used map[use]bool) (found []Finding) {
	for _, pattern := range r.packages {
		if !used[use{r.line, pattern, true}] {
			found = append(found, Finding{tableFile, r.line, "there is no package " + pattern})
		}
	}
	for _, pattern := range r.may {
		if pattern != "..." && !used[use{r.line, pattern, false}] {
			found = append(found, Finding{tableFile, r.line, fmt.Sprintf("%s does not import %s", r.packages[0], pattern)})
		}
	}
	return found
}

// May reports whether the table lets package pkg import package imported, both as directories below the root.
func (t *Table) May(pkg, imported string) bool {
	row := t.row(pkg)
	return row != nil && (imported == "internal/invariants" ||
		slices.ContainsFunc(row.may, func(pattern string) bool { return matches(pattern, imported) }))
}

// row returns the row whose pattern fits best, nil without any.
func (t *Table) row(pkg string) (best *row) {
	length := 0
	for i := range t.rows {
		for _, pattern := range t.rows[i].packages {
			if matches(pattern, pkg) && len(pattern) > length {
				best, length = &t.rows[i], len(pattern)
			}
		}
	}
	return best
}

func matches(pattern, dir string) bool {
	root, below := strings.CutSuffix(pattern, "...")
	if !below {
		return pattern == dir
	}
	root = strings.TrimSuffix(root, "/")
	return root == "" || under(dir, root)
}
