package channel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

func TestAGrantOfNothingEndsWithItsHandler(t *testing.T) {
	p := newPair(t, sim.Config{})
	g := &granter{}
	server := &probe{}
	p.listen(func() []any { return []any{g, server} })
	p.dial(&probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 1000)) }})
	p.run(50 * time.Millisecond)
	require.Zero(t, server.got.Len())
	_, err := g.ctx.Pipeline().Remove(g.ctx.Name())
	require.NoError(t, err)
	p.until("all arrived", func() bool { return server.got.Len() == 1000 })
}

// holdsBack lets no flush pass.
type holdsBack struct{ ctx *pipeline.Context }

func (h *holdsBack) HandlerAdded(ctx *pipeline.Context) error { h.ctx = ctx; return nil }
func (h *holdsBack) Flush(*pipeline.Context) error            { return nil }

func TestAFlushThatIsHeldBackGoesWhenItsHandlerLeaves(t *testing.T) {
	for name, leave := range map[string]func(h *holdsBack) error{
		"removed": func(h *holdsBack) error {
			_, err := h.ctx.Pipeline().Remove(h.ctx.Name())
			return err
		},
		"replaced": func(h *holdsBack) error {
			_, err := h.ctx.Pipeline().Replace(h.ctx.Name(), "other", &granter{n: 1000})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, sim.Config{})
			server := &probe{}
			p.listen(func() []any { return []any{server} })
			h := &holdsBack{}
			p.dial(h, &probe{onActive: func(ctx *pipeline.Context) error { return ctx.Write(make([]byte, 1000)) }})
			p.run(50 * time.Millisecond)
			require.Zero(t, server.got.Len())
			require.NoError(t, leave(h))
			p.until("all arrived", func() bool { return server.got.Len() == 1000 })
		})
	}
}

// A grant of nothing stops reading as a pause does: a peer that has gone meanwhile is not waited for, for ever.
func TestAPeerThatIsGoneWhileNothingIsGrantedIsGivenUpInTime(t *testing.T) {
	for name, end := range map[string]func(ctx *pipeline.Context){
		"FIN": func(ctx *pipeline.Context) { _ = ctx.CloseWrite() },
		"RST": func(ctx *pipeline.Context) { ctx.Abort(nil) },
	} {
		// Being asked again does not start the clock anew.
		for _, retry := range []time.Duration{0, 7 * time.Millisecond} {
			t.Run(name, func(t *testing.T) {
				p := newPair(t, sim.Config{})
				p.serverConfig.PausedCloseTimeout = 10 * time.Second
				server := &probe{}
				client := &halfProbe{}
				p.connect([]any{&granter{retry: retry}, server}, client)
				p.until("active", func() bool { return server.active == 1 && client.active == 1 })
				end(client.ctx)
				from := p.world.Now()
				for server.inactive == 0 && p.world.Now() < from+time.Minute {
					p.turn(10 * time.Millisecond)
				}
				assert.ErrorIs(t, server.cause, channel.ErrPausedClose)
				assert.InDelta(t, 10, (p.world.Now() - from).Seconds(), 0.2)
			})
		}
	}
}
