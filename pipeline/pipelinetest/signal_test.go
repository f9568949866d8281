package pipelinetest_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestSignalsRunInTheNextTurnAndOnce(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("a", quiet{}), pipelinetest.Named("b", quiet{}))
	var runs []string
	var again pipeline.Signal
	a := ch.Context("a").NewSignal(func(ctx *pipeline.Context) error {
		if runs = append(runs, ctx.Name()); len(runs) == 2 { // the first time
			again.Raise()
		}
		return nil
	})
	again = a
	b := ch.Context("b").NewSignal(func(ctx *pipeline.Context) error { runs = append(runs, ctx.Name()); return nil })
	var raisers sync.WaitGroup
	raisers.Go(func() { b.Raise(); a.Raise(); b.Raise() })
	raisers.Wait()
	assert.Empty(t, runs)
	ch.RunTasks()
	assert.Equal(t, []string{"b", "a", "a"}, runs)

	a.Raise()
	b.Raise()
	_, err := ch.Pipeline().Remove("a")
	require.NoError(t, err)
	ch.RunTasks()
	assert.Equal(t, []string{"b", "a", "a", "b"}, runs, "none of a removed handler")
	ch.Abort(nil)
	b.Raise()
	ch.RunTasks()
	assert.Len(t, runs, 4, "none of a closed channel")
}

func TestAnErrorOfASignalIsAnInboundError(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("a", quiet{}))
	s := ch.Context("a").NewSignal(func(*pipeline.Context) error { return errTest })
	s.Raise()
	ch.RunTasks()
	assert.ErrorIs(t, ch.TakeError(), errTest)
}
