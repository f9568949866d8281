//go:build linux

package ipfilter_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/pipeline"
)

// greeter says hello and closes.
type greeter struct{}

func (greeter) ChannelActive(ctx *pipeline.Context) error {
	if err := ctx.Write("hello"); err != nil {
		return err
	}
	return ctx.Close()
}

func TestOverRealSockets(t *testing.T) {
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
		f, err := ipfilter.New(ipfilter.Config{})
		require.NoError(t, err)
		address := servertest.Serve(t, kind, func() ([]any, error) { return []any{f, greeter{}}, nil })
		ask := func() string {
			c, err := net.Dial("tcp", address)
			if errors.Is(err, syscall.ECONNRESET) {
				return "" // turned away before Dial had looked
			}
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
			all, _ := io.ReadAll(c) // a reset, for those who are turned away
			return string(all)
		}
		assert.Equal(t, "hello", ask())
		f.Swap(set(t, ipfilter.Config{Deny: prefixes("127.0.0.0/8")}))
		assert.Empty(t, ask())
		assert.Equal(t, ipfilter.Stats{Accepted: 1, Rejected: 1}, f.Stats())
	})
}
