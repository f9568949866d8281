package channel_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// counter is a close handler that means to close later.
type counter struct{ calls int }

func (h *counter) Close(*pipeline.Context) error { h.calls++; return nil }

func TestCloseHandlerIsAskedOnceWhenBothSidesAreClosed(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &halfProbe{}
	sc := &counter{}
	server.onClosed = func(ctx *pipeline.Context) error { return ctx.CloseWrite() }
	client := &halfProbe{}
	client.onActive = func(ctx *pipeline.Context) error {
		return ctx.CloseWrite()
	}
	p.connect([]any{sc, server}, client)
	p.until("it is asked", func() bool { return sc.calls > 0 })
	for range 10 {
		server.ctx.Hold(1)
		server.ctx.Hold(-1)
		_, _ = p.server.RunOnce(0)
	}
	assert.Equal(t, 1, sc.calls)
}

func TestLastWordsThatComeTooLateAreNoError(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &halfProbe{}
	server.onClosed = func(ctx *pipeline.Context) error { return ctx.CloseWrite() }
	client := &halfProbe{}
	client.onActive = func(ctx *pipeline.Context) error { return ctx.CloseWrite() }
	p.connect([]any{lastWords{}, server}, client)
	p.until("both are closed", func() bool { return len(p.closed) == 2 })
	assert.NoError(t, server.cause)
}

func TestTinyTryWritesAreBounded(t *testing.T) {
	p := newPair(t, sim.Config{})
	client, _ := stalled(t, p)
	r := client.ctx.Ref()
	n := 0
	for ; n < 3_000_000; n++ {
		if r.TryWrite([]byte{1}) != nil {
			break
		}
	}
	assert.Less(t, n, 3_000_000)
}

// dial from inactive while loop ends
func TestDialWhileTheLoopEndsTellsFailure(t *testing.T) {
	p := newPair(t, sim.Config{})
	told := 0
	client := &probe{}
	client.onInactive = func(ctx *pipeline.Context) error {
		return ctx.Dial("tcp", address, nil, func(error) { told++ })
	}
	p.connect(&probe{}, client)
	p.until("active", func() bool { return client.active == 1 })
	require.NoError(t, p.client.Close())
	assert.Equal(t, 1, client.inactive)
	assert.Equal(t, 1, told, "failed runs on the loop when it cannot connect")
}

// flush in popSent variant: Close with a flush handler in Done
