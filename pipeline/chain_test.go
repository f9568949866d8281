package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestAddPutsHandlersWhereTheyBelong(t *testing.T) {
	p := newBare().pipe.Pipeline
	require.NoError(t, p.AddLast("c", pass{}))
	require.NoError(t, p.AddFirst("a", pass{}))
	require.NoError(t, p.AddBefore("c", "b", pass{}))
	require.NoError(t, p.AddAfter("c", "d", pass{}))
	require.NoError(t, p.AddLast("e", &sink{}))
	assert.Equal(t, []string{"a", "b", "c", "d", "e"}, p.Names())
	assert.Equal(t, pass{}, p.Get("a"))
	assert.IsType(t, &sink{}, p.Context("e").Handler())
	assert.Equal(t, "e", p.Context("e").Name())
	assert.Same(t, p, p.Context("e").Pipeline())
	assert.Nil(t, p.Get("x"))
	assert.Nil(t, p.Context("x"))
	assert.Nil(t, p.Context("head"), "the ends are no handlers")
	assert.Nil(t, p.Context("tail"))
}

func TestAddRefuses(t *testing.T) {
	p := &newBare(pass{}).pipe
	assert.ErrorIs(t, p.AddLast("pass", pass{}), pipeline.ErrDuplicateName)
	assert.ErrorIs(t, p.AddFirst("pass", pass{}), pipeline.ErrDuplicateName)
	assert.ErrorIs(t, p.AddBefore("x", "y", pass{}), pipeline.ErrNoHandler)
	assert.ErrorIs(t, p.AddAfter("x", "y", pass{}), pipeline.ErrNoHandler)
	for _, v := range []any{nil, 7, struct{}{}, new(int)} {
		assert.ErrorIs(t, p.AddLast("n", v), pipeline.ErrNotHandler)
		_, err := p.Replace("pass", "n", v)
		assert.ErrorIs(t, err, pipeline.ErrNotHandler)
	}
	_, err := p.Replace("x", "y", pass{})
	assert.ErrorIs(t, err, pipeline.ErrNoHandler)
	require.NoError(t, p.AddLast("other", pass{}))
	_, err = p.Replace("other", "pass", pass{})
	assert.ErrorIs(t, err, pipeline.ErrDuplicateName)
	assert.Equal(t, []string{"pass", "other"}, p.Names(), "nothing changed")
}

type generic[T any] struct{ pass }

func TestEmptyNamesAreMadeFromTheType(t *testing.T) {
	p := &newBare().pipe
	for _, h := range []any{
		pass{},
		pass{},
		&pass{}, &sink{},
		generic[int]{},
		&generic[string]{},
		&struct{ pass }{}, onRead(nil),
	} {
		require.NoError(t, p.AddLast("", h))
	}
	want := []string{"pass", "pass#2", "pass#3", "sink", "generic", "generic#2", "handler", "onRead"}
	assert.Equal(t, want, p.Names())
	_, err := p.Remove("pass#2")
	require.NoError(t, err)
	require.NoError(t, p.AddLast("", pass{}))
	assert.Contains(t, p.Names(), "pass#2")
	_, err = p.Replace("sink", "", pass{})
	require.NoError(t, err)
	assert.Contains(t, p.Names(), "pass#4")
}

func TestMaxHandlersIsALimit(t *testing.T) {
	p := &newBare().pipe
	for i := range pipeline.MaxHandlers - 1 {
		require.NoError(t, p.AddLast("", pass{}), i)
	}
	require.NoError(t, p.AddLast("last", &sink{}), "the limit itself")
	assert.ErrorIs(t, p.AddLast("more", pass{}), pipeline.ErrTooManyHandlers)
	_, err := p.Replace("pass", "first", pass{})
	require.NoError(t, err, "replacing needs no room")
	assert.Len(t, p.Names(), pipeline.MaxHandlers)

	seen := map[string]bool{}
	for _, name := range p.Names() { // each has a bit of its own
		ctx := p.Context(name)
		ctx.Pause()
		ctx.Pause()
		seen[name] = true
	}
	for name := range seen {
		require.False(t, p.Reading())
		p.Context(name).Resume()
	}
	assert.True(t, p.Reading())
	_, err = p.Remove("last")
	require.NoError(t, err)
	assert.NoError(t, p.AddLast("more", pass{}))

	p.Tail().Pause() // the ends have bits as well
	assert.False(t, p.Reading())
	p.Tail().Resume()
	assert.True(t, p.Reading())
}

