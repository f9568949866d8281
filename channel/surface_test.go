package channel_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/transport/sim"
)

// Hooks get a Channel: what only its loop, its pipeline or its listener may call is not among its methods, and nothing of
// it can be set.
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
