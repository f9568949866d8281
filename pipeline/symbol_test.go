package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSymbolPathEscapesAsTheCompilerDoes(t *testing.T) {
	// Examples after cmd/internal/objabi's own test of PathToPrefix.
	for path, want := range map[string]string{
		"foo.bar/v1":         "foo.bar/v1",
		"foo.bar/v.1":        "foo.bar/v%2e1",
		"gopkg.in/yaml.v3":   "gopkg.in/yaml%2ev3",
		"f.o.o.b.a.r/v1":     "f.o.o.b.a.r/v1",
		"f.o.o.b.a.r":        "f%2eo%2eo%2eb%2ea%2er",
		"main":               "main",
		"":                   "",
		"a%b/c d/\"e\"/\xff": "a%25b/c%20d/%22e%22/%ff",
	} {
		assert.Equal(t, want, symbolPath(path), path)
	}
}
