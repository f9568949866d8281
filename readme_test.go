package weir_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// goBlocks returns the blocks of Go in a page.
func goBlocks(page string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

func TestTheReadmeShowsCodeThatIsCompiled(t *testing.T) {
	blocks := goBlocks(read(t, "README.md"))
	require.Len(t, blocks, 2)
	assert.Equal(t, read(t, "examples/echo/main.go"), blocks[0], "the echo server is the file itself")
	assert.LessOrEqual(t, strings.Count(blocks[0], "\n"), 25, "the echo server is short")
	assert.Contains(t, read(t, "example_test.go"), blocks[1], "the second one is part of the examples")
}

func TestTheReadmeLinksToFilesThatExist(t *testing.T) {
	links := regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(read(t, "README.md"), -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		_, err := os.Stat(link[1])
		assert.NoError(t, err)
	}
}
