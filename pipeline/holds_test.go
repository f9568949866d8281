package pipeline_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// tenant holds something of its channel and leaves when it is told to.
type tenant struct{ calls int }

func (*tenant) ChannelEvent(ctx *pipeline.Context, event any) error {
	if event == "leave" {
		_, err := ctx.Pipeline().Remove(ctx.Name())
		return err
	}
	ctx.FireEvent(event)
	return nil
}

func (h *tenant) called(*pipeline.Context) error {
	h.calls++
	return nil
}

// landlord removes the tenant in the middle of an event.
type landlord struct{}

func (landlord) ChannelEvent(ctx *pipeline.Context, event any) error {
	if event == "remove it" {
		if _, err := ctx.Pipeline().Remove("tenant"); err != nil {
			return err
		}
	}
	ctx.FireEvent(event)
	return nil
}

// These refuse to read, or to flush.
type (
	refusesReads   struct{ *tenant }
	refusesFlushes struct{ *tenant }
)

func (refusesReads) ReadGrant(*pipeline.Context) (int, time.Duration) { return 0, 0 }
func (refusesFlushes) Flush(*pipeline.Context) error                  { return nil }

// holdings is everything that a Context can hold of its channel.
var holdings = []struct {
	name    string
	handler func(*tenant) any
	hold    func(h *tenant, ctx *pipeline.Context)
	held    func(ch *pipelinetest.Channel) bool // how it shows; nil: it does not
}{
	{name: "a pause", hold: func(_ *tenant, ctx *pipeline.Context) { ctx.Pause() }, held: stopsInput},
	{name: "a grant of nothing", handler: func(h *tenant) any { return refusesReads{h} }, held: stopsInput},
	{
		name: "a say in what is writable",
		hold: func(_ *tenant, ctx *pipeline.Context) { ctx.SetWritable(false) },
		held: func(ch *pipelinetest.Channel) bool { return !ch.Writable() },
	},
	{
		name: "bytes on their way out",
		hold: func(_ *tenant, ctx *pipeline.Context) { ctx.Hold(100_000); ctx.Hold(-1) },
		held: func(ch *pipelinetest.Channel) bool { return ch.Pending() == 99_999 && !ch.Writable() },
	},
	{name: "a flush", handler: func(h *tenant) any { return refusesFlushes{h} }, held: stopsOutput},
	{name: "an open message", hold: func(_ *tenant, ctx *pipeline.Context) { ctx.Out().AppendString("open") }},
	{name: "a watch", hold: func(h *tenant, ctx *pipeline.Context) {
		ctx.WatchPending(-1, math.MaxInt-1, func(ctx *pipeline.Context, _ int) error { return h.called(ctx) })
		ctx.WatchPending(1, 1, func(ctx *pipeline.Context, _ int) error { return h.called(ctx) })
	}},
	{name: "a timer", hold: func(h *tenant, ctx *pipeline.Context) { ctx.NewTimer(h.called).Reset(time.Second) }},
	{name: "a signal", hold: func(h *tenant, ctx *pipeline.Context) { ctx.NewSignal(h.called).Raise() }},
}

func stopsInput(ch *pipelinetest.Channel) bool {
	ch.WriteInbound("probe")
	return ch.InboundString() == ""
}

func stopsOutput(ch *pipelinetest.Channel) bool {
	ch.Do(func() { check(ch.Context("app").Write("probe")) })
	return ch.OutboundString() == ""
}

// moments are when the tenant goes.
var moments = map[string]func(ch *pipelinetest.Channel) error{
	"outside an event": func(ch *pipelinetest.Channel) error { return second(ch.Pipeline().Remove("tenant")) },
	"inside its own event": func(ch *pipelinetest.Channel) error {
		ch.Pipeline().FireEvent("leave")
		return nil
	},
	"by another in mid-event": func(ch *pipelinetest.Channel) error {
		ch.Pipeline().FireEvent("remove it")
		return nil
	},
	"replaced": func(ch *pipelinetest.Channel) error {
		return second(ch.Pipeline().Replace("tenant", "heir", pass{}))
	},
	"while the channel closes":    nil,
	"before the turn it holds in": nil,
}

// Whenever a handler goes, and however: nothing of what its Context held is left.
func TestNothingThatAContextHeldOutlivesIt(t *testing.T) {
	for _, what := range holdings {
		for when, leave := range moments {
			t.Run(what.name+"/"+when, func(t *testing.T) {
				h := &tenant{}
				var handler any = h
				if what.handler != nil {
					handler = what.handler(h)
				}
				ch := pipelinetest.New(t, wrap("[]"), landlord{}, pipelinetest.Named("tenant", handler),
					pipelinetest.Named("app", onAdded(func(*pipeline.Context) error { return nil })))
				ctx := ch.Context("tenant")
				hold := func() {
					if what.hold != nil {
						what.hold(h, ctx)
					}
				}
				switch when {
				case "before the turn it holds in":
					ch.Do(func() { hold(); check(moments["outside an event"](ch)) })
					assert.Zero(t, h.calls)
				case "while the channel closes":
					ch.Stall()
					ch.Do(func() { hold(); check(ch.Context("app").Write("last")) })
					ch.Close()
					require.False(t, ch.Closed())
					ch.Do(func() { check(moments["outside an event"](ch)) })
					ch.Unstall()
					assert.True(t, ch.Closed())
					assert.Contains(t, ch.OutboundString(), "[last]")
					return
				default:
					ch.Do(hold)
					if what.held != nil {
						require.True(t, what.held(ch), "or the test finds nothing")
					}
					ch.Do(func() { check(leave(ch)) })
				}
				calls := h.calls
				ch.InboundString()
				ch.WriteInbound("in")
				ch.Do(func() { check(ch.Context("app").Write("out")) })
				ch.SetPending(1)
				ch.SetPending(0)
				ch.Advance(time.Minute)
				assert.Contains(t, ch.InboundString(), "in")
				assert.Contains(t, ch.OutboundString(), "[out]")
				assert.True(t, ch.Writable())
				assert.False(t, ch.Paused())
				assert.Equal(t, calls, h.calls, "nobody calls it any more")
				assert.Zero(t, ch.Pending())
			})
		}
	}
}

// leaver gives back what it holds in HandlerRemoved, where it can still write.
type leaver struct{ atEnd int }

func (l *leaver) HandlerRemoved(ctx *pipeline.Context) error {
	ctx.Hold(-300)
	l.atEnd = ctx.Pending()
	ctx.Hold(50)
	return nil
}

func TestARemovedContextHoldsNothing(t *testing.T) {
	h := &leaver{}
	ch := pipelinetest.New(t, pipelinetest.Named("leaver", h), pipelinetest.Named("other", pass{}))
	ctx, other := ch.Context("leaver"), ch.Context("other")
	ch.Do(func() {
		ctx.Hold(1000)
		other.Hold(7)
		check(second(ch.Pipeline().Remove("leaver")))
		assert.Equal(t, 707, h.atEnd)
		assert.Equal(t, 7, ctx.Pending(), "the other's stays")
		ctx.Hold(20)
		ctx.Hold(-20)
		assert.Equal(t, 7, ctx.Pending(), "what comes too late changes nothing")
		other.Hold(-7)
	})
	assert.Zero(t, ch.Pending())
}
