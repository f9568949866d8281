package watermark_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// The peer reads now and then; each row is what is pending after it has or something was written.
func TestTheLevelsOfAPeerThatReadsNowAndThen(t *testing.T) {
	h := newHandler(t, medium())
	ch, ctx := channel(t, h)
	ch.Stall()
	const piece = 2 << 10 // is a block of its own
	for _, tc := range []struct {
		write, size, drain, pending int
		reading                     bool
		level                       watermark.Level
	}{
		{0, 0, 0, 0, true, watermark.Normal},
		{2, piece, 0, 4 << 10, true, watermark.Normal},
		{2, piece, 0, 8 << 10, false, watermark.High},
		{0, 0, 2*piece - 1, 8 << 10, false, watermark.High}, // what is sent at once is given up at once
		{0, 0, 1, 4 << 10, false, watermark.High},
		{0, 0, 2 * piece, 0, true, watermark.Normal},
		{1, 40 << 10, 0, 64 << 10, false, watermark.High}, // by one message, which is accepted
	} {
		ch.Do(func() {
			for range tc.write {
				assert.NoError(t, ctx.Write(make([]byte, tc.size)))
			}
		})
		ch.Drain(tc.drain)
		assert.Equal(t, tc.pending, ch.Pending())
		assert.Equal(t, tc.reading, ctx.Reading(), "%d pending", tc.pending)
		assert.Equal(t, tc.level, h.Level(), "%d pending", tc.pending)
		assert.True(t, ch.Open(), "%d pending", tc.pending)
	}
	ch.Do(func() { assert.NoError(t, ctx.WriteBytes([]byte("x"))) }) // finds 64 KiB pending
	assert.Equal(t, watermark.OverLimit, h.Level())
	assert.False(t, ctx.Reading())
	assert.True(t, ch.Closed())
	assert.ErrorIs(t, ch.Cause(), watermark.ErrOverLimit)
}

// What was read beyond the rate is waited for: to the nanosecond, however little it is and however long it takes.
func TestAPeerThatIsTooFastWaitsForWhatItIsAhead(t *testing.T) {
	for _, tc := range []struct {
		name        string
		burst       int64
		read        int // at once, at a rate of 1000 bytes a second
		after, wait time.Duration
	}{
		{"five seconds' worth", 1, 5000, 100 * time.Millisecond, 4900 * time.Millisecond},
		{"a second's worth, nearly over", 1, 1000, 995 * time.Millisecond, 5 * time.Millisecond},
		{"a second's worth, over", 1, 1000, time.Second, 0},
		{"a nanosecond is missing", 1, 1000, time.Second - 1, 1},
		{"a minute's worth", 1, 60_000, 0, time.Minute},
		{"a burst of a second pays for it", 0, 1000, 995 * time.Millisecond, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHandler(t, watermark.Config{RateBytesPerSecond: 1000, BurstBytes: tc.burst})
			got := 0
			ch, ctx := channel(t, h, onRead(func(_ *pipeline.Context, msg any) error { got += bytesOf(msg); return nil }))
			ch.WriteInbound(make([]byte, tc.read))
			assert.Equal(t, tc.read, got)
			ch.Advance(tc.after)
			n, wait := h.ReadGrant(ctx)
			assert.Equal(t, tc.wait, wait)
			assert.Equal(t, tc.wait == 0, n > 0)
			ch.WriteInbound("next")
			if tc.wait > 0 {
				ch.Advance(tc.wait - 1)
				assert.Equal(t, tc.read, got, "not yet")
				ch.Advance(1)
			}
			assert.Equal(t, tc.read+4, got)
		})
	}
}

// What a newcomer sends at once is read at once: there is no rate unless one is asked for.
func TestTheZeroConfigBoundsNoRate(t *testing.T) {
	got := 0
	h := newHandler(t, watermark.Config{})
	ch, ctx := channel(t, h, onRead(func(_ *pipeline.Context, msg any) error { got += bytesOf(msg); return nil }))
	for range 256 {
		ch.WriteInbound(make([]byte, 64<<10))
	}
	assert.Equal(t, 16<<20, got)
	n, wait := h.ReadGrant(ctx)
	assert.Equal(t, watermark.DefaultBudgetBytes, n)
	assert.Zero(t, wait)
}
