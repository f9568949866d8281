package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// ownership matches the verbs that say what becomes of a Buf.
//
//weir:immutable a compiled expression
var ownership = regexp.MustCompile(`\b[Bb]orrow(s|ed)\b[^.]*\buntil\b|` +
	`\b[Tt]akes?\s+ownership\b|\b[Rr]etains?\b|\b[Rr]eturns?\s+owned\b`)

// Ownership finds exported functions and methods, those of interfaces included, that take a *buffer.Buf and do not say
// what becomes of it.
func Ownership(t *Tree) (found []Finding) {
	for _, f := range t.Files {
		if f.Test {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if exported(n) && f.takesBuf(n.Type) && !ownership.MatchString(n.Doc.Text()) {
					found = append(found, f.finding(n.Pos(), "%s takes a *buffer.Buf and does not say what becomes of it",
						n.Name.Name))
				}
				return false
			case *ast.TypeSpec:
				if i, ok := n.Type.(*ast.InterfaceType); ok && n.Name.IsExported() {
					found = append(found, f.methods(i)...)
				}
			}
			return true
		})
	}
	return sorted(found)
}

func (f *File) methods(i *ast.InterfaceType) (found []Finding) {
	for _, m := range i.Methods.List {
		fn, ok := m.Type.(*ast.FuncType)
		if !ok || !m.Names[0].IsExported() || !f.takesBuf(fn) {
			continue
		}
		if !ownership.MatchString(m.Doc.Text() + m.Comment.Text()) {
			found = append(found, f.finding(m.Pos(), "%s takes a *buffer.Buf and does not say what becomes of it",
				m.Names[0].Name))
		}
	}
	return found
}

// takesBuf reports whether a parameter is a *buffer.Buf, or several of them.
func (f *File) takesBuf(fn *ast.FuncType) bool {
	for _, param := range fn.Params.List {
		typ := param.Type
		for {
			switch t := typ.(type) {
			case *ast.Ellipsis:
				typ = t.Elt
				continue
			case *ast.ArrayType:
				typ = t.Elt
				continue
			case *ast.StarExpr:
				if f.isBuf(t.X) {
					return true
				}
			}
			break
		}
	}
	return false
}

func (f *File) isBuf(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "Buf" && f.Package == "buffer"
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		return ok && x.Name == "buffer" && e.Sel.Name == "Buf"
	}
	return false
}

// exported reports whether fn and the type it belongs to are.
func exported(fn *ast.FuncDecl) bool {
	if !fn.Name.IsExported() {
		return false
	}
	if fn.Recv == nil {
		return true
	}
	recv := fn.Recv.List[0].Type
	for {
		switch t := recv.(type) {
		case *ast.StarExpr:
			recv = t.X
		case *ast.IndexExpr:
			recv = t.X
		case *ast.IndexListExpr:
			recv = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return false
		}
	}
}

// Docs finds exported identifiers, and packages, without a comment. In a group one comment for all is enough.
func Docs(t *Tree) (found []Finding) {
	documented := map[string]bool{}
	first := map[string]*File{}
	for _, f := range t.Files {
		if f.Test || f.generated() {
			continue
		}
		if first[f.Package] == nil {
			first[f.Package] = f
		}
		if strings.TrimSpace(f.Syntax.Doc.Text()) != "" {
			documented[f.Package] = true
		}
		if f.Syntax.Name.Name == "main" {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if exported(d) && d.Doc.Text() == "" {
					found = append(found, f.finding(d.Pos(), "%s has no comment", d.Name.Name))
				}
			case *ast.GenDecl:
				found = append(found, f.undocumented(d)...)
			}
		}
	}
	for pkg, f := range first { //weir:unordered sorted below
		if !documented[pkg] {
			found = append(found, f.finding(f.Syntax.Package, "package %s has no comment", pkg))
		}
	}
	return sorted(found)
}

func (f *File) undocumented(d *ast.GenDecl) (found []Finding) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc.Text() == "" && s.Doc.Text() == "" {
				found = append(found, f.finding(s.Pos(), "%s has no comment", s.Name.Name))
			}
		case *ast.ValueSpec:
			if d.Tok == token.IMPORT || d.Doc.Text() != "" || s.Doc.Text() != "" || s.Comment.Text() != "" {
				continue
			}
			for _, name := range s.Names {
				if name.IsExported() {
					found = append(found, f.finding(name.Pos(), "%s has no comment", name.Name))
				}
			}
		}
	}
	return found
}
