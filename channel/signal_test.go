package channel_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// signaled returns a connected pair and a signal of the server's handler that calls fn.
func signaled(t *testing.T, fn func(*pipeline.Context) error) (p *pair, server *probe, s pipeline.Signal) {
	p = newPair(t, sim.Config{})
	server = &probe{}
	server.onActive = func(ctx *pipeline.Context) error {
		s = ctx.NewSignal(fn)
		return nil
	}
	p.connect(server, &probe{})
	p.until("the server has its channel", func() bool { return server.active == 1 })
	return p, server, s
}

func TestASignalRunsOnceHoweverOftenItWasRaised(t *testing.T) {
	runs := 0
	var again pipeline.Signal
	p, _, s := signaled(t, func(*pipeline.Context) error {
		if runs++; runs == 1 {
			again.Raise() // from inside it is the next time
		}
		return nil
	})
	again = s
	var raisers sync.WaitGroup
	for range 4 {
		raisers.Go(func() {
			for range 1000 {
				s.Raise()
			}
		})
	}
	raisers.Wait()
	assert.Zero(t, runs, "on the loop, not where it is raised")
	p.run(time.Millisecond)
	assert.Equal(t, 2, runs)
	s.Raise()
	p.run(time.Millisecond)
	assert.Equal(t, 3, runs)
}

// What others have filled is nothing to a signal.
func TestASignalIsNeverRefused(t *testing.T) {
	runs := 0
	p, server, s := signaled(t, func(*pipeline.Context) error { runs++; return nil })
	for server.ctx.Ref().Execute(func(*pipeline.Context) {}) == nil {
	}
	s.Raise()
	p.run(time.Millisecond)
	assert.Equal(t, 1, runs)
	assert.Zero(t, testing.AllocsPerRun(100, s.Raise))
}

func TestASignalOfAClosedChannelDoesNothing(t *testing.T) {
	runs := 0
	count := func(*pipeline.Context) error { runs++; return nil }
	p, server, s := signaled(t, count)
	first := server.ctx
	client := p.dial(&probe{})
	var end pipeline.Signal // of a Context that is never removed
	require.NoError(t, client.Ref().Execute(func(ctx *pipeline.Context) { end = ctx.NewSignal(count) }))
	p.until("there is a signal", func() bool { return end != nil })
	client.Abort(nil)
	first.Abort(nil)
	p.until("closed", func() bool { return len(p.closed) == 4 })
	s.Raise()
	end.Raise()
	p.run(time.Millisecond)
	assert.Zero(t, runs)
}

func TestASignalOfARemovedHandlerDoesNothing(t *testing.T) {
	runs := 0
	p, server, s := signaled(t, func(*pipeline.Context) error { runs++; return nil })
	s.Raise()
	_, err := server.ctx.Pipeline().Remove(server.ctx.Name())
	require.NoError(t, err)
	p.run(time.Millisecond)
	assert.Zero(t, runs)
}

func TestAnErrorOfASignalIsAnInboundError(t *testing.T) {
	p, server, s := signaled(t, func(*pipeline.Context) error { return errTest })
	s.Raise()
	p.until("closed", func() bool { return server.inactive == 1 })
	assert.ErrorIs(t, server.cause, errTest)
}

func TestAPanicInASignalClosesItsChannel(t *testing.T) {
	p, server, s := signaled(t, func(*pipeline.Context) error { panic("wrong") })
	s.Raise()
	p.until("closed", func() bool { return server.inactive == 1 })
	assert.ErrorIs(t, server.cause, channel.ErrPanic)
	s.Raise()
	p.run(time.Millisecond)
}
