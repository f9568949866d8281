package netlab_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/netlab"
	"github.com/weirnet/weir/internal/testenv"
)

func space(t *testing.T, name string) *netlab.Space {
	t.Helper()
	s, err := netlab.NewSpace(name)
	testenv.Require(t, "netns", err)
	t.Cleanup(s.Close)
	return s
}

func TestSpacesTalkOverABridge(t *testing.T) {
	fabric, a, b := space(t, "fabric"), space(t, "a"), space(t, "b")
	require.NoError(t, netlab.Join(a, "eth0", fabric, "p-a"))
	require.NoError(t, netlab.Join(b, "eth0", fabric, "p-b"))
	require.NoError(t, fabric.Bridge("br0", "p-a", "p-b"))
	require.NoError(t, a.Address("eth0", "10.9.0.1/24", "fd09::1/64"))
	require.NoError(t, b.Address("eth0", "10.9.0.2/24", "fd09::2/64"))
	require.NoError(t, a.ChecksumInSoftware("eth0"))
	for _, address := range []string{"10.9.0.2:7", "[fd09::2]:7"} {
		var l net.Listener
		require.NoError(t, b.Do(func() (err error) { l, err = net.Listen("tcp", address); return err }))
		require.NoError(t, a.Do(func() error {
			c, err := net.Dial("tcp", address)
			if err == nil {
				err = c.Close()
			}
			return err
		}), address)
		require.NoError(t, l.Close())
	}
}

func TestNamespacesAreApart(t *testing.T) {
	a, b := space(t, "a"), space(t, "b")
	require.NoError(t, a.Bridge("here"))
	_, err := b.Link("here")
	assert.ErrorContains(t, err, "interface here in b")
	require.NoError(t, a.Do(func() error { _, err := net.InterfaceByName("here"); return err }))
	_, err = net.InterfaceByName("here")
	assert.Error(t, err, "the process's own namespace has it, too")
	assert.EqualError(t, a.Do(func() error { return errors.New("mine") }), "mine")
}

func TestAFileSystemForPinsIsNowhereElse(t *testing.T) {
	path, closeFS, err := netlab.BPFFS()
	testenv.Require(t, "bpffs", err)
	require.NoError(t, os.Mkdir(filepath.Join(path, "dir"), 0o700))
	require.NoError(t, closeFS())
	_, err = os.Stat(filepath.Join(path, "dir"))
	assert.Error(t, err)
}
