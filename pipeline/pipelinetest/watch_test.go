package pipelinetest_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// quiet is a handler that does nothing.
type quiet struct{}

func (quiet) ChannelEvent(ctx *pipeline.Context, event any) error { ctx.FireEvent(event); return nil }

func TestAWatchOfPendingIsToldBeyondItsMarks(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("a", quiet{}), pipelinetest.Named("b", quiet{}))
	var seen []int
	see := func(_ *pipeline.Context, n int) error { seen = append(seen, n); return nil }
	a, b := ch.Context("a"), ch.Context("b")
	ch.Do(func() { a.WatchPending(10, 100, see) })
	for _, n := range []int{5, 10, 11, 99, 100, 101, 50} {
		ch.SetPending(n)
	}
	assert.Equal(t, []int{0, 5, 10, 100, 101}, seen)

	seen = nil
	ch.Do(func() { a.WatchPending(-1, 60, see); b.WatchPending(40, math.MaxInt, see) })
	for _, n := range []int{41, 59, 40, 60} {
		ch.SetPending(n)
	}
	assert.Equal(t, []int{40, 60}, seen, "each has its own marks")

	seen = nil
	ch.Do(func() { a.WatchPending(0, 0, nil) })
	_, err := ch.Pipeline().Remove("b")
	assert.NoError(t, err)
	ch.SetPending(0)
	ch.SetPending(1000)
	assert.Empty(t, seen, "no watch is left")
	ch.SetPending(0)
}

func TestAnErrorOfAWatchIsAnInboundError(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("a", quiet{}))
	wrong := errors.New("wrong")
	ch.Do(func() { ch.Context("a").WatchPending(-1, 1, func(*pipeline.Context, int) error { return wrong }) })
	ch.SetPending(1)
	assert.ErrorIs(t, ch.TakeError(), wrong)
	assert.True(t, ch.Closed())
}
