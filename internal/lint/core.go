package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The core runs under simulation: the same inputs have to give the same run.
var (
	//weir:immutable a table
	core = []string{"buffer", "flow", "transport", "loop", "pipeline", "channel", "transport/sim"}
	// kernelSide packages read the clock through internal/sys, which reads it once per turn.
	//
	//weir:immutable a table
	kernelSide = []string{"transport/epoll", "transport/uring"}
)

// Exports are the files with the compiled types of packages, by import path.
type Exports map[string]string

// ListExports compiles the packages and what they need in the module at dir and returns where their types are. tags are
// build tags.
func ListExports(dir, tags string, packages ...string) (Exports, error) {
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Export", "-tags=" + tags}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("lint: go list: %w", err)
	}
	exports := Exports{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return exports, nil
		} else if err != nil {
			return nil, fmt.Errorf("lint: go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
	}
}

// open is a lookup function for importer.ForCompiler.
func (e Exports) open(path string) (io.ReadCloser, error) {
	if e[path] == "" {
		return nil, fmt.Errorf("lint: no compiled types of %s", path)
	}
	return os.Open(e[path])
}

// Core finds in the core what a simulation cannot repeat: real time, select, goroutines, random numbers without a seed,
// the order of maps. weir:goroutines and weir:unordered excuse.
func Core(t *Tree, exports Exports, tags string) (found []Finding, err error) {
	imp := importer.ForCompiler(t.fset, "gc", exports.open)
	ctx := build.Default
	ctx.BuildTags = strings.FieldsFunc(tags, func(r rune) bool { return r == ',' })
	for _, pkg := range append(slices.Clone(core), kernelSide...) {
		var files []*File
		for _, f := range t.Files {
			if f.Package != pkg || f.Test {
				continue
			}
			name := filepath.Join(t.Root, filepath.FromSlash(f.Path))
			match, err := ctx.MatchFile(filepath.Dir(name), filepath.Base(name))
			if err != nil {
				return nil, fmt.Errorf("lint: %w", err)
			}
			if match {
				files = append(files, f)
			}
		}
		if len(files) == 0 {
			continue
		}
		info, err := t.check(pkg, files, imp)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			c := coreCheck{file: f, info: info, clockOnly: slices.Contains(kernelSide, pkg)}
			ast.Inspect(f.Syntax, c.visit)
			found = append(found, c.found...)
		}
	}
	return sorted(found), nil
}

// check finds the types of a package's expressions.
func (t *Tree) check(pkg string, files []*File, imp types.Importer) (*types.Info, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	syntax := make([]*ast.File, len(files))
	for i, f := range files {
		syntax[i] = f.Syntax
	}
	conf := types.Config{Importer: imp}
	if _, err := conf.Check(Module+"/"+pkg, t.fset, syntax, info); err != nil {
		return nil, fmt.Errorf("lint: types of %s: %w", pkg, err)
	}
	return info, nil
}

// coreCheck looks at one file.
type coreCheck struct {
	file      *File
	info      *types.Info
	clockOnly bool
	ordered   []ast.Node // arguments of slices.Sorted…: their order does not matter
	found     []Finding
}

func (c *coreCheck) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Ident:
		c.use(n)
	case *ast.CallExpr:
		if fn, ok := c.info.Uses[callee(n)].(*types.Func); ok && strings.HasPrefix(fn.FullName(), "slices.Sorted") {
			for _, arg := range n.Args {
				c.ordered = append(c.ordered, arg)
			}
		}
		fn, ok := c.info.Uses[callee(n)].(*types.Func)
		if ok && unordered(fn.FullName()) && !slices.Contains(c.ordered, ast.Node(n)) {
			c.report("unordered", n.Pos(), "%s has no order", fn.FullName())
		}
	case *ast.GoStmt:
		c.report("goroutines", n.Pos(), "go statement")
	case *ast.SelectStmt:
		c.report("goroutines", n.Pos(), "select statement")
	case *ast.RangeStmt:
		if typ := c.info.Types[n.X].Type; typ != nil && isMap(typ) {
			c.report("unordered", n.Pos(), "iteration over a map has no order")
		}
	}
	return true
}

// use reports functions that read the clock or the process's random numbers.
func (c *coreCheck) use(id *ast.Ident) {
	fn, ok := c.info.Uses[id].(*types.Func)
	if !ok {
		return
	}
	switch name := fn.FullName(); name {
	case "time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.Sleep", "time.NewTimer",
		"time.NewTicker", "time.Tick", "context.WithTimeout", "context.WithTimeoutCause", "context.WithDeadline",
		"context.WithDeadlineCause":
		if !c.excused("goroutines", id.Pos()) {
			c.found = append(c.found, c.file.finding(id.Pos(), "%s uses the real clock", name))
		}
	default:
		local, random := strings.CutPrefix(name, "math/rand/v2.")
		if !random {
			local, random = strings.CutPrefix(name, "math/rand.")
		}
		if random && !strings.HasPrefix(local, "New") {
			c.report("goroutines", id.Pos(), "%s has no seed", name)
		}
	}
}

func (c *coreCheck) report(directive string, pos token.Pos, format string, args ...any) {
	if !c.clockOnly && !c.excused(directive, pos) {
		c.found = append(c.found, c.file.finding(pos, format, args...))
	}
}

func (c *coreCheck) excused(directive string, pos token.Pos) bool {
	return c.file.allowed(directive, pos) || directive == "goroutines" && c.file.whole[directive]
}

// callee is the identifier of the function that call names, or nil.
func callee(call *ast.CallExpr) *ast.Ident {
	fun := call.Fun
	for {
		switch f := fun.(type) {
		case *ast.Ident:
			return f
		case *ast.SelectorExpr:
			return f.Sel
		case *ast.IndexExpr:
			fun = f.X
		case *ast.IndexListExpr:
			fun = f.X
		default:
			return nil
		}
	}
}

func unordered(fn string) bool {
	switch fn {
	case "maps.Keys", "maps.Values", "maps.All", "(*sync.Map).Range":
		return true
	}
	return false
}

// isMap reports whether typ, or everything a type parameter stands for, is a map.
func isMap(typ types.Type) bool {
	switch t := typ.Underlying().(type) {
	case *types.Map:
		return true
	case *types.Interface: // a type parameter's constraint
		for i := range t.NumEmbeddeds() {
			if union, ok := t.EmbeddedType(i).(*types.Union); ok {
				for j := range union.Len() {
					if isMap(union.Term(j).Type()) {
						return true
					}
				}
			} else if isMap(t.EmbeddedType(i)) {
				return true
			}
		}
	}
	return false
}