func TestRemovedHandlerPassesItsLeftoversOn(t *testing.T) {
	var log journal
	decoder := struct {
		onRead
		onRemoved
	}{
		func(*pipeline.Context, any) error { return nil },
		func(ctx *pipeline.Context) error {
			ctx.FireRead("rest")
			ctx.FireReadComplete()
			if err := ctx.WriteBytes([]byte("by")); err != nil {
				return err
			}
			ctx.Out().AppendByte('e')
			return nil
		},
	}
	ch := pipelinetest.New(t, tap{"a", &log}, pipelinetest.Named("decoder", decoder), tap{"b", &log})
	log = nil
	ch.Do(func() {
		h, err := ch.Pipeline().Remove("decoder")
		assert.NoError(t, err)
		assert.IsType(t, decoder, h)
	})
	assert.Equal(t, journal{"b:read rest", "b:read-complete", "a:write by", "a:write e", "b:flush", "a:flush"}, log)
	assert.Equal(t, "bye", ch.OutboundString())
}

func TestReplacedHandlerPassesItsLeftoversToItsSuccessor(t *testing.T) {
	var log journal
	old := struct {
		onRead
		onRemoved
	}{
		func(*pipeline.Context, any) error { return nil },
		func(ctx *pipeline.Context) error {
			log.add("old:removed")
			ctx.FireRead("rest")
			return ctx.Write("bye")
		},
	}
	ch := pipelinetest.New(t, tap{"a", &log}, pipelinetest.Named("old", old), tap{"c", &log})
	log = nil
	ch.Do(func() {
		_, err := ch.Pipeline().Replace("old", "old", tap{"b", &log})
		assert.NoError(t, err, "the name is free again")
	})
	assert.Equal(t, journal{
		"b:added", "old:removed", "b:read rest", "c:read rest", "b:write bye", "a:write bye",
		"c:flush", "b:flush", "a:flush",
	}, log)
	assert.Equal(t, []string{"tap", "old", "tap#2"}, ch.Pipeline().Names())
}

// switcher makes a pipeline for the protocol that the first message announces.
type switcher struct{ log *journal }

func (h switcher) ChannelRead(ctx *pipeline.Context, msg any) error {
	p := ctx.Pipeline()
	if err := p.AddAfter(ctx.Name(), "protocol", tap{"p", h.log}); err != nil {
		return err
	}
	if _, err := p.Remove(ctx.Name()); err != nil {
		return err
	}
	ctx.FireRead(msg)
	return nil
}

func TestProtocolSwitcherReplacesItselfInsideAnEvent(t *testing.T) {
	var log journal
	ch := pipelinetest.New(t, switcher{&log}, tap{"b", &log})
	log = nil
	ch.WriteInbound("x", "y")
	assert.Equal(t, journal{
		"p:added", "p:read x", "b:read x", "p:read-complete", "b:read-complete",
		"p:read y", "b:read y", "p:read-complete", "b:read-complete",
	}, log)
}

func TestHandlerAddedInActiveSeesWhatIsFiredFromThenOn(t *testing.T) {
	var log journal
	ch := pipelinetest.New(t, pipelinetest.Named("initialiser", onActive(func(ctx *pipeline.Context) error {
		p := ctx.Pipeline()
		if err := p.AddFirst("before", tap{"before", &log}); err != nil {
			return err
		}
		if err := p.AddLast("behind", tap{"behind", &log}); err != nil {
			return err
		}
		if !ctx.Active() {
			return errTest
		}
		ctx.FireActive()
		_, err := p.Remove(ctx.Name())
		return err
	})))
	ch.WriteInbound("x")
	assert.Equal(t, journal{
		"before:added", "behind:added", "behind:active", "before:read x", "behind:read x",
		"before:read-complete", "behind:read-complete",
	}, log)
}

