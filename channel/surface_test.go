package channel_test

import (
	"net"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// Hooks get a Channel: what only its loop, its pipeline or its listener may call is not among its methods, and nothing
// of it can be set.
func TestUsersOfAChannelCanOnlyCallWhatIsForThem(t *testing.T) {
	typ := reflect.TypeFor[*channel.Channel]()
	var methods []string
	for i := range typ.NumMethod() {
		methods = append(methods, typ.Method(i).Name)
	}
	assert.Equal(t, []string{
		"Abort", "Cause", "Close", "Control", "ID", "LocalAddr", "Open", "Pipeline", "Ref", "RemoteAddr", "RemoteAddrPort",
		"Shutdown",
	}, methods)
	for i := range typ.Elem().NumField() {
		assert.False(t, typ.Elem().Field(i).IsExported(), typ.Elem().Field(i).Name)
	}
}

func TestTheLocalAddressIsKnownUntilInactiveIsOver(t *testing.T) {
	for _, end := range []func(ctx *pipeline.Context){
		func(ctx *pipeline.Context) { _ = ctx.Close() },
		func(ctx *pipeline.Context) { ctx.Abort(nil) },
	} {
		p := newPair(t, sim.Config{})
		var before, after net.Addr
		server := &probe{
			onActive:   func(ctx *pipeline.Context) error { before = ctx.LocalAddr(); return nil },
			onInactive: func(ctx *pipeline.Context) error { after = ctx.LocalAddr(); return nil },
		}
		client := &probe{}
		c := p.connect(server, client)
		p.until("active", func() bool { return server.active == 1 && client.active == 1 })
		local := c.LocalAddr()
		end(server.ctx)
		end(client.ctx)
		p.until("closed", func() bool { return len(p.closed) == 2 })
		require.NotNil(t, before)
		assert.Equal(t, address, before.String())
		assert.Equal(t, before, after)
		assert.Equal(t, local, c.LocalAddr())
	}
}

// Both loops are the first and only one of their Group, or of none, and use their first slot.
func TestAnIDIsUniqueInTheProcess(t *testing.T) {
	ids := map[uint64]bool{}
	for range 3 {
		p := newPair(t, sim.Config{})
		p.connect(&probe{}, &probe{}).Abort(nil)
		p.until("closed", func() bool { return len(p.closed) == 2 })
		for _, c := range p.closed {
			assert.False(t, ids[c.ID()], c.ID())
			ids[c.ID()] = true
		}
	}
	assert.Len(t, ids, 6)
}

func TestAListKeepsWhoIsInAnotherListOut(t *testing.T) {
	p := newPair(t, sim.Config{})
	p.listen(func() []any { return []any{&probe{}} })
	a, b, c := p.dial(&probe{}), p.dial(&probe{}), p.dial(&probe{})
	var l, other channel.List
	for _, ch := range []*channel.Channel{a, b, c, b} {
		l.Add(ch)
	}
	other.Add(b)
	assert.Zero(t, other.Len())
	other.Remove(b)
	require.Equal(t, []*channel.Channel{a, b, c}, l.Channels())
	l.Remove(a)
	l.Remove(a)
	assert.Equal(t, []*channel.Channel{c, b}, l.Channels())
	other.Add(a)
	assert.Equal(t, 1, other.Len())
	l.Remove(c)
	l.Remove(b)
	assert.Zero(t, l.Len())
}

// docs/performance.md says what an idle connection costs.
func TestAChannelIsNotLarger(t *testing.T) {
	assert.LessOrEqual(t, reflect.TypeFor[channel.Channel]().Size(), uintptr(416))
}
