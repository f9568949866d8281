package pipeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestReadingIsOnWhileNoContextPausesIt(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true},
		pipelinetest.Named("a", pass{}), pipelinetest.Named("b", pass{}), pipelinetest.Named("c", pass{}))
	a, b, c := ch.Context("a"), ch.Context("b"), ch.Context("c")
	ch.Operations()
	steps := []struct {
		name    string
		do      func()
		reading bool
		ops     []string
	}{
		{"resume without a reason", a.Resume, true, nil},
		{"first reason", a.Pause, false, []string{"cancel", "watch"}},
		{"the same again", a.Pause, false, nil},
		{"second reason", b.Pause, false, nil},
		{"not its own reason", c.Resume, false, nil},
		{"first gone", a.Resume, false, nil},
		{"gone twice", a.Resume, false, nil},
		{"last gone", b.Resume, true, []string{"cancel", "receive"}},
		{"gone twice", b.Resume, true, nil},
		{"once more", c.Pause, false, []string{"cancel", "watch"}},
		{"resume", c.Resume, true, []string{"cancel", "receive"}},
	}
	for _, s := range steps {
		s.do()
		ch.RunTasks()
		assert.Equal(t, s.reading, ch.Pipeline().Reading(), s.name)
		assert.Equal(t, s.reading, b.Reading(), "%s: everyone sees the same", s.name)
		assert.Equal(t, s.ops, ch.Operations(), s.name)
	}
}

func TestRemovalTakesTheReasonsAway(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("a", pass{}), pipelinetest.Named("b", pass{}))
	a := ch.Context("a")
	ch.Do(func() {
		a.Pause()
		a.SetWritable(false)
	})
	require.False(t, ch.Writable())
	ch.Operations()
	ch.Do(func() {
		_, err := ch.Pipeline().Remove("a")
		assert.NoError(t, err)
	})
	assert.True(t, ch.Pipeline().Reading())
	assert.True(t, ch.Writable())
	assert.Equal(t, []string{"cancel", "receive"}, ch.Operations())
	ch.Do(func() {
		require.NoError(t, ch.Pipeline().AddLast("heir", pass{})) // takes over a's bit
		a.Pause()
		a.SetWritable(false)
		assert.True(t, ch.Context("b").Reading(), "a has left")
		assert.True(t, ch.Context("b").Writable())
		ch.Context("heir").Pause()
		a.Resume()
		assert.False(t, ch.Context("b").Reading(), "and undoes nobody's pause")
		ch.Context("heir").SetWritable(false)
		a.SetWritable(true)
		assert.False(t, ch.Context("b").Writable())
	})
}

func TestPauseBeforeActiveHoldsTheFirstInputBack(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Inactive: true},
		pipelinetest.Named("gate", onAdded(func(ctx *pipeline.Context) error { ctx.Pause(); return nil })))
	ch.Activate()
	ch.WriteInbound("x")
	assert.Nil(t, ch.ReadInbound())
	ch.Do(ch.Context("gate").Resume)
	assert.Equal(t, []byte("x"), ch.ReadInbound())
}

// holder keeps n messages back when it is resumed only to pause again.
type holder struct {
	log   *journal
	name  string
	again bool
	close bool
	err   error
}

func (h *holder) ChannelResume(ctx *pipeline.Context) error {
	h.log.add("%s", h.name)
	if h.again {
		ctx.Pause()
	}
	if h.close {
		return ctx.Close()
	}
	return h.err
}

func TestFireResumeRunsTailToHeadAndStops(t *testing.T) {
	for _, c := range []struct {
		name  string
		b, c  *holder
		calls journal
		done  bool
	}{
		{"all", &holder{}, &holder{}, journal{"c", "b", "a"}, true},
		{"pauses again", &holder{again: true}, &holder{}, journal{"c", "b"}, false},
		{"the first pauses again", &holder{}, &holder{again: true}, journal{"c"}, false},
		{"closes", &holder{close: true}, &holder{}, journal{"c", "b"}, false},
		{"fails and so closes", &holder{err: errTest}, &holder{}, journal{"c", "b"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log journal
			c.b.log, c.b.name, c.c.log, c.c.name = &log, "b", &log, "c"
			a := &holder{log: &log, name: "a"}
			ch := newBare(a, c.b, pass{}, c.c)
			ch.ends = true
			assert.Equal(t, c.done, ch.pipe.FireResume())
			assert.Equal(t, c.calls, log)
		})
	}
}

func TestFireResumeDoesNothingWhilePaused(t *testing.T) {
	var log journal
	ch := newBare(&holder{log: &log, name: "a"}, &sink{})
	ch.pipe.Context("sink").Pause()
	assert.False(t, ch.pipe.FireResume())
	assert.Empty(t, log)
}

func TestFireResumeSurvivesAPipelineThatChanges(t *testing.T) {
	var log journal
	ch := newBare(&holder{log: &log, name: "a"}, &holder{log: &log, name: "b"},
		onResume(func(ctx *pipeline.Context) error {
			log.add("c")
			p := ctx.Pipeline()
			for _, name := range []string{"holder#2", ctx.Name()} {
				if _, err := p.Remove(name); err != nil {
					return err
				}
			}
			return p.AddLast("late", &holder{log: &log, name: "late"})
		}))
	assert.True(t, ch.pipe.FireResume())
	assert.Equal(t, journal{"c", "a"}, log)
}

