package codec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func mustLines(t testing.TB, cfg LinesConfig) *Framer {
	f, err := NewLines(cfg)
	require.NoError(t, err)
	return f
}

func TestWhatAHandlerDeliversFromWithinComesBehindWhatIsThere(t *testing.T) {
	in := "first\nsecond\nthi"
	for size := 1; size <= len(in); size++ {
		ch, a := start(t, mustLines(t, LinesConfig{MaxBytes: 6}), nil)
		inject := func(ctx *pipeline.Context, text string) {
			before := len(a.got)
			ctx.Pipeline().FireRead(buffer.Wrap([]byte(text)))
			assert.Len(t, a.got, before, "it waits for its turn")
		}
		a.then = func(ctx *pipeline.Context, text string) {
			switch text {
			case "second":
				inject(ctx, "rd\nfour")
				inject(ctx, "th\n1234567\n")
			case "fourth":
				inject(ctx, "fifth\n")
			}
		}
		// In pieces, what comes from within may overtake what is still to be received: only its order is its own.
		ch.WriteInboundSplit([]byte(in), size)
		if size == len(in) {
			assert.Equal(t, []string{"first", "second", "third", "fourth", longText(0, 6), "fifth"}, a.take())
		} else {
			assert.Equal(t, []string{"first", "second"}, a.take()[:2])
		}
		ch.Finish()
	}
}

func TestWhatIsDeliveredFromWithinWaitsForAResume(t *testing.T) {
	ch, a := start(t, mustLines(t, LinesConfig{}), nil)
	a.then = func(ctx *pipeline.Context, text string) {
		if text == "first" {
			ctx.Pipeline().FireRead(buffer.Wrap([]byte("third\n")))
			ctx.Pause()
		}
	}
	ch.WriteInbound("first\nsecond\n")
	assert.Equal(t, []string{"first"}, a.take())
	ch.Do(ch.Context("app").Resume)
	assert.Equal(t, []string{"second", "third"}, a.take())
	ch.Finish()
}

func TestAnErrorHandlerThatDeliversIsHeard(t *testing.T) {
	f := mustLines(t, LinesConfig{MaxBytes: 5})
	h := &deliversOnError{}
	ch := pipelinetest.New(t, f, h)
	ch.WriteInbound("too long\nnext\n")
	assert.Equal(t, []string{longText(0, 5), "next", "extra"}, h.got)
	ch.Finish()
}

type deliversOnError struct{ app }

func (d *deliversOnError) ErrorCaught(ctx *pipeline.Context, err error) error {
	ctx.Pipeline().FireRead(buffer.Wrap([]byte("extra\n")))
	return d.app.ErrorCaught(ctx, err)
}

func TestRepliesFromWithinAreFramesInOrder(t *testing.T) {
	in := "\x00\x01a\x00\x00\x00\x03bcd\x00\x01e"
	for size := 1; size <= len(in); size++ {
		f, err := NewLengthField(LengthFieldConfig{Width: 2, Strip: 2})
		require.NoError(t, err)
		p, err := NewLengthFieldPrepender(LengthFieldPrependerConfig{Width: 2})
		require.NoError(t, err)
		a := &app{then: func(ctx *pipeline.Context, text string) {
			assert.NoError(t, ctx.Write(text))
			assert.NoError(t, ctx.WriteBytes([]byte("re: "), []byte(text))) // one message: one frame, when it is sent
			assert.NoError(t, ctx.Flush())
		}}
		ch := pipelinetest.New(t, p, f, a)
		ch.WriteInboundSplit([]byte(in), size)
		want := ""
		for _, text := range []string{"a", "", "bcd", "e"} {
			want += "\x00" + string(rune(len(text))) + text + "\x00" + string(rune(len(text)+4)) + "re: " + text
		}
		assert.Equal(t, want, ch.OutboundString(), "pieces of %d", size)
		ch.Finish()
	}
}

