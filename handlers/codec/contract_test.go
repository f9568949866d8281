package codec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestADecoderThatBreaksItsContractIsToldOnceAndCloses(t *testing.T) {
	answers := []struct {
		name string
		n    int
		err  error
		want error
	}{
		{"a frame of nothing", 0, nil, ErrDecoder},
		{"a frame of more than there is", 5, nil, ErrDecoder},
		{"a frame of less than nothing", -1, nil, ErrDecoder},
		{"nothing skipped", 0, ErrSkip, ErrDecoder},
		{"more skipped than there is", 5, ErrSkip, ErrDecoder},
		{"less than nothing skipped", -1, ErrSkip, ErrDecoder},
		{"an error about more than there is", 5, errTest, ErrDecoder},
		{"an error about less than nothing", -1, errTest, ErrDecoder},
		{"an error about the stream", 0, errTest, errTest},
	}
	for _, c := range answers {
		answer := func([]byte) (Span, int, error) { return Span{}, c.n, c.err }
		short := func([]byte) (Span, int, error) { return Span{}, 0, ErrShort }
		second := func(in []byte) (Span, int, error) { // of two frames in what is held
			if len(in) == 4 {
				return answer(in)
			}
			return Span{}, 0, ErrShort
		}
		for where, s := range map[string]*scripted{
			"at once":                {decode: answer},
			"put together":           {decode: second},
			"at the end of a stream": {decode: short, finish: answer},
		} {
			ch, a := start(t, NewFramer(s), nil)
			ch.WriteInboundSplit([]byte("1234"), map[bool]int{true: 4, false: 1}[where == "at once"])
			if s.finish != nil {
				ch.PeerClose()
			}
			if assert.Len(t, a.errors, 1, "%s, %s", c.name, where) {
				assert.ErrorIs(t, a.errors[0], c.want, "%s, %s", c.name, where)
			}
			assert.Len(t, a.got, 1, "no frame comes: %s, %s", c.name, where)
			assert.False(t, ch.Open(), "%s, %s", c.name, where)
			ch.Finish()
		}
	}
}

func TestAFrameOutsideOfWhatItTookIsToldAndLeftOut(t *testing.T) {
	for _, at := range []Span{{0, 2}, {-1, 0}, {1, 0}, {0, -1}} {
		first := true
		s := &scripted{decode: func(in []byte) (Span, int, error) {
			if first {
				first = false
				return at, 1, nil
			}
			return Span{0, 1}, 1, nil
		}}
		ch, a := start(t, NewFramer(s), nil)
		ch.WriteInbound("ab")
		require.Len(t, a.errors, 1)
		assert.ErrorIs(t, a.errors[0], ErrDecoder)
		assert.Equal(t, []string{errorText(a.errors[0]), "b"}, a.got)
		ch.Finish()
	}
}

// wanting never has enough.
type wanting struct{ need, asked, most int }

func (w *wanting) MaxMessageBytes() int { return 100 }

func (w *wanting) Decode(in []byte) (Span, int, error) {
	w.asked++
	w.most = max(w.most, len(in))
	return Span{}, w.need, ErrShort
}

func TestADecoderThatWantsMoreThanItsMaximumGetsNoMore(t *testing.T) {
	for _, need := range []int{0, -1, 1, 99, 100, 101, 1 << 30, int(^uint(0) >> 1)} {
		w := &wanting{need: need}
		f := NewFramer(w)
		ch, a := start(t, f, nil)
		ch.WriteInboundSplit([]byte(strings.Repeat("x", 99)), 1)
		assert.Empty(t, a.got, "it wants %d", need)
		ch.WriteInbound("x")
		assert.Equal(t, []string{longText(0, 100)}, a.got, "it wants %d", need)
		assert.False(t, ch.Open())
		assert.Equal(t, 100, w.most)
		if need == 99 {
			assert.LessOrEqual(t, w.asked, 4, "it is not asked at every byte")
		}
		ch.Finish()
	}
}

// closing makes a frame and an error of the end of the stream.
type closing struct{ ends []error }

func (*closing) Decode(in []byte) (Span, int, error) { return Span{}, len(in), ErrSkip }

func (c *closing) Finish(in []byte) (_ Span, n int, err error) {
	if len(c.ends) == 0 {
		return Span{}, 0, ErrShort
	}
	err, c.ends = c.ends[0], c.ends[1:]
	return Span{}, 0, err
}

func TestTheEndOfTheStreamMayBeAMessageOrAnError(t *testing.T) {
	for _, c := range []struct {
		end  error
		want string
	}{{nil, ""}, {errTest, errorText(errTest)}} {
		ch, a := start(t, NewFramer(&closing{ends: []error{c.end}}), nil)
		ch.WriteInbound("ab")
		ch.PeerClose()
		assert.Equal(t, []string{c.want}, a.got)
		assert.Equal(t, 1, a.closed)
		ch.Finish()
	}
	ch, a := start(t, NewFramer(&closing{ends: []error{ErrSkip}}), nil)
	ch.PeerClose()
	require.Len(t, a.errors, 1, "a skip of nothing")
	assert.ErrorIs(t, a.errors[0], ErrDecoder)
	ch.Finish()
}

// pausing pauses at every message and error.
type pausing struct{ app }

func (p *pausing) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.Pause()
	return p.app.ChannelRead(ctx, msg)
}

func (p *pausing) ErrorCaught(ctx *pipeline.Context, err error) error {
	ctx.Pause()
	return p.app.ErrorCaught(ctx, err)
}

