package codec

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

// lineEnds is ends as one would write it who has time.
func lineEnds(in []byte, from, to int) (ends []int) {
	for i := from; i < to; i++ {
		if in[i] == '\n' {
			ends = append(ends, i+1)
		}
	}
	return ends
}

func TestEndsAreWhereLFsAreAndNowhereElse(t *testing.T) {
	check := func(in []byte, from int) {
		var got [manyLines]int
		n, looked := (*lines).ends(nil, in, from, &got)
		require.Equal(t, lineEnds(in, from, looked), append([]int(nil), got[:n]...), "%q from %d", in, from)
		if n == manyLines {
			assert.LessOrEqual(t, looked, len(in))
		} else {
			assert.Equal(t, from+min(len(in)-from, aheadBytes)/groupBytes*groupBytes, looked, "%d bytes from %d", len(in), from)
		}
	}
	// What differs from an LF in one bit, or would carry into the byte beside it.
	for _, other := range []byte{0x0b, 0x8a, 0x8b, 0x09, 0x0e, 0x00, 0x1a, 0xff, 0x80, 0x7f, '\r'} {
		for i := range groupBytes {
			for j := i; j < groupBytes; j++ {
				in := bytes.Repeat([]byte{other}, groupBytes)
				in[i], in[j] = '\n', '\n'
				check(in, 0)
			}
		}
		check(bytes.Repeat([]byte{other}, groupBytes), 0)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		in := make([]byte, r.IntN(3*aheadBytes/2))
		every := 1 + r.IntN(200)
		for i := range in {
			if in[i] = byte(r.Uint32()); r.IntN(every) == 0 {
				in[i] = '\n'
			}
		}
		check(in, r.IntN(len(in)+1))
	}
}

// manyShortLines are lines that are short enough to be found together, now and then one that is longer, with all that a
// line may have in it.
func manyShortLines(r *rand.Rand, size int) []byte {
	var b []byte
	mean := 1 + r.IntN(longLine)
	for len(b) < size {
		n := r.IntN(2 * mean)
		if r.IntN(50) == 0 {
			n = r.IntN(2 * aheadBytes)
		}
		for range n {
			b = append(b, "ab\r\x0b\x8a\x00"[r.IntN(6)])
		}
		b = append(b, []string{"\n", "\n", "\r\n", "\n\n"}[r.IntN(4)]...)
	}
	return b[:size]
}

func TestLinesFoundTogetherAreThoseFoundOneByOne(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		cfg := LinesConfig{KeepEnd: r.IntN(2) == 0, FailSlow: r.IntN(2) == 0, FinalLine: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			cfg.MaxBytes = 1 + r.IntN(300)
		}
		in := manyShortLines(r, r.IntN(8<<10))
		pauses := make([]byte, r.IntN(40))
		for i := range pauses {
			if r.IntN(8) == 0 {
				pauses[i] = byte(r.Uint32())
			}
		}
		split := func() Splitter { return mustSplit(SplitLines(cfg)) }
		want := outcome(t, split(), in, []byte{7}, nil) // too few at a time for any to be found together
		require.Equal(t, want, outcome(t, split(), in, nil, nil), "seed %d: %+v: at once", seed, cfg)
		require.Equal(t, want, outcome(t, split(), in, nil, pauses), "seed %d: %+v: at once, with pauses %v", seed, cfg,
			pauses)
		require.Equal(t, want, outcome(t, split(), in, []byte{255, 250}, pauses), "seed %d: %+v: in pieces", seed, cfg)

		a := &app{}
		ch := pipelinetest.New(t, HandleFrames(split(), func(_ *pipeline.Context, frame []byte) error {
			a.note(string(frame))
			return nil
		}), a)
		ch.WriteInbound(in)
		ch.PeerClose()
		ch.Finish()
		require.Equal(t, want, a.got, "seed %d: %+v: as bytes", seed, cfg)
	}
}

// numbered are lines, of different lengths, and more of them than are found together.
func numbered() (in string, all []string) {
	for i := range 5 * manyLines {
		all = append(all, fmt.Sprint(i, strings.Repeat("-", i*37%longLine)))
	}
	return strings.Join(all, "\n") + "\n", all
}

