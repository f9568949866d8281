package pipeline_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// wrap frames what is written with brackets of its own.
type wrap string

func (w wrap) Write(ctx *pipeline.Context, msg any) error {
	return ctx.WriteBytes([]byte(w[:1]), []byte(text(msg)), []byte(w[1:]))
}

// appendOut is WriteBytes that leaves the message open.
func appendOut(ctx *pipeline.Context, text string) error {
	ctx.Out().AppendString(text)
	return nil
}

// chainOf returns a channel whose handler "app" has these before it.
func chainOf(t *testing.T, before ...any) (*pipelinetest.Channel, *pipeline.Context) {
	ch := pipelinetest.New(t, append(before, pipelinetest.Named("app", &sink{}))...)
	return ch, ch.Context("app")
}

func TestWriteTakesAnyBytes(t *testing.T) {
	ch, app := chainOf(t)
	kept := ch.Loop().Pool().Get(16)
	kept.AppendString("buf ")
	var scratch buffer.Buf
	ch.Do(func() {
		assert.NoError(t, app.Write(kept))
		assert.NoError(t, app.Write(kept.Scratch(&scratch, 0, 3)))
		assert.NoError(t, app.Write([]byte("slice ")))
		assert.NoError(t, app.Write("string"))
		assert.ErrorIs(t, app.Write(7), pipeline.ErrMessageType)
	})
	assert.Equal(t, "buf bufslice string", ch.OutboundString())
	assert.Equal(t, "buf ", string(kept.Bytes()), "the caller keeps its own")
	kept.Release()
}

func TestWriteOnClosedChannelLeavesOwnershipAlone(t *testing.T) {
	for name, before := range map[string][]any{"direct": nil, "through encoders": {pass{}, wrap("[]")}} {
		t.Run(name, func(t *testing.T) {
			ch, app := chainOf(t, before...)
			b := ch.Loop().Pool().Get(16)
			b.AppendString("x")
			ch.Do(func() {
				app.Abort(errTest)
				errs := []error{
					app.Write(b), app.WriteBytes([]byte("x")), app.WriteBytes(), app.Flush(), app.CloseWrite(),
				}
				for _, err := range errs {
					assert.ErrorIs(t, err, pipeline.ErrClosed)
					assert.ErrorIs(t, err, errTest, "and says why")
				}
				app.Out().AppendString("thrown away")
			})
			assert.Equal(t, "x", string(b.Bytes()))
			b.Release() // Finish finds a second release or a leak
			assert.Empty(t, ch.Outbound())
		})
	}
}

func TestWriteBytesIsOneMessageAndOutIsOneUntilItsEnd(t *testing.T) {
	ch, app := chainOf(t, wrap("[]"))
	ch.Do(func() {
		assert.NoError(t, app.EndMessage(), "of nothing")
		assert.NoError(t, app.WriteBytes([]byte("a"), nil, []byte("b")))
		assert.NoError(t, app.WriteBytes())
		assert.NoError(t, app.WriteBytes([]byte("c")))
		app.Out().AppendByte('d')
		app.Out().AppendByte('e')
		assert.NoError(t, app.EndMessage())
		assert.NoError(t, app.EndMessage(), "of nothing")
		app.Out().AppendByte('f')
		app.Out()
		assert.NoError(t, app.WriteBytes([]byte("g")))
		app.Out().AppendByte('h')
	})
	assert.Equal(t, "[ab][c][de][f][g][h]", ch.OutboundString())
	ch.Do(func() { app.Out() })
	assert.Empty(t, ch.Outbound(), "nothing was appended")
}

func TestEndMessageReturnsTheErrorOfTheWriteHandlers(t *testing.T) {
	ch, app := chainOf(t, onWrite(func(*pipeline.Context, any) error { return errTest }))
	ch.Do(func() {
		check(appendOut(app, "x"))
		assert.Equal(t, errTest, app.EndMessage())
		check(appendOut(app, "x"))
		app.Abort(nil)
		assert.ErrorIs(t, app.EndMessage(), pipeline.ErrClosed)
	})
}

// What was appended first leaves first: what passes an open message on its way out ends it.
func TestWhatPassesAnOpenMessageEndsIt(t *testing.T) {
	ch := pipelinetest.New(t, wrap("[]"), pipelinetest.Named("near", &sink{}), pass{}, pipelinetest.Named("far", &sink{}))
	near, far := ch.Context("near"), ch.Context("far")
	ch.Do(func() {
		check(appendOut(near, "n"))
		check(appendOut(far, "f"))
		check(far.EndMessage())
		check(appendOut(near, "N"))
		check(appendOut(far, "F"))
		check(near.EndMessage())
		check(appendOut(far, "!"))
	})
	assert.Equal(t, "[n][f][N][F][!]", ch.OutboundString())
}

