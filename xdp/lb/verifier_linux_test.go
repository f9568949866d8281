package lb

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp"
)

// The verifier gives up at a million instructions. What it looks at grows with every branch, so there is a budget.
func TestTheVerifierIsDoneSoon(t *testing.T) {
	testenv.Require(t, "xdp", xdp.Check())
	var objects balancerObjects
	require.NoError(t, loadBalancerObjects(&objects, nil))
	defer func() { assert.NoError(t, objects.Close()) }()
	info, err := objects.Balance.Info()
	require.NoError(t, err)
	n, ok := info.VerifiedInstructions()
	require.True(t, ok)
	t.Logf("%d instructions verified", n)
	assert.Less(t, n, uint32(50_000))
}
