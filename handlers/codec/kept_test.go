package codec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// frameKeeper keeps the frames that it gets, pausing at some.
type frameKeeper struct {
	kept   []*buffer.Buf
	pauses bool
}

func (k *frameKeeper) ChannelRead(ctx *pipeline.Context, msg any) error {
	k.kept = append(k.kept, msg.(*buffer.Buf).Retain())
	if k.pauses && len(k.kept)%3 == 0 {
		ctx.Pause()
	}
	return nil
}

func TestAFrameThatIsKeptStaysAsItIs(t *testing.T) {
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("%d:%s", i, strings.Repeat(string(rune('a'+i%26)), i*i%97)))
	}
	in := []byte(strings.Join(want, "\n") + "\n")
	for _, pauses := range []bool{false, true} {
		for _, size := range []int{1, 2, 7, 64, 511, 513, len(in)} {
			k := &frameKeeper{pauses: pauses}
			ch := pipelinetest.New(t, mustLines(t, LinesConfig{}), pipelinetest.Named("app", k))
			ch.WriteInboundSplit(in, size)
			for ch.Paused() {
				ch.Do(ch.Context("app").Resume)
			}
			var got []string
			for _, b := range k.kept {
				got = append(got, string(b.Bytes()))
				b.Release()
			}
			assert.Equal(t, want, got, "pieces of %d, with pauses: %v", size, pauses)
			ch.Finish()
		}
	}
}

func TestMemoryGrowsWithWhatWasReceivedUpToTheMaximum(t *testing.T) {
	const most = 20_000
	for _, c := range []struct {
		name  string
		split func() (Splitter, error)
		begin string // of a frame of at most the maximum
	}{
		{"length field", lf(LengthFieldConfig{Width: 2, MaxBytes: most}), "\x4e\x00"},
		{"lines", linesOf(LinesConfig{MaxBytes: most}), ""},
		{"delimiter", delimited(DelimiterConfig{MaxBytes: most}, "<end>", ";"), ""},
		{"fixed length", fixed(most), ""},
		{"varint32", varints(Varint32Config{MaxBytes: most}), "\xa0\x9c\x01"},
		{"octets", func() (Splitter, error) { return SplitOctetCounting(OctetCountingConfig{MaxBytes: most}) }, "20000 "},
	} {
		f := NewFramer(mustSplit(c.split()))
		ch, a := start(t, f, nil)
		ch.WriteInbound(c.begin)
		received := len(c.begin)
		for received+100 < most {
			ch.WriteInbound(body(100))
			received += 100
			require.NotNil(t, f.rest, "%s: %v", c.name, a.got)
			// A Buf is of a class of sizes: up to twice what was asked for.
			assert.LessOrEqual(t, f.rest.Cap(), 2*max(4*received, 256), "%s: %d bytes received", c.name, received)
			assert.LessOrEqual(t, f.rest.Cap(), 2*(most+pullBytes), "%s: %d bytes received", c.name, received)
		}
		assert.Empty(t, a.got, c.name)
		ch.Finish()
	}
}

func TestAFramerBetweenFramesHoldsNoMemory(t *testing.T) {
	for _, size := range []int{1, 3, 1000} {
		f := mustLines(t, LinesConfig{MaxBytes: 5})
		ch, a := start(t, f, nil)
		ch.WriteInboundSplit([]byte("one\ntoo long\ntwo\n"), size)
		assert.Len(t, a.got, 3)
		assert.Nil(t, f.rest)
		assert.Nil(t, f.late)
		ch.WriteInbound(strings.Repeat("x", 1000)) // a frame that is too long is not kept
		assert.Nil(t, f.rest)
		ch.Finish()
	}
}
