//go:build linux

package weir_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/pipeline"
)

// forwarder connects to its upstream, which gets a large message, and leaves.
type forwarder struct {
	upstream string
	sent     chan struct{}
}

func (f *forwarder) ChannelActive(ctx *pipeline.Context) error {
	return ctx.Dial("tcp", f.upstream, func(p *pipeline.Pipeline) error {
		return p.AddLast("back", &backSide{front: ctx, sent: f.sent})
	}, func(err error) { ctx.Abort(err) })
}

type backSide struct {
	front *pipeline.Context
	sent  chan struct{}
}

const forwarded = 4 << 20

func (b *backSide) ChannelActive(ctx *pipeline.Context) error {
	defer close(b.sent)
	if err := ctx.Write(make([]byte, forwarded)); err != nil {
		return err
	}
	if err := b.front.Close(); err != nil {
		return err
	}
	return ctx.Close()
}

func TestShutdownWaitsForConnectionsThatHandlersHaveDialed(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		f := &forwarder{upstream: l.Addr().String(), sent: make(chan struct{})}
		srv := &weir.Server{Transport: kind, Loops: 1, Init: only(func() any { return f })}
		srv.Channel.CloseTimeout = 20 * time.Second
		addr := startTCP(t, srv)
		c := connect(t, "tcp", addr)
		up, err := l.Accept()
		require.NoError(t, err)
		receive(t, f.sent, "the message was written")
		require.NoError(t, c.Close())
		done := make(chan error, 1)
		go func() { done <- srv.Shutdown(background(t)) }()
		n, err := io.Copy(io.Discard, up)
		assert.NoError(t, err)
		assert.NoError(t, up.Close()) // its FIN
		assert.EqualValues(t, forwarded, n)
		assert.NoError(t, receive(t, done, "shutdown"))
	})
}