func TestOpenOutputGoesBeforeWhatComesAfterIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		after func(app *pipeline.Context) error
		want  string
		ops   []string
	}{
		{"Write", func(app *pipeline.Context) error { return app.Write("w") }, "[out][w]", []string{"send 8"}},
		{"Flush", (*pipeline.Context).Flush, "[out]", []string{"send 5"}},
		{"CloseWrite", (*pipeline.Context).CloseWrite, "[out]", []string{"send 5", "close-write", "close"}},
		{"Close", (*pipeline.Context).Close, "[out]", []string{"send 5", "close-write", "close"}},
		{"end of turn", func(*pipeline.Context) error { return nil }, "[out]", []string{"send 5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch, app := chainOf(t, wrap("[]"), onFlush((*pipeline.Context).Flush))
			ch.Operations()
			ch.Do(func() {
				assert.NoError(t, appendOut(app, "out"))
				assert.NoError(t, c.after(app))
			})
			assert.Equal(t, c.want, ch.OutboundString())
			assert.Equal(t, c.ops, ch.Operations())
		})
	}
}

func TestOutputOfSeveralContextsKeepsItsOrder(t *testing.T) {
	// Whoever writes, in whatever way: the bytes leave in the order of the calls, also past encoders that gather output
	// of their own. The one named r has left the pipeline already.
	names := []string{"a", "b", "c", "d", "e", "r"}
	strip := strings.NewReplacer("(", "", ")", "", "[", "", "]", "")
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		ch := pipelinetest.New(t, pipelinetest.Named("a", &sink{}), wrap("()"), pipelinetest.Named("b", wrap("[]")),
			pipelinetest.Named("c", wrap("()")), pipelinetest.Named("r", &sink{}),
			pipelinetest.Named("d", &sink{}), pass{},
			pipelinetest.Named("e", &sink{}))
		contexts := map[string]*pipeline.Context{}
		for _, name := range names {
			contexts[name] = ch.Context(name)
		}
		_, err := ch.Pipeline().Remove("r")
		require.NoError(t, err)
		var want, script strings.Builder
		ch.Do(func() {
			for i := range 7 {
				name, how := names[rnd.IntN(len(names))], rnd.IntN(4)
				fmt.Fprint(&want, i)
				fmt.Fprintf(&script, "%s%d ", name, how)
				switch ctx := contexts[name]; how {
				case 0:
					check(ctx.WriteBytes(fmt.Append(nil, i)))
				case 1:
					ctx.Out().AppendString(fmt.Sprint(i))
				case 2:
					check(ctx.Write(fmt.Sprint(i)))
				case 3:
					check(ctx.WriteBytes(fmt.Append(nil, i)))
					check(ctx.Flush())
				}
			}
		})
		require.Equal(t, want.String(), strip.Replace(ch.OutboundString()), "seed %d: %s", seed, script.String())
		ch.Finish()
	}
}

func TestOutputWrittenFromInsideAnEncoderComesAfterTheContextsOwn(t *testing.T) {
	// The encoder looks at d's bytes and tells e, which has open output itself, younger than d's.
	for name, tell := range map[string]func(e *pipeline.Context) error{
		"Write":      func(e *pipeline.Context) error { return e.Write("3") },
		"WriteBytes": func(e *pipeline.Context) error { return e.WriteBytes([]byte("3")) },
		"Out":        func(e *pipeline.Context) error { e.Out().AppendByte('3'); return nil },
		"Flush": func(e *pipeline.Context) error {
			check(e.WriteBytes([]byte("3")))
			return e.Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ch *pipelinetest.Channel
			told := false
			encoder := onWrite(func(ctx *pipeline.Context, msg any) error {
				if !told {
					told = true
					check(tell(ch.Context("e")))
					if name == "Flush" {
						assert.Contains(t, ch.OutboundString(), "23", "flushed while d's is on its way")
						check(ctx.Write("23"))
					}
				}
				return ctx.Write(msg)
			})
			ch = pipelinetest.New(t, encoder, pipelinetest.Named("d", &sink{}), pipelinetest.Named("e", &sink{}))
			ch.Do(func() {
				check(appendOut(ch.Context("d"), "1"))
				check(appendOut(ch.Context("e"), "2"))
			})
			got := ch.OutboundString()
			assert.Less(t, strings.Index(got, "2"), strings.Index(got, "3"), got)
			assert.Contains(t, got, "1")
		})
	}
}

