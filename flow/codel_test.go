package flow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/flow"
)

const ms = time.Millisecond

func newCoDel(t testing.TB) *flow.CoDel {
	t.Helper()
	c, err := flow.NewCoDel(flow.CoDelConfig{})
	require.NoError(t, err)
	return c
}

func TestCoDelLetsBurstsPass(t *testing.T) {
	c := newCoDel(t)
	for now := time.Duration(0); now < time.Second; now += ms {
		waited := 50 * ms
		if now%(99*ms) == 0 {
			waited = 5*ms - 1 // one good wait in an interval
		}
		assert.False(t, c.Drop(now, waited, 5), "at %v", now)
	}
}

func TestCoDelDropsMoreAndMoreOften(t *testing.T) {
	c := newCoDel(t)
	var drops []time.Duration
	for now := time.Duration(0); now <= 400*ms; now += ms {
		if c.Drop(now, 5*ms, 1) {
			drops = append(drops, now)
		}
	}
	// After an interval, then 100 ms/√n apart (RFC 8289, section 3.3).
	assert.Equal(t, []time.Duration{100 * ms, 200 * ms, 271 * ms, 329 * ms, 379 * ms}, drops)
	assert.True(t, c.Overloaded())
	assert.False(t, c.Drop(401*ms, 5*ms-1, 1), "a good wait ends it")
	assert.False(t, c.Overloaded())
	assert.False(t, c.Drop(402*ms, 5*ms, 1))
	assert.False(t, c.Drop(501*ms, 5*ms, 1), "and the interval begins anew")
	assert.True(t, c.Drop(502*ms, 5*ms, 1))
	assert.True(t, c.Drop(560*ms, 5*ms, 1), "at about the rate that it had")
}

func TestCoDelKeepsTheLastEntry(t *testing.T) {
	c := newCoDel(t)
	for now := time.Duration(0); now < time.Second; now += ms {
		assert.False(t, c.Drop(now, time.Second, 0))
	}
}
