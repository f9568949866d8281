package codec

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// world is a framer between a handler that sees what is delivered to it and one that does at random, from within, what
// a handler may do: deliver more, pause, put another framer in its place, take it out.
type world struct {
	t         *testing.T
	random    *rand.Rand
	format    worldFormat
	ch        *pipelinetest.Channel
	delivered strings.Builder
	got       []string // frames and errors, and then what comes from a framer that was taken out
	framed    int      // how many are frames and errors, or -1 as long as the framer is there
	closed    int
	busy      bool
	left      int // bytes that may still be delivered from within
}

// tap sees what is delivered.
type tap struct{ w *world }

func (p tap) ChannelRead(ctx *pipeline.Context, msg any) error {
	p.w.delivered.Write(msg.(*buffer.Buf).Bytes())
	ctx.FireRead(msg)
	return nil
}

// worldFormat is what the frames are.
type worldFormat interface {
	splitter() Splitter
	// frames returns what becomes of in, and what was left before each of these events and behind the last.
	frames(in string) (events, rest []string)
	// letter is a byte that many frames have.
	letter(*rand.Rand) byte
}

// worldLines are lines, most of them short.
type worldLines struct{}

func (worldLines) splitter() Splitter { return mustSplit(SplitLines(LinesConfig{})) }

func (worldLines) frames(in string) (events, rest []string) {
	for {
		rest = append(rest, in)
		line, behind, whole := strings.Cut(in, "\n")
		if !whole {
			return events, rest
		}
		events, in = append(events, strings.TrimSuffix(line, "\r")), behind
	}
}

func (worldLines) letter(r *rand.Rand) byte { return "\n\n\rabcdefghijklmnopq"[r.IntN(20)] }

// worldFrames have a length of one byte before them; a zero is skipped, and a length of 255 is a bad frame of one byte.
// The decoder knows what it needs only now and then.
type worldFrames struct{ random *rand.Rand }

func (f worldFrames) splitter() Splitter { return f }

func (worldFrames) letter(r *rand.Rand) byte { return byte(r.IntN(6)) }

func (worldFrames) MaxMessageBytes() int { return 1000 }

func (f worldFrames) Decode(in []byte) (Span, int, error) {
	n := 1 + int(in[0])
	switch {
	case n == 1:
		return Span{}, 1, ErrSkip
	case n == 256:
		return Span{}, 1, errTest
	case n > len(in):
		return Span{}, n * f.random.IntN(2), ErrShort
	}
	return Span{1, n}, n, nil
}

func (f worldFrames) frames(in string) (events, rest []string) {
	rest = []string{in}
	for in != "" {
		at, n, err := f.Decode([]byte(in))
		switch err {
		case nil:
			events = append(events, in[at.Start:at.End])
		case errTest:
			events = append(events, errorText(errTest))
		case ErrShort:
			return events, rest
		}
		in = in[n:]
		if err != ErrSkip {
			rest = append(rest, in)
		} else {
			rest[len(rest)-1] = in
		}
	}
	return events, rest
}

func (w *world) ChannelRead(ctx *pipeline.Context, msg any) error {
	text := string(msg.(*buffer.Buf).Bytes())
	w.event(ctx, text)
	assert.Equal(w.t, text, string(msg.(*buffer.Buf).Bytes()), "it stays as it is while it is handled")
	return nil
}

func (w *world) ErrorCaught(ctx *pipeline.Context, err error) error {
	w.event(ctx, errorText(err))
	return nil
}

func (w *world) ChannelReadClosed(ctx *pipeline.Context) error {
	w.closed++
	ctx.FireReadClosed()
	return nil
}

func (w *world) event(ctx *pipeline.Context, text string) {
	if w.framed < 0 {
		assert.True(w.t, ctx.Reading(), "reading is paused")
		assert.False(w.t, w.busy, "one frame at a time")
	}
	w.got = append(w.got, text)
	if w.framed >= 0 || strings.Contains(text, ErrTruncated.Error()) {
		return // behind the end of the stream there is nothing to deliver
	}
	w.busy = true
	defer func() { w.busy = false }()
	for w.random.IntN(3) == 0 && w.framed < 0 {
		switch w.random.IntN(12) {
		case 0, 1, 2, 3:
			w.inject()
		case 4, 5, 6:
			ctx.Pause()
		case 7, 8:
			ctx.Pause()
			ctx.Resume()
		case 9, 10:
			_, err := ctx.Pipeline().Replace("framer", "framer", NewFramer(w.format.splitter()))
			assert.NoError(w.t, err)
			return // what is delivered from now on goes to the successor at once, before what the framer passes on to it
		case 11:
			w.remove()
		}
	}
}

func (w *world) remove() {
	if w.random.IntN(4) == 0 {
		w.framed = len(w.got)
		_, err := w.ch.Pipeline().Remove("framer")
		assert.NoError(w.t, err)
	}
}

// piece is some bytes of which many are short frames.
func (w *world) piece(most int) []byte {
	b := make([]byte, w.random.IntN(most+1))
	for i := range b {
		b[i] = w.format.letter(w.random)
		if w.random.IntN(40) == 0 {
			b[i] = byte(w.random.IntN(256))
		}
	}
	return b
}

func (w *world) inject() {
	if b := w.piece(40); len(b) <= w.left {
		w.left -= len(b)
		w.ch.Pipeline().FireRead(buffer.Wrap(b))
	}
}

func TestFramesAreThoseOfAllThatWasDelivered(t *testing.T) {
	for seed := range uint64(800) {
		w := &world{t: t, random: rand.New(rand.NewPCG(seed, 0)), framed: -1, left: 2000}
		w.format = worldFrames{w.random}
		if seed%2 == 0 {
			w.format = worldLines{}
		}
		f := pipelinetest.Named("framer", NewFramer(w.format.splitter()))
		w.ch = pipelinetest.New(t, tap{w}, f, pipelinetest.Named("app", w))
		ctx := w.ch.Context("app")
		for range w.random.IntN(40) {
			switch w.random.IntN(8) {
			case 0:
				w.ch.Do(ctx.Resume)
			case 1:
				w.ch.Do(w.inject) // also while reading is paused
			case 2:
				w.ch.Do(func() {
					if w.framed < 0 && !w.ch.Paused() {
						w.remove()
					}
				})
			default:
				w.ch.WriteInbound(w.piece(1 + w.random.IntN(700)))
			}
		}
		w.ch.PeerClose()
		for range 10_000 {
			if !w.ch.Paused() || w.ch.Closed() {
				break
			}
			w.ch.Do(ctx.Resume)
		}
		w.check(seed)
		w.ch.Finish()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (w *world) check(seed uint64) {
	events, rest := w.format.frames(w.delivered.String())
	if tail := rest[len(rest)-1]; tail != "" {
		events, rest = append(events, truncated(len(tail))), append(rest, "")
	}
	if w.framed < 0 {
		assert.Equal(w.t, events, w.got, "seed %d", seed)
	} else {
		require.LessOrEqual(w.t, w.framed, len(events), "seed %d", seed)
		assert.Equal(w.t, events[:w.framed], w.got[:w.framed], "seed %d: before it was taken out", seed)
		// Zeros may have been skipped before it was.
		left := strings.TrimLeft(rest[w.framed], "\x00")
		raw := strings.TrimLeft(strings.Join(w.got[w.framed:], ""), "\x00")
		assert.Equal(w.t, left, raw, "seed %d: what it left", seed)
	}
	assert.Equal(w.t, 1, w.closed, "seed %d", seed)
}