func TestOutputOpenedInsideAnEncoderIsOlderThanWhatWaits(t *testing.T) {
	var ch *pipelinetest.Channel
	told := false
	encoder := onWrite(func(ctx *pipeline.Context, msg any) error {
		check(appendOut(ctx, text(msg)))
		if told {
			return nil
		}
		told = true
		return ch.Context("b").Write("!") // overtakes what waits behind, and nothing else
	})
	ch = pipelinetest.New(t, pass{}, pipelinetest.Named("b", &sink{}), encoder,
		pipelinetest.Named("d", &sink{}), pipelinetest.Named("e", &sink{}))
	ch.Do(func() {
		check(appendOut(ch.Context("d"), "1"))
		check(appendOut(ch.Context("e"), "2"))
	})
	assert.Equal(t, "1!2", ch.OutboundString())
}

func TestWriteHandlersAreNotAskedAfterClose(t *testing.T) {
	asked := 0
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, onWrite(func(*pipeline.Context, any) error {
		asked++ // it might keep the message for ever
		return nil
	}), pipelinetest.Named("app", &sink{}))
	require.NoError(t, ch.Context("app").Close())
	assert.ErrorIs(t, ch.Context("app").Write("x"), pipeline.ErrClosed)
	assert.Zero(t, asked)
}

func TestOpenOutputReachesTheEncodersBeforeTheCloseHandlers(t *testing.T) {
	var log journal
	ch, app := chainOf(t, tap{"a", &log})
	log = nil
	ch.Do(func() {
		check(appendOut(app, "x"))
		check(app.Close())
	})
	assert.Equal(t, journal{"a:write x", "a:close"}, log[:2])
}

func TestStackedEncodersCoalesce(t *testing.T) {
	// A codec that gathers its frames before a layer like TLS: one record for all of the turn, not one for each.
	gather := onWrite(func(ctx *pipeline.Context, msg any) error { return appendOut(ctx, "("+text(msg)+")") })
	ch, app := chainOf(t, wrap("[]"), gather)
	ch.Do(func() {
		for range 3 {
			assert.NoError(t, app.Write("x"))
		}
	})
	assert.Equal(t, "[(x)(x)(x)]", ch.OutboundString())
}

func TestOutOfAnySizeIsOneMessageThatCountsAsPending(t *testing.T) {
	const piece = 64 << 10
	var sizes []int
	ch, app := chainOf(t, onWrite(func(ctx *pipeline.Context, msg any) error {
		sizes = append(sizes, len(text(msg)))
		assert.Zero(t, ctx.Pending(), "it is not counted twice")
		return ctx.Write(msg)
	}))
	ch.Do(func() {
		for i := range 5 {
			assert.Equal(t, max(0, i-1)*piece, ch.Pending())
			app.Out().Append(make([]byte, piece))
		}
		assert.False(t, app.Writable())
	})
	assert.Equal(t, []int{5 * piece}, sizes)
	assert.Len(t, ch.Outbound(), 5*piece)
	assert.Zero(t, ch.Pending())
	ch.Do(func() {
		check(appendOut(app, "x"))
		app.Out()
		app.Abort(nil)
	})
	assert.Zero(t, ch.Pending(), "it is given back")
}

func TestWriteBytesOfAnySizeArrives(t *testing.T) {
	const limit = 64 << 10
	whole := make([]byte, 3*limit)
	for i := range whole {
		whole[i] = byte(i * 7 >> 3)
	}
	for _, before := range [][]any{nil, {pass{}}} {
		for _, n := range []int{0, 1, limit - 1, limit, limit + 1, 2 * limit, 3 * limit} {
			for _, pieces := range []int{1, 2, 3, 100} {
				ch, app := chainOf(t, before...)
				var b [][]byte
				for i := range pieces {
					b = append(b, whole[i*n/pieces:(i+1)*n/pieces])
				}
				ch.Do(func() { assert.NoError(t, app.WriteBytes(b...)) })
				require.True(t, bytes.Equal(whole[:n], ch.Outbound()), "%d bytes in %d pieces", n, pieces)
				ch.Finish()
			}
		}
	}
}

