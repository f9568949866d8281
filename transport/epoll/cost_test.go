//go:build linux

package epoll

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/transporttest"
)

func opener(tb testing.TB, cfg Config) func() transport.Transport {
	return func() transport.Transport {
		tr, err := Open(cfg)
		require.NoError(tb, err)
		return tr
	}
}

func TestMessagesAndPausesAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds keep records of Bufs")
	}
	for _, raw := range []bool{false, true} {
		transporttest.AllocatesNothing(t, fmt.Sprintf("epoll-raw=%v", raw), opener(t, Config{Raw: raw}))
	}
}

func BenchmarkMessage(b *testing.B) { transporttest.BenchmarkMessages(b, opener(b, Config{Raw: true})) }
