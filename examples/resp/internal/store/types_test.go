package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAListIsAQueueWithTwoEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var l List
	var model []string
	for step := range 20_000 {
		s := fmt.Sprint(step)
		grow := step/2000%2 == 0 // by turns
		switch op := r.IntN(6); {
		case op == 0 || op == 1 && grow:
			l.PushLeft(s)
			model = slices.Insert(model, 0, s)
		case op == 2 || op == 3 && grow:
			l.PushRight(s)
			model = append(model, s)
		case len(model) == 0:
		case op == 1 || op == 4:
			require.Equal(t, model[0], l.PopLeft())
			model = model[1:]
		default:
			require.Equal(t, model[len(model)-1], l.PopRight())
			model = model[:len(model)-1]
		}
		require.Equal(t, len(model), l.Len())
		require.LessOrEqual(t, len(l.ring), max(16, 4*len(model)+4), "memory follows the length")
		if step%100 == 0 {
			for i := range model {
				require.Equal(t, model[i], l.At(i))
			}
		}
	}
}

func TestAListKeepsNothingThatWasPopped(t *testing.T) {
	for _, pop := range []func(*List) string{(*List).PopLeft, (*List).PopRight} {
		var l List
		for range 4 {
			l.PushRight("x")
		}
		for range 4 {
			pop(&l)
		}
		assert.Equal(t, make([]string, 4), l.ring)
	}
}

func TestSetsAndHashesFollowAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var set Set
	var hash Hash
	model := map[string]string{}
	for range 20_000 {
		name, value := fmt.Sprint(r.IntN(50)), fmt.Sprint(r.IntN(1000))
		_, had := model[name]
		require.Equal(t, had, set.Has([]byte(name)))
		got, ok := hash.Get([]byte(name))
		require.Equal(t, had, ok)
		require.Equal(t, model[name], got)
		switch r.IntN(5) {
		case 0, 1:
			require.Equal(t, !had, set.Add([]byte(name)))
			require.Equal(t, !had, hash.Set([]byte(name), []byte(value)))
			model[name] = value
		case 2, 3:
			require.Equal(t, had, set.Remove([]byte(name)))
			require.Equal(t, had, hash.Remove([]byte(name)))
			delete(model, name)
		case 4:
			if set.Len() > 0 {
				taken := set.RemoveAt(r.IntN(set.Len()))
				require.Contains(t, model, taken)
				require.True(t, hash.Remove([]byte(taken)))
				delete(model, taken)
			}
		}
		require.Equal(t, len(model), set.Len())
		require.Equal(t, len(model), hash.Len())
		seen := map[string]bool{}
		for i := range set.Len() {
			seen[set.At(i)] = true
			field, value := hash.At(i)
			require.Equal(t, model[field], value)
		}
		require.Len(t, seen, len(model))
	}
}

func TestPatternsMatchAsInRedis(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", false},
		{"*", "a", true},
		{"**", "ab", true},
		{"a*", "a", true},
		{"a**", "a", true},
		{"*a", "ba", true},
		{"*a", "ab", false},
		{"*ab*cd*", "xabyyabcdz", true},
		{"*ab*cd", "abcdx", false},
		{"?", "a", true},
		{"?", "", false},
		{"??", "a", false},
		{"a?c", "abc", true},
		{"a?", "a", false},
		{"[abc]", "b", true},
		{"[abc]", "d", false},
		{"[^abc]", "d", true},
		{"[^abc]", "a", false},
		{"[a-c]x", "bx", true},
		{"[c-a]x", "bx", true},
		{"[a-c]", "d", false},
		{"[a-]", "-", false},
		{"[a-]x]", "b", false},
		{`[\]]`, "]", true},
		{`[\a-c]`, "-", true},
		{"[a", "a", true},
		{"[^a", "b", true},
		{"[", "a", false},
		{"[^", "a", true},
		{"[]", "a", false},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{`\`, `\`, true},
		{`a\`, `a\`, true},
		{`\a`, "a", true},
		{"[\x80-\xff]", "\x90", true},
		{"[a-\xff]", "b", false},
		{"[a-\xff]", "A", true}, // bytes are signed
		{"A", "a", false},
		{"[A-C]", "b", false},
	} {
		assert.Equal(t, c.want, Match([]byte(c.pattern), []byte(c.s), false), "%q %q", c.pattern, c.s)
	}
	assert.True(t, Match([]byte("MAX*[M-O]"), []byte("maxmemorY-n"), true))
	assert.False(t, Match([]byte(`[\M]`), []byte("m"), true))
}

// A pattern of many stars takes time bounded by the product of the lengths, not exponential: this would not end.
func TestManyStarsEnd(t *testing.T) {
	pattern, s := []byte{}, []byte{}
	for range 1000 {
		pattern = append(pattern, "a*"...)
		s = append(s, "aa"...)
	}
	assert.False(t, Match(append(pattern, 'b'), s, false))
}

func FuzzMatchEnds(f *testing.F) {
	f.Add([]byte("*[a-c]\\?*"), []byte("xb?"), true)
	f.Fuzz(func(t *testing.T, pattern, s []byte, fold bool) {
		if Match(pattern, s, false) && !fold && len(pattern) == 0 && len(s) > 0 {
			t.Fatal("an empty pattern matched")
		}
		literal := make([]byte, 0, 2*len(s))
		for _, c := range s {
			literal = append(literal, '\\', c)
		}
		if !Match(literal, s, fold) {
			t.Fatalf("%q does not match %q", literal, s)
		}
	})
}