func TestHandlersMayLeaveInAnyEvent(t *testing.T) {
	leave := func(ctx *pipeline.Context) error {
		if _, err := ctx.Pipeline().Remove(ctx.Name()); err != nil {
			return err
		}
		return nil
	}
	events := map[string]struct {
		handler any
		fire    func(p *driven)
		log     journal
	}{
		"read": {
			onRead(func(ctx *pipeline.Context, msg any) error { err := leave(ctx); ctx.FireRead(msg); return err }),
			func(p *driven) { p.FireRead("x") },
			journal{"a:read x", "b:read x"},
		},
		"read complete": {
			onReadComplete(func(ctx *pipeline.Context) error { err := leave(ctx); ctx.FireReadComplete(); return err }),
			(*driven).FireReadComplete,
			journal{"a:read-complete", "b:read-complete"},
		},
		"event": {
			onEvent(func(ctx *pipeline.Context, ev any) error { err := leave(ctx); ctx.FireEvent(ev); return err }),
			func(p *driven) { p.FireEvent("e") },
			journal{"a:event e", "b:event e"},
		},
		"writability": {
			onWritability(func(ctx *pipeline.Context) error {
				err := leave(ctx)
				ctx.FireWritabilityChanged()
				return err
			}),
			(*driven).FireWritabilityChanged,
			journal{"a:writable true", "b:writable true"},
		},
		"read closed": {
			onReadClosed(func(ctx *pipeline.Context) error { err := leave(ctx); ctx.FireReadClosed(); return err }),
			func(p *driven) { p.FireReadClosed() },
			journal{"a:read-closed", "b:read-closed"},
		},
		"resume": {
			onResume(leave),
			func(p *driven) { p.FireResume() },
			journal{"b:resume", "a:resume"},
		},
		"write": {
			onWrite(func(ctx *pipeline.Context, msg any) error {
				if err := leave(ctx); err != nil {
					return err
				}
				return ctx.Write(msg)
			}),
			func(p *driven) { _ = p.Write("x") },
			journal{"b:write x", "a:write x"},
		},
		"flush": {
			onFlush(func(ctx *pipeline.Context) error {
				if err := leave(ctx); err != nil {
					return err
				}
				return ctx.Flush()
			}),
			func(p *driven) { _ = p.Flush() },
			journal{"b:flush", "a:flush"},
		},
		"close": {
			onClose(func(ctx *pipeline.Context) error {
				if err := leave(ctx); err != nil {
					return err
				}
				return ctx.Close()
			}),
			func(p *driven) { _ = p.Close() },
			journal{"b:close", "a:close"},
		},
	}
	for name, c := range events {
		t.Run(name, func(t *testing.T) {
			var log journal
			ch := newBare(tap{"a", &log}, c.handler, tap{"b", &log})
			log = nil
			c.fire(&ch.pipe)
			assert.Equal(t, c.log, log, "the leaver passed it on")
			log = nil
			c.fire(&ch.pipe)
			assert.Equal(t, c.log, log, "the links are right afterwards")
			assert.Equal(t, []string{"tap", "tap#2"}, ch.pipe.Names())
		})
	}
}

func TestRemovedContextWorksTowardsNeighboursThatAreAlive(t *testing.T) {
	var log journal
	ch := newBare(tap{"a", &log}, tap{"b", &log}, tap{"c", &log}, tap{"d", &log}, tap{"e", &log})
	p := &ch.pipe
	c := p.Context("tap#3")
	for _, name := range []string{"tap#3", "tap#4", "tap#2"} { // c, then both its neighbours
		_, err := p.Remove(name)
		require.NoError(t, err)
	}
	log = nil
	c.FireRead("x")
	c.FireReadComplete()
	c.FireEvent("e")
	c.FireError(errTest)
	require.NoError(t, c.Write("y"))
	require.NoError(t, c.Flush())
	require.NoError(t, c.Close())
	assert.Equal(t, journal{
		"e:read x", "e:read-complete", "e:event e", "e:error test error", "a:write y", "a:flush", "a:close",
	}, log)
	assert.Equal(t, tap{"c", &log}, c.Handler())
}

