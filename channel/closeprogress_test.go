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

// sips reads so many bytes per second, until it has had enough.
type sips struct {
	probe
	perSecond, enough int
}

func (h *sips) ReadGrant(ctx *pipeline.Context) (int, time.Duration) {
	may := int(ctx.Now()*time.Duration(h.perSecond)/time.Second) - h.got.Len()
	if h.got.Len() >= h.enough {
		return 0, time.Hour
	}
	return max(may, 0), 10 * time.Millisecond
}

// closing starts a server that writes n bytes to the client and closes.
func closing(t *testing.T, n int, cfg channel.Config, client *sips) (*pair, *probe) {
	p := newPair(t, sim.Config{})
	p.serverConfig = cfg
	server := &probe{onActive: func(ctx *pipeline.Context) error {
		if err := ctx.Write(make([]byte, n)); err != nil {
			return err
		}
		return ctx.Close()
	}}
	p.connect(server, client)
	return p, server
}

func TestClosingWaitsForAPeerThatReadsSlowly(t *testing.T) {
	const n = 2 << 20
	client := &sips{perSecond: 50_000, enough: n} // 42 s for all
	p, server := closing(t, n, channel.Config{CloseTimeout: 3 * time.Second}, client)
	for client.inactive == 0 || server.inactive == 0 {
		p.turn(10 * time.Millisecond)
	}
	assert.Equal(t, n, client.got.Len())
	assert.NoError(t, server.cause)
	assert.Greater(t, p.world.Now(), 30*time.Second, "ten times the timeout")
}

func TestClosingEndsWhenThePeerStopsReading(t *testing.T) {
	const n, enough = 1 << 20, 200_000
	client := &sips{perSecond: 50_000, enough: enough} // for 4 s
	p, server := closing(t, n, channel.Config{CloseTimeout: 3 * time.Second}, client)
	for server.inactive == 0 {
		p.turn(10 * time.Millisecond)
	}
	assert.ErrorIs(t, server.cause, channel.ErrCloseTimeout)
	// The timeout behind the last progress, which is found at the next of eight looks.
	assert.Greater(t, p.world.Now(), 6*time.Second)
	assert.Less(t, p.world.Now(), 9*time.Second)
	assert.GreaterOrEqual(t, client.got.Len(), enough)
}

func TestClosingIsBoundedInAll(t *testing.T) {
	const n = 2 << 20
	for _, c := range []struct {
		total time.Duration
		cause error
	}{
		{41 * time.Second, channel.ErrCloseTimeout}, // one second is in the client's buffer
		{44 * time.Second, nil},
		{-1, nil},
	} {
		client := &sips{perSecond: 50_000, enough: n}
		cfg := channel.Config{CloseTimeout: 3 * time.Second, CloseTotalTimeout: c.total}
		p, server := closing(t, n, cfg, client)
		for server.inactive == 0 {
			p.turn(10 * time.Millisecond)
		}
		require.ErrorIs(t, server.cause, c.cause)
		if c.cause != nil {
			assert.InDelta(t, c.total.Seconds(), p.world.Now().Seconds(), 0.1)
		} else {
			assert.Equal(t, n, client.got.Len())
		}
	}
}
