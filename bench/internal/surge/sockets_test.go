package surge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
)

func TestOverSocketsRequestsAreServedAndRefused(t *testing.T) {
	policy, err := NewLimited(flow.Fixed(1), true, true)
	require.NoError(t, err)
	load := Load{Workers: 1, Service: 5 * time.Millisecond, Deadline: time.Minute, Times: 5}
	phase := Phase{Before: 100 * time.Millisecond, Burst: 500 * time.Millisecond, After: 100 * time.Millisecond}
	m, err := Sockets(load, phase, policy)
	require.NoError(t, err)
	assert.Positive(t, m.Goodput)
	assert.Positive(t, m.P50)
	assert.Less(t, m.Class[Classes-1], 1.0)
}
