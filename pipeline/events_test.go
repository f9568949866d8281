package pipeline_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

var errTest = errors.New("test error")

func TestInboundRunsHeadToTailAndOutboundTailToHead(t *testing.T) {
	for _, c := range []struct {
		name string
		fire func(p *driven)
		want journal
	}{
		{"read", func(p *driven) { p.FireRead("x") }, journal{"a:read x", "b:read x"}},
		{"read complete", (*driven).FireReadComplete, journal{"a:read-complete", "b:read-complete"}},
		{"read closed", func(p *driven) { p.FireReadClosed() }, journal{"a:read-closed", "b:read-closed"}},
		{
			"error", func(p *driven) { p.FireError(errTest) },
			journal{"a:error test error", "b:error test error"},
		},
		{"event", func(p *driven) { p.FireEvent(7) }, journal{"a:event 7", "b:event 7"}},
		{"writability", (*driven).FireWritabilityChanged, journal{"a:writable true", "b:writable true"}},
		{"shutdown", func(p *driven) { p.FireShutdown() }, journal{"a:shutdown", "b:shutdown"}},
		{"resume", func(p *driven) { p.FireResume() }, journal{"b:resume", "a:resume"}},
		{"write", func(p *driven) { _ = p.Write("x") }, journal{"b:write x", "a:write x"}},
		{"flush", func(p *driven) { _ = p.Flush() }, journal{"b:flush", "a:flush"}},
		{"flush of the turn", func(p *driven) { p.FireFlush() }, journal{"b:flush", "a:flush"}},
		{"close", func(p *driven) { _ = p.Close() }, journal{"b:close", "a:close"}},
		{"remove all", (*driven).RemoveAll, journal{"b:removed", "a:removed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log journal
			ch := newBare(tap{"a", &log}, tap{"b", &log})
			assert.Equal(t, journal{"a:added", "b:added"}, log)
			log = nil
			c.fire(&ch.pipe)
			assert.Equal(t, c.want, log)
		})
	}
}

func TestActiveAndInactiveFireOnce(t *testing.T) {
	var log journal
	ch := newBare(tap{"a", &log}, tap{"b", &log})
	log = nil
	assert.False(t, ch.pipe.Active())
	ch.pipe.FireActive()
	assert.True(t, ch.pipe.Active())
	ch.pipe.FireInactive()
	assert.False(t, ch.pipe.Active())
	assert.Equal(t, journal{"a:active", "b:active", "a:inactive", "b:inactive"}, log)
}

func TestActiveAndInactiveFiredTwiceReachNobodyTwice(t *testing.T) {
	for name, again := range map[string]func(p *driven){
		"active":   (*driven).FireActive,
		"inactive": (*driven).FireInactive,
	} {
		t.Run(name, func(t *testing.T) {
			var log journal
			ch := newBare(tap{"a", &log})
			ch.pipe.FireActive()
			ch.pipe.FireInactive()
			log = nil
			if invariants.Enabled {
				assert.Panics(t, func() { again(&ch.pipe) }, "a channel's mistake")
				return
			}
			again(&ch.pipe)
			assert.Empty(t, log)
		})
	}
}

func TestInactiveWithoutActiveReachesNobody(t *testing.T) {
	var log journal
	ch := newBare(tap{"a", &log})
	log = nil
	ch.pipe.FireInactive()
	assert.Empty(t, log)
}

func TestEventsSkipHandlersWithoutTheInterface(t *testing.T) {
	var log journal
	none := onRemoved(func(*pipeline.Context) error { return nil })
	ch := newBare(none, tap{"a", &log}, none, none, tap{"b", &log}, none)
	log = nil
	ch.pipe.FireRead("x")
	ch.pipe.FireReadComplete()
	require.NoError(t, ch.pipe.Write("y"))
	require.NoError(t, ch.pipe.Flush())
	require.NoError(t, ch.pipe.Close())
	ch.pipe.FireEvent("e")
	assert.Equal(t, journal{
		"a:read x", "b:read x", "a:read-complete", "b:read-complete",
		"b:write y", "a:write y", "b:flush", "a:flush", "b:close", "a:close", "a:event e", "b:event e",
	}, log)
}

func TestEventEndsAtHandlerThatDoesNotPassItOn(t *testing.T) {
	var log journal
	stop := struct {
		onRead
		onEvent
		onWrite
	}{
		func(*pipeline.Context, any) error { return nil },
		func(*pipeline.Context, any) error { return nil },
		func(*pipeline.Context, any) error { return nil },
	}
	ch := pipelinetest.New(t, tap{"a", &log}, stop, tap{"b", &log})
	log = nil
	ch.WriteInbound("x")
	ch.Do(func() {
		ch.Pipeline().FireEvent("e")
		assert.NoError(t, ch.Pipeline().Write("y"))
		assert.NoError(t, ch.Context("tap").Write("z"))
	})
	assert.Equal(t, journal{
		"a:read x", "a:read-complete", "b:read-complete",
		"a:event e", "b:write y", "b:flush", "a:flush",
	}, log, "z starts before a")
	assert.Equal(t, "z", ch.OutboundString())
}

func TestUnhandledMessagesAreDroppedAndCounted(t *testing.T) {
	var logged bytes.Buffer
	ch := newBare(pass{})
	ch.logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	assert.Zero(t, ch.pipe.Unhandled())
	ch.pipe.FireRead("x")
	ch.pipe.FireRead("y")
	ch.pipe.FireEvent("not a message")
	assert.Equal(t, uint64(2), ch.pipe.Unhandled())
	assert.Equal(t, 1, strings.Count(logged.String(), "unhandled"), "one line for all")
	assert.Contains(t, logged.String(), "type=string")
}

func TestReadClosedAndShutdownCloseWhereNobodyObjects(t *testing.T) {
	keep := func(*pipeline.Context) error { return nil }
	for _, c := range []struct {
		name     string
		handlers []any
		readOK   bool
		stopOK   bool
	}{
		{"no handler", nil, false, false},
		{"passed on to the tail", []any{tap{"a", &journal{}}}, false, false},
		{"kept", []any{struct {
			onReadClosed
			onShutdown
		}{keep, keep}}, true, true},
		{
			"passed on to one who keeps it",
			[]any{tap{"a", &journal{}}, onReadClosed(keep), onShutdown(keep)},
			true, true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := newBare(c.handlers...)
			assert.Equal(t, c.readOK, ch.pipe.FireReadClosed())
			assert.Equal(t, c.stopOK, ch.pipe.FireShutdown())
			assert.Zero(t, ch.closes, "that is for the asker to do")

			peer := pipelinetest.New(t, c.handlers...)
			peer.PeerClose()
			assert.Equal(t, !c.readOK, peer.Closed())
			stop := pipelinetest.New(t, c.handlers...)
			stop.Shutdown()
			assert.Equal(t, !c.stopOK, stop.Closed())
		})
	}
}

func TestReadClosedPassedOnLaterClosesAtTheTail(t *testing.T) {
	late := onReadClosed(func(*pipeline.Context) error { return nil })
	for name, fire := range map[string]func(*pipeline.Context){
		"read closed": (*pipeline.Context).FireReadClosed,
		"shutdown":    (*pipeline.Context).FireShutdown,
	} {
		t.Run(name, func(t *testing.T) {
			ch := pipelinetest.New(t, pipelinetest.Named("late", late))
			ch.PeerClose()
			require.True(t, ch.Open())
			ch.Do(func() { fire(ch.Context("late")) })
			assert.True(t, ch.Closed())
			assert.NoError(t, ch.Cause())
		})
	}
}
