//go:build linux

package ipfilter_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/handlers/ipfilter"
	"github.com/weirnet/weir/internal/testenv"
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
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		t.Run("transport="+string(kind), func(t *testing.T) {
			f, err := ipfilter.New(ipfilter.Config{})
			require.NoError(t, err)
			srv := &weir.Server{
				Transport: kind, Loops: 1, Logger: slog.New(slog.DiscardHandler),
				Init: func(p *pipeline.Pipeline) error {
					if err := p.AddLast("filter", f); err != nil {
						return err
					}
					return p.AddLast("greeter", greeter{})
				},
			}
			addr, err := srv.Listen("tcp", "127.0.0.1:0")
			testenv.Require(t, string(kind), err)
			t.Cleanup(func() { assert.NoError(t, srv.Close()) })
			ask := func() string {
				c, err := net.DialTimeout("tcp", addr.String(), 30*time.Second)
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
}
