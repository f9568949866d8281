package load

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAMarkSaysWhatItWasMadeOf(t *testing.T) {
	for _, c := range []struct {
		connection, sequence uint64
		padding              string
	}{{0, 0, ""}, {3, 17, "xyz"}, {1<<64 - 1, 1<<64 - 1, strings.Repeat("x", 1000)}} {
		line := append([]byte(`{"message":"`), AppendMark(nil, c.connection, c.sequence, c.padding)...)
		connection, sequence, err := Mark(append(line, `"}`...))
		require.NoError(t, err)
		assert.Equal(t, c.connection, connection)
		assert.Equal(t, c.sequence, sequence)
	}
}

func TestAMarkThatIsNotIntactIsNoticed(t *testing.T) {
	mark := AppendMark(nil, 3, 17, "padding")
	for i := range mark {
		broken := append([]byte(nil), mark...)
		broken[i] ^= 1
		_, _, err := Mark(broken)
		assert.ErrorIs(t, err, ErrMark, "%q", broken)
	}
	for n := range len(mark) {
		_, _, err := Mark(mark[:n])
		assert.ErrorIs(t, err, ErrMark, "%q", mark[:n])
	}
}

func TestATallyFindsWhatIsMissingTwiceOrTorn(t *testing.T) {
	line := func(sequence uint64) string {
		return `{"at":"","m":"` + string(AppendMark(nil, 1, sequence, "")) + "\"}\n"
	}
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte(line(0)+line(2)+line(2)+`{"at":"","other":1}`+"\n"), 0o600))
	tally := &Tally{}
	require.NoError(t, tally.ReadFiles([]string{name},
		func(line []byte) bool { return strings.Contains(string(line), "other") }))
	assert.Equal(t, []uint64{1}, tally.Connections())
	assert.Equal(t, 2, tally.Count(1))
	assert.Equal(t, 3, tally.Lines)
	assert.Equal(t, 1, tally.Twice)
	assert.Equal(t, []uint64{1, 3}, tally.Missing(1, 4))
	assert.ErrorIs(t, tally.Add([]byte(line(1)[:20]), nil), ErrMark)
	assert.ErrorIs(t, tally.Add([]byte(`{"at":"","other":1}`), nil), ErrMark)
}
