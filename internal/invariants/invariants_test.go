package invariants_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/internal/invariants"
)

func TestCheckPanicsOnlyInInvariantBuilds(t *testing.T) {
	assert.NotPanics(t, func() { invariants.Check(true, "never seen") })
	broken := func() { invariants.Check(false, "%d of %d", 3, 4) }
	if invariants.Enabled {
		assert.PanicsWithValue(t, "invariant broken: 3 of 4", broken)
	} else {
		assert.NotPanics(t, broken)
	}
}
