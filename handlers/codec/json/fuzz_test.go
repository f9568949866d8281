package json

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// theirs returns the objects and arrays that encoding/json's Decoder finds at the front of in, the elements of the
// arrays when that is wanted, and whether they are all there is.
func theirs(in []byte, elements bool) (texts []string, all bool) {
	for dec := json.NewDecoder(bytes.NewReader(in)); ; {
		var text json.RawMessage
		err := dec.Decode(&text)
		switch {
		case err != nil:
			return texts, errors.Is(err, io.EOF)
		case text[0] != '{' && text[0] != '[':
			return texts, false
		case elements && text[0] == '[':
			var array []json.RawMessage
			if json.Unmarshal(text, &array) != nil {
				return texts, false
			}
			for _, element := range array {
				texts = append(texts, string(element))
			}
		default:
			texts = append(texts, string(text))
		}
	}
}

// FuzzTexts checks that texts do not depend on how their bytes arrive, and that they are those that encoding/json
// finds, as far as it takes what there is.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{
		`{"name":"Jo\"hn"} [1,{"a":"]}\\"}]`, "[1, \"a,]\" ,{\"b\":[]},true ,-1.5e+7\r\n]{}", `[[[[[[[[[[]]]]]]]]]]`,
		`[123456789012,1234567890123,"12345678901"]`, `[1,]`, `{"a":`, `[`, ` `, `{]`, `}`, `"a"`, `[1`, `[1 `, `{"\`,
		"{}\xff",
	} {
		f.Add([]byte(s), []byte{1}, false)
		f.Add([]byte(s), []byte{3, 1, 5}, true)
	}
	f.Fuzz(func(t *testing.T, in, splits []byte, pauses bool) {
		for _, cfg := range []Config{{}, {Elements: true}, {MaxBytes: 8}, {MaxBytes: 8, Elements: true}} {
			whole := outcome(t, cfg, string(in), nil, false)
			split := outcome(t, cfg, string(in), splits, pauses)
			if !slices.Equal(whole, split) {
				t.Fatalf("%+v: %q:\nwhole            %q\nin pieces of %v %q", cfg, in, whole, splits, split)
			}
			for _, e := range whole {
				if cfg.MaxBytes > 0 && len(e) > cfg.MaxBytes && !strings.HasPrefix(e, "error: ") {
					t.Fatalf("%+v: %q: %q is longer than the maximum", cfg, in, e)
				}
			}
			if cfg.MaxBytes > 0 || len(in) > defaultMost {
				continue
			}
			texts, all := theirs(in, cfg.Elements)
			if all && !slices.Equal(texts, whole) || !slices.Equal(texts, whole[:min(len(texts), len(whole))]) {
				t.Fatalf("%+v: %q: encoding/json finds\n%q (all: %v), not\n%q", cfg, in, texts, all, whole)
			}
		}
	})
}
