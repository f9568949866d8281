package codec

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func TestAFileRegionIsOneMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	ch := pipelinetest.New(t, NewVarint32Prepender())
	ch.Do(func() {
		p := ch.Pipeline()
		assert.NoError(t, p.Write(&pipeline.FileRegion{File: f, Offset: 3, Length: 4}))
		for _, bad := range []*pipeline.FileRegion{
			{Length: 4},
			{File: f, Offset: -1, Length: 4},
			{File: f, Length: -1},
			{File: f, Length: math.MaxUint32 + 1},
		} {
			assert.ErrorIs(t, p.Write(bad), ErrEncode)
		}
		assert.NoError(t, p.Write("end"))
	})
	assert.Equal(t, "\x043456\x03end", ch.OutboundString(), "nothing of what was refused")
	ch.Finish()
}

func TestWhatIsNoMessagePassesAPrependerAsItIs(t *testing.T) {
	ch := pipelinetest.New(t, NewVarint32Prepender())
	ch.Do(func() { assert.ErrorIs(t, ch.Pipeline().Write(42), pipeline.ErrMessageType) })
	assert.Empty(t, ch.OutboundString())
	assert.True(t, ch.Open())
	ch.Finish()
}

// refusing refuses large messages, and files.
type refusing struct{}

func (refusing) Write(ctx *pipeline.Context, msg any) error {
	if b, ok := msg.(*buffer.Buf); !ok || b.Len() > 6 {
		return errTest
	}
	return ctx.Write(msg)
}

func TestAMessageThatIsRefusedBehindItsLengthEndsTheStream(t *testing.T) {
	ch := pipelinetest.New(t, refusing{}, NewVarint32Prepender())
	ch.Do(func() {
		assert.NoError(t, ch.Pipeline().Write("small"))
		assert.ErrorIs(t, ch.Pipeline().Write("too large"), errTest)
		assert.NoError(t, ch.Pipeline().Write([]byte("again")))
	})
	assert.Equal(t, "\x05small\x05again", ch.OutboundString(), "the length was refused with its message")
	assert.True(t, ch.Open())
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer f.Close()
	ch.Do(func() {
		assert.ErrorIs(t, ch.Pipeline().Write(&pipeline.FileRegion{File: f, Length: 9}), errTest, "it follows its length")
	})
	assert.ErrorIs(t, ch.Cause(), errTest)
	assert.False(t, ch.Open())
	ch.Finish()
}

func TestLengthsThatTheFieldCannotHoldAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for _, c := range []struct {
		cfg  LengthFieldPrependerConfig
		most int64 // what a message may have
	}{
		{LengthFieldPrependerConfig{Width: 1}, 255},
		{LengthFieldPrependerConfig{Width: 1, IncludesLength: true}, 254},
		{LengthFieldPrependerConfig{Width: 1, Adjustment: 5}, 250},
		{LengthFieldPrependerConfig{Width: 1, Adjustment: -5}, 260},
		{LengthFieldPrependerConfig{Width: 2}, 1<<16 - 1},
		{LengthFieldPrependerConfig{Width: 3, ByteOrder: binary.LittleEndian}, 1<<24 - 1},
		{LengthFieldPrependerConfig{Width: 4}, 1<<32 - 1},
		{
			LengthFieldPrependerConfig{Width: 4, Adjustment: math.MaxInt32, IncludesLength: true},
			1<<32 - 1 - math.MaxInt32 - 4,
		},
		{LengthFieldPrependerConfig{Width: 8, Adjustment: math.MaxInt32}, math.MaxInt64 - 1<<33},
	} {
		p, err := NewLengthFieldPrepender(c.cfg)
		require.NoError(t, err)
		last := &lastWrite{}
		ch := pipelinetest.New(t, last, p)
		for n := c.most - 1; n <= c.most+1; n++ {
			ch.Do(func() { err = ch.Pipeline().Write(&pipeline.FileRegion{File: f, Length: n}) })
			if n > c.most {
				assert.ErrorIs(t, err, ErrEncode, "%+v: %d", c.cfg, n)
			} else {
				assert.NoError(t, err, "%+v: %d", c.cfg, n)
				assert.Equal(t, n, last.length)
			}
		}
		ch.Finish()
	}
	p, err := NewLengthFieldPrepender(LengthFieldPrependerConfig{Width: 2, Adjustment: -3})
	require.NoError(t, err)
	ch := pipelinetest.New(t, p)
	ch.Do(func() {
		assert.ErrorIs(t, ch.Pipeline().Write("ab"), ErrEncode, "a length below zero")
		assert.NoError(t, ch.Pipeline().Write("abc"))
	})
	assert.Equal(t, "\x00\x00abc", ch.OutboundString())
	ch.Finish()
}