func TestInputThatWaitsComesAfterWhatHandlersHeldBack(t *testing.T) {
	// A decoder that checks Reading before each frame keeps the rest; on resume it goes first.
	var kept []string
	decoder := struct {
		onRead
		onResume
	}{}
	emit := func(ctx *pipeline.Context) {
		for len(kept) > 0 && ctx.Reading() {
			frame := kept[0]
			kept = kept[1:]
			ctx.FireRead(frame)
		}
	}
	decoder.onRead = func(ctx *pipeline.Context, msg any) error {
		for _, r := range text(msg) {
			kept = append(kept, string(r))
		}
		emit(ctx)
		return nil
	}
	decoder.onResume = func(ctx *pipeline.Context) error { emit(ctx); return nil }
	app := onRead(func(ctx *pipeline.Context, msg any) error {
		ctx.Pause() // after each message
		ctx.FireRead(msg)
		return nil
	})
	ch := pipelinetest.New(t, decoder, pipelinetest.Named("app", app))
	ch.WriteInbound("abc")
	ch.WriteInbound("de")
	got := ""
	for i := range 5 {
		assert.Equal(t, 1, i+1-len(got))
		got += ch.InboundString()
		assert.Len(t, got, i+1, "one message for each resume")
		ch.Do(ch.Context("app").Resume)
	}
	assert.Equal(t, "abcde", got)
}

func TestCloseEndsReading(t *testing.T) {
	ch := pipelinetest.New(t, pipelinetest.Named("a", pass{}))
	ch.Do(func() {
		assert.True(t, ch.Context("a").Reading())
		assert.NoError(t, ch.Context("a").Close())
		assert.False(t, ch.Context("a").Reading(), "a decoder must not go on emitting")
	})
}

func TestSmallestReadGrantWins(t *testing.T) {
	grant := func(n int, retry time.Duration) any {
		return onGrant(func(*pipeline.Context) (int, time.Duration) { return n, retry })
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		name     string
		handlers []any
		n        int
		retry    time.Duration
	}{
		{"none", nil, pipeline.DefaultGrant, 0},
		{"one", []any{grant(100, 0)}, 100, 0},
		{"one above the default", []any{grant(1<<20, 0)}, 1 << 20, 0},
		{"smallest", []any{grant(100, 0), grant(50, 0), grant(70, 0)}, 50, 0},
		{"nothing", []any{grant(100, ms), grant(0, 5*ms)}, 0, 5 * ms},
		{"nothing until changed", []any{grant(100, ms), grant(0, 0)}, 0, 0},
		{"nothing, twice", []any{grant(0, 9*ms), grant(0, 5*ms), grant(0, 7*ms)}, 0, 5 * ms},
		{"nothing, one of them until changed", []any{grant(0, 0), grant(0, 5*ms), grant(0, -ms)}, 0, 5 * ms},
		{"negative is nothing", []any{grant(-7, 3*ms), grant(1, 0)}, 0, 3 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := newBare(c.handlers...)
			n, retry := ch.pipe.ReadGrant()
			assert.Equal(t, c.n, n)
			assert.Equal(t, c.retry, retry)
		})
	}
}

func TestGrantHandlersFollowThePipeline(t *testing.T) {
	ch := newBare(pass{})
	ask := func() int { n, _ := ch.pipe.ReadGrant(); return n }
	g := func(n int) any { return onGrant(func(*pipeline.Context) (int, time.Duration) { return n, 0 }) }
	require.NoError(t, ch.pipe.AddLast("a", g(10)))
	assert.Equal(t, 10, ask())
	require.NoError(t, ch.pipe.AddFirst("b", g(5)))
	assert.Equal(t, 5, ask())
	_, err := ch.pipe.Replace("b", "b", g(20))
	require.NoError(t, err)
	assert.Equal(t, 10, ask())
	_, err = ch.pipe.Remove("a")
	require.NoError(t, err)
	assert.Equal(t, 20, ask())
	ch.pipe.RemoveAll()
	assert.Equal(t, pipeline.DefaultGrant, ask())
}

func TestWritableIsTheConjunctionOfAllSays(t *testing.T) {
	var log journal
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{WriteHighBytes: 256, WriteLowBytes: 128},
		pipelinetest.Named("a", pass{}), pipelinetest.Named("b", pass{}), tap{"t", &log})
	a, b := ch.Context("a"), ch.Context("b")
	step := func(what string, do func(), writable bool, fired string) {
		t.Helper()
		log = nil
		ch.Do(do)
		assert.Equal(t, writable, a.Writable(), what)
		if fired == "" {
			assert.Empty(t, log, what)
		} else {
			assert.Equal(t, journal{"t:writable " + fired}, log, what)
		}
	}
	step("a off", func() { a.SetWritable(false) }, false, "false")
	step("a off again", func() { a.SetWritable(false) }, false, "")
	step("b off", func() { b.SetWritable(false) }, false, "")
	step("a on", func() { a.SetWritable(true) }, false, "")
	step("pending as well", func() { a.Hold(257) }, false, "")
	step("b on", func() { b.SetWritable(true) }, false, "")
	step("pending gone", func() { a.Hold(-257) }, true, "true")
	step("off and on in one turn", func() {
		a.SetWritable(false)
		assert.False(t, a.Writable(), "who looks now waits to be told")
		a.SetWritable(true)
	}, true, "true")
}

func TestWritabilityEventNeverRunsInsideTheCallThatCausesIt(t *testing.T) {
	inside := false
	var seen []string
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{WriteHighBytes: 10, WriteLowBytes: 5, Stalled: true},
		pipelinetest.Named("app", onWritability(func(ctx *pipeline.Context) error {
			seen = append(seen, fmt.Sprint(ctx.Writable(), inside))
			return nil
		})))
	ch.Do(func() {
		inside = true
		app := ch.Context("app")
		assert.NoError(t, app.WriteBytes(make([]byte, 11)))
		assert.False(t, app.Writable(), "the state itself is known at once")
		inside = false
	})
	ch.Drain(11)
	assert.Equal(t, []string{"false false", "true false"}, seen)
}
