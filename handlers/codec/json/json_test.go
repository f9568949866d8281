package json

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/codec"
)

// decode feeds in by pieces of n bytes.
func decode(s codec.Splitter, in string, n int) (frames []string) {
	for from, end := 0, 0; end < len(in); {
		end = min(len(in), end+n)
		for from < end {
			at, took, err := s.Decode([]byte(in[from:end]))
			if err == codec.ErrShort {
				break
			}
			switch {
			case err == nil:
				frames = append(frames, in[from+at.Start:from+at.End])
			case err != codec.ErrSkip:
				frames = append(frames, err.Error())
			}
			if took == 0 {
				return frames
			}
			from += took
		}
	}
	return frames
}

func TestFramesDoNotDependOnHowBytesArrive(t *testing.T) {
	long := (&codec.TooLongError{MaxBytes: 15}).Error()
	for _, c := range []struct {
		in   string
		cfg  Config
		want []string
	}{
		{`{"name":"John"}{"name":"John"}` + "\n", Config{}, []string{`{"name":"John"}`, `{"name":"John"}`}},
		{` [1,{"a":"]}\"\\"}] {}`, Config{}, []string{`[1,{"a":"]}\"\\"}]`, `{}`}},
		{`  b [1,2,3]`, Config{}, []string{`codec: bad frame: json: 'b'`}},
		{`{"name":"Johnn"}{"name":"John"}{}`, Config{MaxBytes: 15}, []string{long, `{"name":"John"}`, `{}`}},
		{`[1, "a,]" ,{"b":[]},true ][]{}`, Config{Elements: true}, []string{`1`, `"a,]"`, `{"b":[]}`, `true`, `{}`}},
		{
			`[1234567890123456,123456789012345,2]`,
			Config{MaxBytes: 15, Elements: true},
			[]string{long, `123456789012345`, `2`},
		},
		{`[1,]`, Config{Elements: true}, []string{`1`, `codec: bad frame: json: ']'`}},
	} {
		for n := 1; n <= len(c.in); n++ {
			s, err := Split(c.cfg)
			require.NoError(t, err)
			assert.Equal(t, c.want, decode(s, c.in, n), "%s by %d", c.in, n)
		}
	}
}

func TestLimitsThatMakeNoSenseAreRefused(t *testing.T) {
	_, err := New(Config{MaxBytes: -1})
	assert.True(t, errors.Is(err, codec.ErrConfig))
}
