package codec

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestFramesAtTheirLimitPassAndOneByteMoreDoesNot(t *testing.T) {
	const most = 9
	body := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name  string
		split func() (Splitter, error)
		wire  func(n int) string // a frame of n bytes, counted as its limit counts them
		frame func(n int) string
	}{
		{
			"length field",
			func() (Splitter, error) {
				return SplitLengthField(LengthFieldConfig{Width: 1, Strip: 1, MaxBytes: most})
			},
			func(n int) string { return string(rune(n-1)) + body(n-1) }, func(n int) string { return body(n - 1) },
		},
		{
			"lines", func() (Splitter, error) { return SplitLines(LinesConfig{MaxBytes: most}) },
			func(n int) string { return body(n) + "\n" }, body,
		},
		{
			"lines with CR", func() (Splitter, error) { return SplitLines(LinesConfig{MaxBytes: most}) },
			func(n int) string { return body(n) + "\r\n" }, body,
		},
		{
			"delimiter",
			func() (Splitter, error) {
				return SplitDelimiter(DelimiterConfig{Delimiters: [][]byte{[]byte("<>")}, MaxBytes: most})
			},
			func(n int) string { return body(n) + "<>" }, body,
		},
		{
			"varint32", func() (Splitter, error) { return SplitVarint32(Varint32Config{MaxBytes: most}) },
			func(n int) string { return string(rune(n)) + body(n) }, body,
		},
		{
			"octet counting", func() (Splitter, error) { return SplitOctetCounting(OctetCountingConfig{MaxBytes: most}) },
			func(n int) string { return "<" + body(n-1) + "\n" }, func(n int) string { return "<" + body(n-1) },
		},
	} {
		for n := most - 1; n <= most+1; n++ {
			for _, size := range []byte{0xff, 3, 1} {
				got := outcome(t, mustSplit(c.split()), []byte(c.wire(n)+c.wire(2)), []byte{size}, nil)
				require.Len(t, got, 2, "%s: %d bytes in pieces of %d: %q", c.name, n, size, got)
				if n <= most {
					assert.Equal(t, c.frame(n), got[0], c.name)
				} else {
					assert.Contains(t, got[0], ErrFrameTooLong.Error(), c.name)
				}
				assert.Equal(t, c.frame(2), got[1], "%s: what comes behind", c.name)
			}
		}
	}
}

// digits decodes one digit at a time; 'x' is bad, and 'X' ends the stream.
type digits struct{}

func (digits) Decode(in []byte) (int, int, error) {
	switch in[0] {
	case 'x':
		return 0, 1, badFrame("x")
	case 'X':
		return 0, 0, badFrame("X")
	}
	return int(in[0] - '0'), 1, nil
}

func TestHandleHoldsMessagesWhileReadingIsPausedAndTheEndOfTheStreamToo(t *testing.T) {
	var got []int
	a := &app{}
	h := Handle(digits{}, func(ctx *pipeline.Context, d int) error {
		got = append(got, d)
		if d == 2 {
			ctx.Pause()
		}
		return nil
	})
	ch := pipelinetest.New(t, pipelinetest.Named("digits", h), a)
	ch.WriteInbound("1234")
	ch.PeerClose()
	assert.Equal(t, []int{1, 2}, got)
	assert.Zero(t, a.closed)
	ch.Do(ch.Context("digits").Resume)
	assert.Equal(t, []int{1, 2, 3, 4}, got)
	assert.Equal(t, 1, a.closed)
	ch.Finish()
}

func TestHandleGoesOnBehindASwallowedErrorAndEndsAtAFinalOne(t *testing.T) {
	var got []int
	a := &app{}
	h := Handle(digits{}, func(_ *pipeline.Context, d int) error {
		got = append(got, d)
		if d == 5 {
			return errTest
		}
		return nil
	})
	ch := pipelinetest.New(t, h, a)
	ch.WriteInbound("1x253X4")
	assert.Equal(t, []int{1, 2, 5, 3}, got)
	require.Len(t, a.errors, 3)
	assert.ErrorIs(t, a.errors[0], ErrBadFrame)
	assert.ErrorIs(t, a.errors[1], errTest)
	assert.ErrorIs(t, a.errors[2], ErrBadFrame)
	assert.False(t, ch.Open())
	ch.Finish()
}