func TestRemovedContextOfClosedChannelAnswersErrClosed(t *testing.T) {
	ch := pipelinetest.New(t, pass{}, &sink{})
	ctx := ch.Context("sink")
	ch.Close()
	require.True(t, ch.Closed())
	assert.Empty(t, ch.Pipeline().Names())
	ch.Do(func() {
		assert.ErrorIs(t, ctx.Write("x"), pipeline.ErrClosed)
		assert.ErrorIs(t, ctx.WriteBytes([]byte("x")), pipeline.ErrClosed)
		assert.ErrorIs(t, ctx.Flush(), pipeline.ErrClosed)
		assert.ErrorIs(t, ctx.CloseWrite(), pipeline.ErrClosed)
		assert.NoError(t, ctx.Close(), "it is closed")
		ctx.Out().AppendString("thrown away")
		ctx.Abort(errTest)
		ctx.Pause()
		ctx.Resume()
		ctx.SetWritable(false)
		ctx.FireRead("x")
		ctx.FireEvent("e")
		ctx.FireInactive()
		assert.ErrorIs(t, ch.Pipeline().AddLast("late", pass{}), pipeline.ErrClosed)
		assert.False(t, ctx.Open())
		assert.False(t, ctx.Reading())
	})
	assert.NoError(t, ch.Cause())
}

func TestAddedThatFailsIsRemovedAndReported(t *testing.T) {
	for name, add := range map[string]func(p *pipeline.Pipeline, h any) error{
		"AddLast": func(p *pipeline.Pipeline, h any) error { return p.AddLast("bad", h) },
		"Replace": func(p *pipeline.Pipeline, h any) error {
			old, err := p.Replace("old", "bad", h)
			if _, ok := old.(pass); !ok {
				return fmt.Errorf("old handler is %T", old)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var fired error
			removed := 0
			ch := newBare(onError(func(_ *pipeline.Context, err error) error {
				fired = err
				return nil
			}))
			require.NoError(t, ch.pipe.AddLast("old", pass{}))
			err := add(ch.pipe.Pipeline, struct {
				onAdded
				onRemoved
			}{
				func(*pipeline.Context) error { return errTest },
				func(*pipeline.Context) error { removed++; return nil },
			})
			assert.ErrorIs(t, err, errTest)
			assert.Equal(t, err, fired)
			assert.Equal(t, 1, removed)
			assert.Nil(t, ch.pipe.Get("bad"))
		})
	}
}

func TestAddedMayRemoveItself(t *testing.T) {
	removed := 0
	ch := newBare()
	err := ch.pipe.AddLast("installer", struct {
		onAdded
		onRemoved
	}{
		func(ctx *pipeline.Context) error {
			if err := ctx.Pipeline().AddAfter(ctx.Name(), "installed", pass{}); err != nil {
				return err
			}
			_, err := ctx.Pipeline().Remove(ctx.Name())
			return err
		},
		func(*pipeline.Context) error { removed++; return nil },
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"installed"}, ch.pipe.Names())
	assert.Equal(t, 1, removed)
}

func TestWhatWasWrittenBeforeAChangeGoesTheOldWay(t *testing.T) {
	// As STARTTLS needs it: the plain answer is not encrypted, what follows is.
	seal := onWrite(func(ctx *pipeline.Context, msg any) error { return ctx.Write("<" + text(msg) + ">") })
	mark := onWrite(func(ctx *pipeline.Context, msg any) error { return ctx.Write("(" + text(msg) + ")") })
	ch := pipelinetest.New(t, pipelinetest.Named("mark", mark), pipelinetest.Named("app", &sink{}))
	ch.Do(func() {
		p, app := ch.Pipeline(), ch.Context("app")
		assert.NoError(t, app.WriteBytes([]byte("go ahead")))
		assert.NoError(t, p.AddBefore("app", "seal", seal))
		assert.NoError(t, app.WriteBytes([]byte("secret")))
		_, err := p.Remove("mark")
		assert.NoError(t, err)
		assert.NoError(t, app.WriteBytes([]byte("more")))
		_, err = p.Replace("seal", "mark", mark)
		assert.NoError(t, err)
		assert.NoError(t, app.WriteBytes([]byte("end")))
		_, err = p.Remove("mark")
		assert.NoError(t, err)
		assert.NoError(t, app.WriteBytes([]byte(".")))
	})
	assert.Equal(t, "(go ahead)(<secret>)<more>(end).", ch.OutboundString())
}

func TestOneHandlerMayServeSeveralPipelines(t *testing.T) {
	shared := pass{}
	a, b := pipelinetest.New(t, shared), pipelinetest.New(t, shared)
	a.WriteInbound("x")
	b.WriteInbound("y")
	assert.Equal(t, "x", a.InboundString())
	assert.Equal(t, "y", b.InboundString())
}