// lastWrite keeps file regions from the socket.
type lastWrite struct{ length int64 }

func (l *lastWrite) Write(ctx *pipeline.Context, msg any) error {
	if r, ok := msg.(*pipeline.FileRegion); ok {
		l.length = r.Length
		return nil
	}
	return ctx.Write(msg)
}

func TestWhatAPrependerWritesAFramerReads(t *testing.T) {
	for _, order := range []binary.ByteOrder{nil, binary.BigEndian, binary.LittleEndian} {
		for _, width := range []int{1, 2, 3, 4, 8} {
			for _, includes := range []bool{false, true} {
				adjustment := 0
				if includes {
					adjustment = -width
				}
				p, err := NewLengthFieldPrepender(LengthFieldPrependerConfig{
					ByteOrder: order, Width: width,
					IncludesLength: includes,
				})
				require.NoError(t, err)
				f := LengthFieldConfig{ByteOrder: order, Width: width, Adjustment: adjustment, Strip: width}
				roundTrip(t, p, mustSplit(SplitLengthField(f)))
			}
		}
	}
	roundTrip(t, NewVarint32Prepender(), mustSplit(SplitVarint32(Varint32Config{})))
}

func roundTrip(t *testing.T, p *Prepender, s Splitter) {
	t.Helper()
	messages := []string{"", "a", strings.Repeat("b", 127), strings.Repeat("c", 128), strings.Repeat("d", 247)}
	ch := pipelinetest.New(t, p)
	ch.Do(func() {
		for _, m := range messages {
			assert.NoError(t, ch.Pipeline().Write(m))
		}
	})
	assert.Equal(t, messages, outcome(t, s, ch.Outbound(), []byte{1, 7}, nil))
	ch.Finish()
}

func TestAPrependerOfAChannelThatClosesWritesNothing(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{SilentPeer: true, Stalled: true}, NewVarint32Prepender())
	ch.Do(func() {
		assert.NoError(t, ch.Pipeline().Write("last"))
		assert.NoError(t, ch.Pipeline().Close())
		assert.ErrorIs(t, ch.Pipeline().Write("late"), pipeline.ErrClosed)
	})
	ch.Unstall()
	assert.Equal(t, "\x04last", ch.OutboundString())
	assert.NoError(t, ch.Cause(), "an orderly close stays one")
	ch.PeerClose()
	ch.Finish()
}

func TestAPrependerAboveThePendingLimitEndsTheStream(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{MaxPendingBytes: 100, Stalled: true}, NewVarint32Prepender())
	ch.Do(func() {
		for range 100 {
			if err := ch.Pipeline().Write(strings.Repeat("x", 50)); err != nil {
				assert.ErrorIs(t, err, pipeline.ErrPendingLimit)
				return
			}
		}
		assert.Fail(t, "there is no limit")
	})
	assert.ErrorIs(t, ch.Cause(), pipeline.ErrPendingLimit)
	ch.Finish()
}

func TestAWriteBehindCloseWriteLeavesTheRestOfTheChannelAlone(t *testing.T) {
	a := &app{}
	cfg := pipelinetest.Config{SilentPeer: true, Stalled: true}
	ch := pipelinetest.NewConfig(t, cfg, NewVarint32Prepender(), pipelinetest.Named("app", a))
	ch.Do(func() {
		ctx := ch.Context("app")
		assert.NoError(t, ctx.Write("last"))
		assert.NoError(t, ctx.CloseWrite())
		assert.ErrorIs(t, ctx.Write("late"), pipeline.ErrClosed)
	})
	ch.WriteInbound("still heard")
	assert.Equal(t, []string{"still heard"}, a.got)
	ch.Unstall()
	assert.Equal(t, "\x04last", ch.OutboundString())
	ch.PeerClose()
	assert.NoError(t, ch.Cause())
	ch.Finish()
}
