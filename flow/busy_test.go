package flow_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/flow"
)

func TestBusySaysWhy(t *testing.T) {
	for want, b := range map[string]flow.Busy{
		"flow: overloaded, class 2, retry after 50ms": {RetryAfter: 50 * time.Millisecond, Shed: true, Class: 2},
		"flow: over quota, class 0":                   {},
		"flow: overloaded, class exempt":              {Shed: true, Class: flow.Exempt},
	} {
		assert.EqualError(t, &b, want)
	}
	var busy *flow.Busy
	assert.True(t, errors.As(fmt.Errorf("get: %w", &flow.Busy{Shed: true}), &busy))
}

func TestRetryHintIsBoundedAndSpread(t *testing.T) {
	const last = 1 - 1e-9
	for _, tc := range []struct {
		drain  time.Duration
		chance float64
		want   time.Duration
	}{
		{-1, 0, flow.MinRetryAfter},
		{0, last, flow.MinRetryAfter},
		{20 * time.Millisecond, 0, 10 * time.Millisecond},
		{20*time.Millisecond - 2, 0, flow.MinRetryAfter},
		{time.Second, 0, 500 * time.Millisecond},
		{time.Second, 0.5, time.Second},
		{time.Second, 0.75, 1250 * time.Millisecond},
		{9 * time.Second, 0.9, flow.MaxRetryAfter},
		{math.MaxInt64, 0, flow.MaxRetryAfter},
		{math.MaxInt64, 0.5, 3750 * time.Millisecond},
	} {
		assert.Equal(t, tc.want, flow.RetryHint(tc.drain, tc.chance), "%v at %v", tc.drain, tc.chance)
	}
}
