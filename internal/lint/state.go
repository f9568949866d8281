package lint

import (
	"go/ast"
	"go/token"
)

// State finds package-level variables that could change and init functions. Sentinel errors, assertions of interfaces
// (var _ I = T{}) and variables marked weir:immutable are fine; weir:state excuses one variable, in package loop.
func State(t *Tree) (found []Finding) {
	states := 0
	for _, f := range t.Files {
		if f.Test || f.generated() {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					found = append(found, f.finding(d.Pos(), "init function"))
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					found = append(found, f.vars(d, &states)...)
				}
			}
		}
	}
	return sorted(found)
}

func (f *File) vars(d *ast.GenDecl, states *int) (found []Finding) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || harmless(v) {
			continue
		}
		claims := func(name string) bool { return f.allowed(name, v.Pos()) || f.allowed(name, d.Pos()) }
		switch {
		case claims("immutable"):
		case claims("state") && f.Package == "loop":
			if *states++; *states > 1 {
				found = append(found, f.finding(v.Pos(), "second variable with weir:state: %s", v.Names[0].Name))
			}
		default:
			found = append(found, f.finding(v.Pos(), "package-level variable %s", v.Names[0].Name))
		}
	}
	return found
}

// harmless reports whether v declares only sentinel errors or the blank identifier.
func harmless(v *ast.ValueSpec) bool {
	for i, name := range v.Names {
		if name.Name != "_" && (i >= len(v.Values) || !isSentinel(v.Values[i])) {
			return false
		}
	}
	return true
}

// isSentinel reports whether e is a call of errors.New or fmt.Errorf.
func isSentinel(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := fn.X.(*ast.Ident)
	return ok && (pkg.Name == "errors" && fn.Sel.Name == "New" || pkg.Name == "fmt" && fn.Sel.Name == "Errorf")
}
