//go:build linux

package sys

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCountersAreFoundByName(t *testing.T) {
	const head = "Other: A B\nOther: 7 8\nTcpExt: SyncookiesSent ListenOverflows ListenDrops\n"
	for text, want := range map[string][]uint64{
		head + "TcpExt: 1 2 3\nIpExt: ListenDrops\nIpExt: 9\n": {2, 3, 0},
		head + "TcpExt: 1 2\n":                                 nil,
		head + "TcpExt: 1 2 x\n":                               nil,
		head + "TcpExt: 1 2 -3\n":                              nil,
		head:                                                   nil,
		"":                                                     nil,
	} {
		got, err := parseNetstat(text, []string{"ListenOverflows", "ListenDrops", "NoSuchCounter"})
		assert.Equal(t, want, got, "%q", text)
		assert.Equal(t, want == nil, err != nil, "%q: %v", text, err)
	}
	_, err := ReadNetstat("ListenOverflows")
	require.NoError(t, err)
}