func TestWhatHappensAtALineStopsTheOnesFoundTogetherWithIt(t *testing.T) {
	in, all := numbered()
	for at := range 3 * manyLines {
		last := all[at]
		for _, c := range []struct {
			name string
			do   func(ctx *pipeline.Context)
			then []string // what comes in the end, behind that line
		}{
			{"pause", func(ctx *pipeline.Context) { ctx.Pause() }, all[at+1:]},
			{"abort", func(ctx *pipeline.Context) { ctx.Abort(errTest) }, nil},
			{"close", func(ctx *pipeline.Context) { assert.NoError(t, ctx.Close()) }, nil},
			{"remove", func(ctx *pipeline.Context) {
				_, err := ctx.Pipeline().Remove("framer")
				assert.NoError(t, err)
			}, []string{strings.Join(all[at+1:], "\n") + "\n"}},
		} {
			ch, a := start(t, mustLines(t, LinesConfig{}), nil)
			a.then = func(ctx *pipeline.Context, line string) {
				if line == last {
					c.do(ctx)
				}
			}
			ch.WriteInbound(in)
			if c.name == "pause" {
				require.Equal(t, all[:at+1], a.got)
				a.then = nil
				ch.Do(ch.Context("app").Resume)
			}
			require.Equal(t, append(append([]string(nil), all[:at+1]...), c.then...), a.got, "%s at %d", c.name, at)
			ch.Finish()
		}
	}
}

// keeper keeps every frame.
type keeper struct{ kept []*buffer.Buf }

func (k *keeper) ChannelRead(_ *pipeline.Context, msg any) error {
	k.kept = append(k.kept, msg.(*buffer.Buf).Retain())
	return nil
}

func TestLinesThatAreKeptStayAsTheyWere(t *testing.T) {
	in, all := numbered()
	k := &keeper{}
	ch := pipelinetest.New(t, mustLines(t, LinesConfig{}), k)
	ch.WriteInbound(in)
	var got []string
	for _, b := range k.kept {
		got = append(got, string(b.Bytes()))
		b.Release()
	}
	assert.Equal(t, all, got)
	ch.Finish()
}

func TestAFrameThatCannotBeHandledIsReportedInItsPlace(t *testing.T) {
	in, all := numbered()
	for _, at := range []int{0, 1, 40} {
		a := &app{}
		split := mustSplit(SplitLines(LinesConfig{}))
		ch := pipelinetest.New(t, HandleFrames(split, func(_ *pipeline.Context, line []byte) error {
			if string(line) == all[at] {
				return errTest
			}
			a.note(string(line))
			return nil
		}), a)
		ch.WriteInbound(in)
		want := append(append([]string(nil), all[:at]...), errorText(errTest))
		assert.Equal(t, append(want, all[at+1:]...), a.got)
		ch.Finish()
	}
}

// A frame ends where its capacity does: behind it lies the next one.
func TestWhoAppendsToAFrameDoesNotReachTheNext(t *testing.T) {
	in, all := numbered()
	for _, size := range []int{len(in), 1000, 1} {
		var got []string
		split := mustSplit(SplitLines(LinesConfig{}))
		ch := pipelinetest.New(t, HandleFrames(split, func(_ *pipeline.Context, line []byte) error {
			got = append(got, string(line))
			_ = append(line, "\nappended\n"...)
			return nil
		}))
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, all, got, "pieces of %d", size)
		ch.Finish()
	}
}

func TestHandleFramesReportsAFrameOutsideOfItsBytes(t *testing.T) {
	for _, at := range []Span{{-1, 1}, {2, 1}, {0, 5}, {0, -1}} {
		a := &app{}
		ch := pipelinetest.New(t, HandleFrames(fixedSpan(at), func(_ *pipeline.Context, frame []byte) error {
			a.note(string(frame))
			return nil
		}), a)
		ch.WriteInbound("abcd")
		require.Len(t, a.errors, 1, "%v", at)
		assert.ErrorIs(t, a.errors[0], ErrDecoder)
		ch.Finish()
	}
}

// fixedSpan says that each four bytes hold this frame.
type fixedSpan Span

func (f fixedSpan) Decode([]byte) (Span, int, error) { return Span(f), 4, nil }