// TestASuccessorGetsWhatTheFramerHolds replaces a framer by one of another format: between reads, while reading is
// paused, and while a frame or an error is handled.
func TestASuccessorGetsWhatTheFramerHolds(t *testing.T) {
	in := "one\ntoo long\nchange\n\x05frame\x04raw!\x02"
	want := []string{"one", longText(0, 6), "change", "frame", "raw!", truncated(1)}
	for _, paused := range []bool{false, true} {
		for size := 1; size <= len(in); size++ {
			ch, a := start(t, mustLines(t, LinesConfig{MaxBytes: 6}), nil)
			var next *Framer
			change := func(ctx *pipeline.Context) {
				f, err := NewVarint32(Varint32Config{})
				assert.NoError(t, err)
				next = f
				was, err := ctx.Pipeline().Replace("framer", "varints", f)
				assert.NoError(t, err)
				assert.IsType(t, f, was)
			}
			a.then = func(ctx *pipeline.Context, text string) {
				if text != "change" {
					return
				}
				if paused {
					ctx.Pause()
					a.paused = true
				}
				change(ctx)
				assert.Equal(t, want[:3], a.got, "the frame is handled first")
			}
			ch.WriteInboundSplit([]byte(in), size)
			if paused {
				assert.Equal(t, want[:3], a.got, "reading is paused")
				a.paused = false
				ch.Do(ch.Context("app").Resume)
			}
			ch.PeerClose()
			assert.Equal(t, want, a.got, "pieces of %d, paused: %v", size, paused)
			assert.Equal(t, 1, a.closed)
			assert.NotNil(t, next)
			ch.Finish()
		}
	}
}

func TestASuccessorGetsWhatCameFromWithinLast(t *testing.T) {
	in := "one\nchange\ntwo"
	for size := 1; size <= len(in); size++ {
		ch, a := start(t, mustLines(t, LinesConfig{}), nil)
		a.then = func(ctx *pipeline.Context, text string) {
			if text == "change" {
				ctx.Pipeline().FireRead(buffer.Wrap([]byte("[within]")))
				_, err := ctx.Pipeline().Remove("framer")
				assert.NoError(t, err)
			}
		}
		ch.WriteInboundSplit([]byte(in), size)
		want := "two[within]"
		if behind := len(in) - len("two"); size < len(in) { // what has come of "two" with the line before it
			here := min(len(in), (behind+size-1)/size*size) - behind
			want = "two"[:here] + "[within]" + "two"[here:]
		}
		assert.Equal(t, "one change "+want, a.got[0]+" "+a.got[1]+" "+strings.Join(a.got[2:], ""), "pieces of %d", size)
		ch.Finish()
	}
}

func TestASuccessorGetsTheBeginningOfAFrame(t *testing.T) {
	ch, a := start(t, mustLines(t, LinesConfig{}), nil)
	ch.WriteInbound("one\nbegin")
	assert.Equal(t, []string{"one"}, a.take())
	ch.Do(func() {
		f, err := NewDelimiter(DelimiterConfig{Delimiters: [][]byte{[]byte(";")}})
		assert.NoError(t, err)
		_, err = ch.Pipeline().Replace("framer", "framer", f)
		assert.NoError(t, err)
	})
	ch.WriteInbound("ning;x\ny;")
	assert.Equal(t, []string{"beginning", "x\ny"}, a.take())
	ch.Finish()
}

// fireReadClosed tells the handlers that the peer has finished, whatever the channel would say.
func fireReadClosed(t *testing.T, p *pipeline.Pipeline) {
	first := struct{ pipeline.WriteHandler }{}
	assert.NoError(t, p.AddFirst("first", first))
	p.Context("first").FireReadClosed()
	_, err := p.Remove("first")
	assert.NoError(t, err)
}

func TestASuccessorGetsTheEndOfTheStreamThatIsHeldBack(t *testing.T) {
	for _, replace := range []bool{false, true} {
		ch, a := start(t, mustLines(t, LinesConfig{}), nil)
		a.then = func(ctx *pipeline.Context, text string) {
			if text == "one" {
				ctx.Pause()
			}
		}
		ch.WriteInbound("one\ntwo\nthree")
		ch.Do(func() { fireReadClosed(t, ch.Pipeline()) }) // a channel that is paused would keep it to itself
		assert.Equal(t, []string{"one"}, a.take())
		if replace {
			ch.Do(func() {
				_, err := ch.Pipeline().Replace("framer", "framer", mustLines(t, LinesConfig{FinalLine: true}))
				assert.NoError(t, err)
			})
			assert.Empty(t, a.got, "reading is paused")
			assert.Zero(t, a.closed)
			ch.Do(ch.Context("app").Resume)
			assert.Equal(t, []string{"two", "three"}, a.got)
		} else {
			ch.Do(func() {
				_, err := ch.Pipeline().Remove("framer")
				assert.NoError(t, err)
			})
			assert.Equal(t, []string{"two\nthree"}, a.got, "nobody is left to hold it")
		}
		assert.Equal(t, 1, a.closed, "replaced: %v", replace)
		ch.Finish()
	}
}

