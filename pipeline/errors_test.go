package pipeline_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// failing fails in each inbound method.
type failing struct{}

func (failing) ChannelRead(*pipeline.Context, any) error          { return errTest }
func (failing) ChannelReadComplete(*pipeline.Context) error       { return errTest }
func (failing) ChannelActive(*pipeline.Context) error             { return errTest }
func (failing) ChannelInactive(*pipeline.Context) error           { return errTest }
func (failing) ChannelReadClosed(*pipeline.Context) error         { return errTest }
func (failing) ChannelEvent(*pipeline.Context, any) error         { return errTest }
func (failing) ChannelWritabilityChanged(*pipeline.Context) error { return errTest }
func (failing) ChannelResume(*pipeline.Context) error             { return errTest }
func (failing) ChannelShutdown(*pipeline.Context) error           { return errTest }
func (failing) HandlerRemoved(*pipeline.Context) error            { return errTest }
func (failing) Write(*pipeline.Context, any) error                { return errTest }
func (failing) Flush(*pipeline.Context) error                     { return errTest }
func (failing) Close(*pipeline.Context) error                     { return errTest }
func (failing) ErrorCaught(_ *pipeline.Context, err error) error  { return fmt.Errorf("own: %w", err) }

func TestInboundErrorGoesToOwnErrorCaughtThenOnward(t *testing.T) {
	for name, fire := range map[string]func(p *driven){
		"read":          func(p *driven) { p.FireRead(nil) },
		"read complete": (*driven).FireReadComplete,
		"active":        (*driven).FireActive,
		"inactive":      func(p *driven) { p.FireInactive() },
		"read closed":   func(p *driven) { p.FireReadClosed() },
		"event":         func(p *driven) { p.FireEvent(nil) },
		"writability":   (*driven).FireWritabilityChanged,
		"resume":        func(p *driven) { p.FireResume() },
		"shutdown":      func(p *driven) { p.FireShutdown() },
	} {
		t.Run(name, func(t *testing.T) {
			var got []error
			catch := onError(func(_ *pipeline.Context, err error) error {
				got = append(got, err)
				return nil
			})
			never := onError(func(*pipeline.Context, error) error {
				t.Error("an error handler before the failing one was asked, or one behind the one that swallowed")
				return nil
			})
			ch := newBare(never, failing{}, catch, never)
			if name == "inactive" {
				ch.pipe.FireActive()
				got = nil
			}
			fire(&ch.pipe)
			require.Len(t, got, 1)
			assert.EqualError(t, got[0], "own: test error")
		})
	}
}

func TestErrorOfRemovedGoesOnward(t *testing.T) {
	var got error
	ch := newBare(failing{}, onError(func(_ *pipeline.Context, err error) error {
		got = err
		return nil
	}))
	_, err := ch.pipe.Remove("failing")
	require.NoError(t, err, "Remove itself worked")
	assert.ErrorIs(t, got, errTest)
	assert.NotContains(t, got.Error(), "own:", "it has left and is asked no more")
}

func TestErrorAtTheTailClosesTheChannelWithItsCause(t *testing.T) {
	ch := pipelinetest.New(t, onRead(func(*pipeline.Context, any) error { return errTest }))
	ch.WriteInbound("x")
	assert.True(t, ch.Closed())
	assert.Equal(t, errTest, ch.Cause())
	assert.Equal(t, errTest, ch.TakeError())
}

func TestWhatWasWrittenBeforeAnErrorIsSent(t *testing.T) {
	ch := pipelinetest.New(t, wrap("[]"), onRead(func(ctx *pipeline.Context, _ any) error {
		check(ctx.WriteBytes([]byte("sorry")))
		return errTest
	}))
	ch.WriteInbound("x")
	assert.Equal(t, "[sorry]", ch.OutboundString())
	assert.Equal(t, errTest, ch.TakeError())
}