func TestAPauseAtTheLastMessageHoldsTheEndOfTheStream(t *testing.T) {
	line, err := SplitLines(LinesConfig{MaxBytes: 2, FinalLine: true})
	require.NoError(t, err)
	late, err := SplitLines(LinesConfig{MaxBytes: 2, FailSlow: true})
	require.NoError(t, err)
	talkative := &scripted{decode: func([]byte) (Span, int, error) { return Span{}, 0, ErrShort }}
	talkative.finish = func(in []byte) (Span, int, error) {
		if len(in) > 0 {
			return Span{}, 0, ErrShort
		}
		return Span{}, 0, errTest
	}
	for _, c := range []struct {
		name string
		s    Splitter
		in   string
		want string
	}{
		{"a frame", line, "ab", "ab"},
		{"what is incomplete", mustSplit(SplitFixedLength(FixedLengthConfig{Bytes: 3})), "ab", truncated(2)},
		{"what is incomplete, once", talkative, "ab", truncated(2)},
		{"what was skipped", late, "abc", longText(0, 2)},
		{"a message of nothing", &closing{ends: []error{nil}}, "ab", ""},
	} {
		p := &pausing{}
		ch := pipelinetest.New(t, NewFramer(c.s), pipelinetest.Named("app", p))
		ch.WriteInbound(c.in)
		ch.PeerClose()
		assert.Equal(t, []string{c.want}, p.got, c.name)
		assert.Zero(t, p.closed, "%s: reading is paused", c.name)
		ch.Do(ch.Context("app").Resume)
		assert.Equal(t, []string{c.want}, p.got, c.name)
		assert.Equal(t, 1, p.closed, c.name)
		ch.Finish()
	}
}

// relentless delivers what it is told to, paused or not, which no channel does.
type relentless struct{ ctx *pipeline.Context }

func (r *relentless) HandlerAdded(ctx *pipeline.Context) error {
	r.ctx = ctx
	return nil
}

func (r *relentless) ChannelRead(ctx *pipeline.Context, msg any) error {
	ctx.FireRead(msg)
	return nil
}

func TestWhatComesWhileReadingIsPausedIsBounded(t *testing.T) {
	const most = 100
	for _, beyond := range []int{-1, 0, 1} {
		r := &relentless{}
		f, err := NewLines(LinesConfig{MaxBytes: most - len("\r\n")})
		require.NoError(t, err)
		a := &app{}
		ch := pipelinetest.New(t, r, f, pipelinetest.Named("app", a))
		ch.Do(ch.Context("app").Pause)
		piece := buffer.Wrap([]byte(strings.Repeat("line\n", 1000)))
		left := most + overrunBytes + beyond
		ch.Do(func() {
			for ; left > piece.Len(); left -= piece.Len() {
				r.ctx.FireRead(piece)
			}
			r.ctx.FireRead(buffer.Wrap(piece.Bytes()[:left]))
		})
		if beyond > 0 {
			require.Len(t, a.errors, 1)
			assert.ErrorIs(t, a.errors[0], ErrOverrun)
			assert.Len(t, a.got, 1)
			assert.False(t, ch.Open())
		} else {
			assert.Empty(t, a.got)
			ch.Do(ch.Context("app").Resume)
			assert.Len(t, a.got, (most+overrunBytes+beyond)/len("line\n"))
		}
		ch.Finish()
	}
}

func TestWhatAHandlerDeliversFromWithinIsBounded(t *testing.T) {
	const most = 100
	for _, beyond := range []int{-1, 0, 1} {
		f, err := NewLines(LinesConfig{MaxBytes: most - len("\r\n")})
		ch, a := start(t, f, err)
		more := buffer.Wrap([]byte(strings.Repeat("x\n", most+overrunBytes)[:most+overrunBytes+beyond]))
		a.then = func(ctx *pipeline.Context, text string) {
			if text == "first" {
				ctx.Pipeline().FireRead(more)
				assert.Len(t, a.got, 1+len(a.errors), "it waits for its turn")
			}
		}
		ch.WriteInbound("first\n")
		if beyond > 0 {
			require.Len(t, a.errors, 1)
			assert.ErrorIs(t, a.errors[0], ErrOverrun)
			assert.False(t, ch.Open())
		} else {
			assert.Empty(t, a.errors)
			assert.Len(t, a.got, 1+(most+overrunBytes+beyond)/2)
		}
		ch.Finish()
	}
}

// lingering keeps the channel open although somebody closes it, as a handler does that has something left to write.
type lingering struct{ asked int }

func (l *lingering) Close(*pipeline.Context) error {
	l.asked++
	return nil
}

func TestNothingComesBehindAFinalErrorAlsoWhenClosingTakesTime(t *testing.T) {
	for _, size := range []int{100, 1} {
		f, err := NewOctetCounting(OctetCountingConfig{})
		require.NoError(t, err)
		l, a := &lingering{}, &app{}
		ch := pipelinetest.New(t, l, f, a)
		ch.WriteInboundSplit([]byte("1 axyz1 b<c>\n"), size)
		ch.WriteInbound("1 d")
		assert.Equal(t, []string{"a", badText("a message begins with %q", 'x')}, a.got)
		assert.Equal(t, 1, l.asked)
		assert.True(t, ch.Open())
		ch.PeerClose()
		assert.Equal(t, 1, a.closed)
		assert.Len(t, a.errors, 1)
		ch.Abort(nil)
		ch.Finish()
	}
}