func TestWriteAfterCloseWriteFails(t *testing.T) {
	for name, before := range map[string][]any{"direct": nil, "through encoders": {pass{}}} {
		t.Run(name, func(t *testing.T) {
			ch, app := chainOf(t, append(before, onReadClosed(func(*pipeline.Context) error { return nil }))...)
			ch.Do(func() {
				assert.NoError(t, app.WriteBytes([]byte("x")))
				assert.NoError(t, app.CloseWrite())
				assert.ErrorIs(t, app.WriteBytes([]byte("y")), pipeline.ErrClosed)
				assert.ErrorIs(t, app.Write("y"), pipeline.ErrClosed)
				assert.ErrorIs(t, app.CloseWrite(), pipeline.ErrClosed)
				app.Out().AppendString("thrown away")
				assert.True(t, app.Open())
			})
			assert.Equal(t, "x", ch.OutboundString())
			assert.True(t, ch.FinSent())
		})
	}
}

func TestFlushedCoversOpenOutput(t *testing.T) {
	ch, app := chainOf(t, wrap("[]"))
	ch.Stall()
	var got []string
	ch.Do(func() {
		assert.NoError(t, appendOut(app, "abc"))
		app.Flushed(func(err error) { got = append(got, fmt.Sprint("first ", err)) })
		assert.NoError(t, appendOut(app, "d"))
		app.Flushed(func(err error) { got = append(got, fmt.Sprint("second ", err)) })
	})
	assert.Equal(t, 4, ch.Drain(4))
	assert.Empty(t, got)
	assert.Equal(t, 1, ch.Drain(1))
	assert.Equal(t, []string{"first <nil>"}, got)
	ch.Drain(100)
	assert.Equal(t, []string{"first <nil>", "second <nil>"}, got)
	assert.Equal(t, "[abc][d]", ch.OutboundString())
}

func TestFlushedAnswersTheErrorOfOpenOutput(t *testing.T) {
	ch, app := chainOf(t, onWrite(func(*pipeline.Context, any) error { return errTest }))
	var got []error
	ch.Do(func() {
		check(appendOut(app, "x"))
		app.Flushed(func(err error) { got = append(got, err) })
		assert.Empty(t, got, "never from inside the call")
	})
	assert.Equal(t, []error{errTest}, got)
}

func TestErrorOfOwnOpenOutputIsAnswered(t *testing.T) {
	for name, call := range map[string]func(app *pipeline.Context) error{
		"Write":      func(app *pipeline.Context) error { return app.Write("y") },
		"Flush":      (*pipeline.Context).Flush,
		"CloseWrite": (*pipeline.Context).CloseWrite,
		"WriteBytes": func(app *pipeline.Context) error { return app.WriteBytes([]byte("y")) },
		"EndMessage": (*pipeline.Context).EndMessage,
	} {
		t.Run(name, func(t *testing.T) {
			ch, app := chainOf(t, onWrite(func(*pipeline.Context, any) error { return errTest }))
			ch.Do(func() {
				check(appendOut(app, "x"))
				assert.Equal(t, errTest, call(app))
			})
			assert.Empty(t, ch.Outbound(), "what would have come after it was not written")
			assert.True(t, ch.Open(), "and nobody else was told")
		})
	}
}

func TestOutputThatFailsForeverDoesNotHoldTheLoopUp(t *testing.T) {
	// Its error handler writes, which fails, which its error handler answers by writing.
	calls := 0
	ch := newBare(onWrite(func(*pipeline.Context, any) error { return errTest }),
		onError(func(ctx *pipeline.Context, _ error) error {
			calls++
			return appendOut(ctx, "sorry")
		}))
	check(appendOut(ch.pipe.Context("onError"), "x"))
	dirty := ch.dirty
	_, again := ch.pipe.FireFlush()
	assert.True(t, again)
	assert.Equal(t, 64, calls)
	assert.Equal(t, dirty+calls+1, ch.dirty, "each time it opens, and so that it goes on in the next turn")
	ch.pipe.RemoveAll()
	assert.Zero(t, ch.pool.Outstanding())
}

func TestPanicInEncoderLeaksNothing(t *testing.T) {
	ch, app := chainOf(t, onWrite(func(*pipeline.Context, any) error { panic("boom") }))
	assert.Panics(t, func() {
		ch.Do(func() {
			check(app.WriteBytes([]byte("x")))
			_ = app.Flush()
		})
	})
	ch.Abort(errTest)
	assert.Zero(t, ch.Loop().Pool().Outstanding())
}

func TestAbortDropsOpenOutput(t *testing.T) {
	ch, app := chainOf(t, wrap("[]"))
	ch.Do(func() {
		check(app.WriteBytes([]byte("x")))
		app.Out().AppendByte('y')
		app.Abort(errTest)
	})
	assert.Empty(t, ch.Outbound())
	assert.Zero(t, ch.Loop().Pool().Outstanding())
	assert.Equal(t, errTest, ch.Cause())
}
