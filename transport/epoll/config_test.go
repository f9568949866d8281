package epoll

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheZeroConfigHasDefaults(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, Config{
		RawWait: 5 * time.Millisecond, ReceiveBlockBytes: 65536, ReceivesPerWait: 8, AcceptsPerWait: 64,
		SendBytesPerTurn: 1048576,
	}, cfg)
}

func TestConfigsThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		fine bool
	}{
		{Config{ReceiveBlockBytes: 128}, false},
		{Config{ReceiveBlockBytes: 255}, false},
		{Config{ReceiveBlockBytes: 256}, true},
		{Config{ReceiveBlockBytes: 257}, false},
		{Config{ReceiveBlockBytes: 1 << 20}, true},
		{Config{ReceiveBlockBytes: 1<<20 + 1}, false},
		{Config{ReceiveBlockBytes: 1 << 21}, false},
		{Config{ReceiveBlockBytes: -256}, false},
		{Config{ReceivesPerWait: -1}, false},
		{Config{ReceivesPerWait: 1}, true},
		{Config{AcceptsPerWait: -1}, false},
		{Config{SendBytesPerTurn: -1}, false},
		{Config{SendBytesPerTurn: 1}, true},
		{Config{RawWait: -1}, false},
		{Config{RawWait: 1}, true},
	} {
		_, err := c.cfg.withDefaults()
		require.Equal(t, c.fine, err == nil, "%+v: %v", c.cfg, err)
		_, err = Open(Config{ReceiveBlockBytes: 1})
		require.Error(t, err)
	}
}
