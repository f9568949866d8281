package measure_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/xdp"
	"github.com/weirnet/weir/xdp/internal/measure"
)

func TestClientsAreAPowerOfTwo(t *testing.T) {
	testenv.Require(t, "xdp", xdp.Check())
	for _, clients := range []uint64{0, 3, 1<<32 + 1, 1 << 33} {
		_, err := measure.New(nil, [6]byte{}, clients)
		assert.ErrorIs(t, err, xdp.ErrConfig, "%d", clients)
	}
	for _, clients := range []uint64{1, 2, 1 << 31, 1 << 32} {
		m, err := measure.New(nil, [6]byte{}, clients)
		require.NoError(t, err, "%d", clients)
		assert.NoError(t, m.Close())
	}
}