func TestAnErrorHandlerMayTakeTheFramerOut(t *testing.T) {
	for name, c := range map[string]struct {
		f    func() (*Framer, error)
		in   string
		want []string
	}{
		"at an error that is skipped": {
			func() (*Framer, error) { return NewLines(LinesConfig{MaxBytes: 3}) },
			"one\ntoo long\nrest",
			[]string{"one", longText(0, 3), "rest"},
		},
		"at an error that ends the stream": {
			func() (*Framer, error) { return NewOctetCounting(OctetCountingConfig{}) },
			"3 onerest",
			[]string{"one", badText("a message begins with %q", 'r'), "rest"},
		},
	} {
		f, err := c.f()
		require.NoError(t, err)
		h := &leavesOnError{t: t}
		ch := pipelinetest.New(t, pipelinetest.Named("framer", f), h)
		ch.WriteInbound(c.in)
		assert.Equal(t, c.want, h.got, name)
		assert.True(t, ch.Open(), name)
		ch.PeerClose()
		assert.Equal(t, 1, h.closed, name)
		ch.Finish()
	}
	for _, in := range []string{"part", "too long"} { // at the end of the stream
		f, err := NewLines(LinesConfig{MaxBytes: 5, FailSlow: true})
		require.NoError(t, err)
		h := &leavesOnError{t: t}
		ch := pipelinetest.New(t, pipelinetest.Named("framer", f), h)
		ch.WriteInbound(in)
		ch.PeerClose()
		assert.Len(t, h.got, 1)
		assert.Equal(t, 1, h.closed)
		ch.Finish()
	}
}

// leavesOnError takes the framer out when something is wrong.
type leavesOnError struct {
	app
	t *testing.T
}

func (l *leavesOnError) ErrorCaught(ctx *pipeline.Context, err error) error {
	_, failed := ctx.Pipeline().Remove("framer")
	assert.NoError(l.t, failed)
	return l.app.ErrorCaught(ctx, err)
}

func TestAPanicBehindAFramerLeavesNothingAndNothingComesAfterIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int
		before func(ch *pipelinetest.Channel, ctx *pipeline.Context) // what happens before the panic
	}{
		{name: "in one piece", size: 100},
		{name: "in pieces", size: 3},
		{name: "byte by byte", size: 1},
		{name: "with bytes from within", size: 100, before: func(ch *pipelinetest.Channel, _ *pipeline.Context) {
			ch.Pipeline().FireRead(buffer.Wrap([]byte("more\n")))
		}},
		{name: "after it was taken out", size: 100, before: func(ch *pipelinetest.Channel, _ *pipeline.Context) {
			_, _ = ch.Pipeline().Remove("framer")
		}},
		{name: "after a pause", size: 100, before: func(_ *pipelinetest.Channel, ctx *pipeline.Context) { ctx.Pause() }},
	} {
		ch, a := start(t, mustLines(t, LinesConfig{}), nil)
		a.then = func(ctx *pipeline.Context, text string) {
			if text != "panic" {
				return
			}
			if c.before != nil {
				c.before(ch, ctx)
			}
			panic(errTest)
		}
		ch.WriteInboundSplit([]byte("one\npanic\ntwo\nthr"), c.size)
		assert.ErrorIs(t, ch.TakeError(), channel.ErrPanic, c.name)
		assert.ErrorContains(t, ch.TakeError(), errTest.Error(), c.name)
		assert.True(t, ch.Closed(), c.name)
		ch.Pipeline().FireRead(buffer.Wrap([]byte("more\n")))
		assert.NotContains(t, strings.Join(a.got, " "), "two", c.name)
		if c.name != "after it was taken out" {
			assert.Equal(t, []string{"one", "panic"}, a.got, c.name)
		}
		ch.Finish() // every buffer is back
	}
}

// rescuer keeps a panic of those behind it from the channel.
type rescuer struct{}

func (rescuer) ChannelRead(ctx *pipeline.Context, msg any) error {
	defer func() { _ = recover() }()
	ctx.FireRead(msg)
	return nil
}

