package lint

import (
	"go/ast"
	"slices"
	"strings"
)

// Kernel keeps golang.org/x/sys/unix where the kernel is spoken to.
func Kernel(t *Tree) (found []Finding) {
	for _, f := range t.Files {
		if f.Test || under(f.Package,
			"internal/sys", "internal/ring", "internal/testenv", "internal/netlab", "transport/epoll", "transport/uring", "xdp",
			"examples", "cmd") {
			continue
		}
		for imported, spec := range f.imports {
			if imported == "golang.org/x/sys/unix" {
				found = append(found, f.finding(spec.Pos(), "%s must not import %s: the kernel is internal/sys's",
					f.Package,
					imported))
			}
		}
	}
	return sorted(found)
}

// Unsafe keeps package unsafe in internal/sys and internal/ring, with a reason at each use: a comment with "SAFETY:" on
// its line, or right above the statement or declaration it is in, or above one around that. A use is a conversion or a
// call: naming the type unsafe.Pointer does nothing, and Sizeof, Offsetof and Alignof are constants.
func Unsafe(t *Tree) (found []Finding) {
	for _, f := range t.Files {
		name := ""
		for imported, spec := range f.imports {
			if imported != "unsafe" {
				continue
			}
			name = "unsafe"
			if spec.Name != nil {
				name = spec.Name.Name
			}
			if f.Package != "internal/sys" && f.Package != "internal/ring" {
				found = append(found, f.finding(spec.Pos(), "%s must not import unsafe", f.Package))
			}
			if name == "_" || name == "." {
				found = append(found, f.finding(spec.Pos(), "unsafe imported as %s", name))
			}
		}
		if name != "" && !f.Test {
			found = append(found, f.unsafeUses(name)...)
		}
	}
	return sorted(found)
}

func (f *File) unsafeUses(name string) (found []Finding) {
	safe := map[int]bool{} // lines that a SAFETY comment covers: its own and the one after it
	for _, group := range f.Syntax.Comments {
		if strings.Contains(group.Text(), "SAFETY:") {
			for line := f.line(group.Pos()); line <= f.line(group.End())+1; line++ {
				safe[line] = true
			}
		}
	}
	var around []ast.Node
	ast.Inspect(f.Syntax, func(n ast.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		around = append(around, n)
		use := unsafeCall(n, name)
		if use == nil {
			return true
		}
		if safe[f.line(use.Pos())] || slices.ContainsFunc(around,
			func(n ast.Node) bool { return f.explained(n, safe) }) {
			return true
		}
		found = append(found, f.finding(use.Pos(), "%s.%s without a // SAFETY: comment", name, use.Sel.Name))
		return true
	})
	return found
}

// unsafeCall returns what n calls of package unsafe, or nil.
func unsafeCall(n ast.Node, name string) *ast.SelectorExpr {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	use, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	if x, ok := use.X.(*ast.Ident); !ok || x.Name != name {
		return nil
	}
	switch use.Sel.Name {
	case "Sizeof", "Offsetof", "Alignof":
		return nil
	}
	return use
}

// explained reports whether a SAFETY comment stands right above n.
func (f *File) explained(n ast.Node, safe map[int]bool) bool {
	switch n.(type) {
	case ast.Stmt, ast.Decl, ast.Spec:
		return safe[f.line(n.Pos())]
	}
	return false
}
