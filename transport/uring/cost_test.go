//go:build linux

package uring

import (
	"fmt"
	"testing"

	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/transporttest"
)

func opener(tb testing.TB, cfg Config) func() transport.Transport {
	return func() transport.Transport {
		tr, err := Open(cfg)
		testenv.Require(tb, "uring", err)
		return tr
	}
}

func TestMessagesAndPausesAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds keep records of Bufs")
	}
	for _, without := range []Features{0, ^Features(0)} {
		transporttest.AllocatesNothing(t, fmt.Sprintf("uring-without=%d", without),
			opener(t, Config{Raw: true, Without: without}))
	}
}

func BenchmarkMessage(b *testing.B) { transporttest.BenchmarkMessages(b, opener(b, Config{Raw: true})) }
