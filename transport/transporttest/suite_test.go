package transporttest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSuiteFindsBreakages runs claims on transports with one thing wrong each: those that are about it must fail.
func TestSuiteFindsBreakages(t *testing.T) {
	for _, each := range breakages() {
		t.Run(each.name, func(t *testing.T) {
			require.NotEmpty(t, each.killer)
			for _, name := range each.killer {
				held, said := trial(t, brokenFactory(each.how), name)
				assert.False(t, held, "%q holds although %s", name, each.name)
				said, _, _ = strings.Cut(said, "\n")
				t.Logf("%s: %s", name, said)
			}
		})
	}
}

// TestSuiteAcceptsWholeTransport shows that it is the breakage which the claims fail for.
func TestSuiteAcceptsWholeTransport(t *testing.T) {
	for _, name := range everyClaim() {
		var c claim
		for _, each := range claims() {
			if each.name == name {
				c = each
			}
		}
		f := brokenFactory(broken{})
		if c.needs != nil && !c.needs(f.Features) {
			continue
		}
		held, said := trial(t, f, name)
		assert.True(t, held, "%s: %s", name, said)
	}
}

// TestClaimsAreDifferent guards the names: a subtest with a name that there is already would get a number.
func TestClaimsAreDifferent(t *testing.T) {
	names := everyClaim()
	seen := map[string]bool{}
	for _, name := range names {
		assert.False(t, seen[name], "%q is there twice", name)
		seen[name] = true
	}
	assert.GreaterOrEqual(t, len(names), 100)
}

func everyClaim() []string {
	var names []string
	for _, c := range claims() {
		names = append(names, c.name)
	}
	return names
}