func TestOutboundErrorGoesToTheCaller(t *testing.T) {
	ch := newBare(failing{}, onError(func(*pipeline.Context, error) error {
		t.Error("outbound errors are the caller's")
		return nil
	}))
	assert.Equal(t, errTest, ch.pipe.Write(nil))
	assert.Equal(t, errTest, ch.pipe.Flush())
	assert.Equal(t, errTest, ch.pipe.Close())
}

func TestErrorsOfPostponedOutputGoToTheHandlerThatWrote(t *testing.T) {
	var got []string
	app := struct {
		onRead
		onError
	}{
		func(ctx *pipeline.Context, _ any) error { return ctx.WriteBytes([]byte("x")) },
		func(_ *pipeline.Context, err error) error {
			got = append(got, err.Error())
			return nil
		},
	}
	ch := pipelinetest.New(t, onWrite(func(*pipeline.Context, any) error { return errTest }), app)
	ch.WriteInbound("x")
	assert.Equal(t, []string{"test error"}, got)
	assert.True(t, ch.Open())
}

func TestErrorOfTheTurnsFlushGoesToTheErrorHandlers(t *testing.T) {
	var got error
	ch := pipelinetest.New(t, onFlush(func(*pipeline.Context) error { return errTest }),
		onError(func(_ *pipeline.Context, err error) error {
			got = err
			return nil
		}))
	ch.Do(func() { assert.NoError(t, ch.Pipeline().Write("x")) })
	assert.Equal(t, errTest, got)
}

func TestHandlerIsNotAskedAboutErrorsItCausesWhileHandlingOne(t *testing.T) {
	calls, onward := 0, []string(nil)
	circle := struct {
		onRead
		onError
	}{
		func(*pipeline.Context, any) error { return errTest },
		func(ctx *pipeline.Context, err error) error {
			calls++
			ctx.Pipeline().FireRead("again")
			return fmt.Errorf("handled: %w", err)
		},
	}
	ch := pipelinetest.New(t, circle, onError(func(_ *pipeline.Context, err error) error {
		onward = append(onward, err.Error())
		return nil
	}))
	ch.WriteInbound("x")
	assert.Equal(t, 1, calls)
	assert.Equal(t, []string{"test error", "handled: test error"}, onward)
	ch.WriteInbound("y")
	assert.Equal(t, 2, calls, "the next error is its own business again")
}

func TestErrorCaughtMayRemoveItselfAndPassTheErrorOn(t *testing.T) {
	var log journal
	ch := pipelinetest.New(t,
		pipelinetest.Named("leaver", onError(func(ctx *pipeline.Context, err error) error {
			_, rerr := ctx.Pipeline().Remove(ctx.Name())
			return errors.Join(err, rerr)
		})),
		tap{"b", &log},
		onError(func(*pipeline.Context, error) error { return nil }))
	log = nil
	ch.Do(func() { ch.Pipeline().FireError(errTest) })
	assert.Equal(t, journal{"b:error test error"}, log)
}

func TestErrorCaughtMayClose(t *testing.T) {
	var order journal
	ch := pipelinetest.New(t, struct {
		onRead
		onError
		onInactive
	}{
		func(*pipeline.Context, any) error { return errTest },
		func(ctx *pipeline.Context, err error) error {
			order.add("caught %v", err)
			return ctx.Close()
		},
		func(ctx *pipeline.Context) error {
			order.add("inactive %v", ctx.Cause())
			return nil
		},
	})
	ch.WriteInbound("x")
	assert.Equal(t, journal{"caught test error", "inactive <nil>"}, order)
	assert.True(t, ch.Closed())
}

func TestErrorAfterCloseIsHandledAndDoesNotChangeTheCause(t *testing.T) {
	caught := 0
	ch := pipelinetest.New(t, struct {
		onInactive
		onError
	}{
		func(*pipeline.Context) error { return errTest },
		func(_ *pipeline.Context, err error) error {
			caught++
			return err
		},
	})
	ch.Close()
	assert.Equal(t, 1, caught)
	assert.NoError(t, ch.Cause())
	assert.Equal(t, errTest, ch.TakeError())
}