func TestAFramerIsOverAfterAPanicThatSomebodyRecovers(t *testing.T) {
	ch, a := start(t, mustLines(t, LinesConfig{}), nil)
	require.NoError(t, ch.Pipeline().AddFirst("rescuer", rescuer{}))
	a.then = func(_ *pipeline.Context, text string) {
		if text == "panic" {
			panic(errTest)
		}
	}
	ch.WriteInbound("one\npanic\ntwo\n", "three\n")
	assert.Equal(t, []string{"one", "panic"}, a.got)
}

func TestAPanicAtAResumeOrAtTheEndOfTheStreamLeavesNothing(t *testing.T) {
	for _, at := range []string{"two", "tail"} {
		ch, a := start(t, mustLines(t, LinesConfig{FinalLine: true}), nil)
		a.then = func(ctx *pipeline.Context, text string) {
			switch text {
			case "one":
				ctx.Pause()
			case at:
				panic(errTest)
			}
		}
		ch.WriteInbound("one\ntwo\ntail")
		ch.PeerClose()
		ch.Do(ch.Context("app").Resume)
		assert.ErrorIs(t, ch.TakeError(), channel.ErrPanic)
		assert.Equal(t, at, a.got[len(a.got)-1])
		assert.Zero(t, a.closed)
		ch.Finish()
	}
}

func TestAPanicOfASuccessorLeavesNothing(t *testing.T) {
	ch, a := start(t, mustLines(t, LinesConfig{}), nil)
	a.then = func(_ *pipeline.Context, text string) {
		if text == "held" {
			panic(errTest)
		}
	}
	ch.WriteInbound("one\nhe", "ld")
	assert.PanicsWithError(t, errTest.Error(), func() {
		ch.Do(func() { _, _ = ch.Pipeline().Remove("framer") })
	})
	ch.Abort(errTest)
	ch.Finish()
}

// What a decoder remembers is about the bytes of its channel: in a second place it would cut wrongly.
func TestADecoderIsAddedOnce(t *testing.T) {
	for name, h := range map[string]any{
		"framer": NewFramer(mustSplit(SplitLines(LinesConfig{}))),
		"handle": Handle(mustSplit(SplitLines(LinesConfig{})), func(*pipeline.Context, Span) error { return nil }),
	} {
		t.Run(name, func(t *testing.T) {
			ch := pipelinetest.New(t, pipelinetest.Named("decoder", h))
			ch.WriteInbound("abc")
			_, err := ch.Pipeline().Remove("decoder")
			require.NoError(t, err)
			assert.Equal(t, "abc", ch.InboundString())
			assert.ErrorIs(t, ch.Pipeline().AddLast("again", h), ErrReused)
			assert.ErrorIs(t, ch.TakeError(), ErrReused)
			other := pipelinetest.New(t)
			assert.ErrorIs(t, other.Pipeline().AddLast("elsewhere", h), ErrReused)
			assert.ErrorIs(t, other.TakeError(), ErrReused)
		})
	}
}

// bytewise makes nothing of bytes until the end of the stream, and then a message of each.
type bytewise struct{}

func (bytewise) Decode([]byte) (at Span, n int, err error) { return at, 0, ErrShort }

func (bytewise) Finish(in []byte) (Span, int, error) {
	if len(in) == 0 {
		return Span{}, 0, ErrShort
	}
	return Span{0, 1}, 1, nil
}

// Whoever takes the framer out at one of the last messages gets the rest as bytes, and then the end.
func TestAFramerThatLeavesAtTheEndOfTheStreamHandsOnWhatItHolds(t *testing.T) {
	for name, leave := range map[string]func(p *pipeline.Pipeline) error{
		"removed":  func(p *pipeline.Pipeline) error { _, err := p.Remove("framer"); return err },
		"replaced": func(p *pipeline.Pipeline) error { _, err := p.Replace("framer", "heir", passing{}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ch, a := start(t, NewFramer(bytewise{}), nil)
			a.then = func(ctx *pipeline.Context, text string) {
				if text == "b" {
					assert.NoError(t, leave(ctx.Pipeline()))
				}
			}
			ch.WriteInbound("ab", "cde")
			assert.Empty(t, a.got)
			ch.PeerClose()
			assert.Equal(t, []string{"a", "b", "cde"}, a.got)
			assert.Equal(t, 1, a.closed)
			ch.Finish()
		})
	}
}
