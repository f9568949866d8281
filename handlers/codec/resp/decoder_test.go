package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// collector records the requests and bytes that reach it and then does what the test says.
type collector struct {
	got    []string
	errors []error
	then   func(ctx *pipeline.Context, name string)
}

func (c *collector) ChannelRead(ctx *pipeline.Context, msg any) error {
	text := ""
	switch m := msg.(type) {
	case *Command:
		text = strings.Join(texts(m.Args), " ")
	case *Value:
		text = fmt.Sprint(m.Kind, ":", string(m.Bytes))
	case *buffer.Buf:
		text = "bytes:" + string(m.Bytes())
	}
	c.got = append(c.got, text)
	if c.then != nil {
		c.then(ctx, text)
	}
	if m, ok := msg.(*Command); ok && len(m.Args) > 0 && text != strings.Join(texts(m.Args), " ") {
		c.errors = append(c.errors, errors.New("the arguments changed while they were borrowed"))
	}
	return nil
}

func (c *collector) ErrorCaught(_ *pipeline.Context, err error) error {
	c.errors = append(c.errors, err)
	return nil
}

func (c *collector) ChannelReadClosed(ctx *pipeline.Context) error {
	c.got = append(c.got, "end")
	ctx.FireReadClosed()
	return nil
}

func (c *collector) take() []string {
	got := c.got
	c.got = nil
	return got
}

func newCommandDecoder(t testing.TB, cfg Config) *CommandDecoder {
	d, err := NewCommandDecoder(cfg)
	require.NoError(t, err)
	return d
}

func commandChannel(t testing.TB, cfg Config) (*pipelinetest.Channel, *collector, *CommandDecoder) {
	d, c := newCommandDecoder(t, cfg), &collector{}
	return pipelinetest.New(t, pipelinetest.Named("resp", d), pipelinetest.Named("app", c)), c, d
}

func TestDecoderMakesTheSameCommandsOfAnySplit(t *testing.T) {
	big := strings.Repeat("v", 1500)
	in := wire("SET", "k", big) + "*0\r\n\r\n" + "PING 'a b'\r\n" +
		strings.Repeat(wire("GET", "key"), 50) + wire("MSET", "a", "1", "b", "") + wire("SET", "x", big)
	want := []string{"SET k " + big, "PING a b"}
	for range 50 {
		want = append(want, "GET key")
	}
	want = append(want, "MSET a 1 b ", "SET x "+big)
	for _, size := range []int{1, 2, 3, 7, 100, 511, 512, 513, 1000, 4096, 1 << 20} {
		ch, c, _ := commandChannel(t, Config{})
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, want, c.got, "pieces of %d bytes", size)
		assert.Empty(t, c.errors)
		ch.Finish()
	}
}

func TestACommandAfterWhichReadingStopsIsTheLastUntilResume(t *testing.T) {
	for _, size := range []int{1 << 20, 1, 10, 45} {
		ch, c, d := commandChannel(t, Config{})
		app := ch.Context("app")
		c.then = func(ctx *pipeline.Context, text string) {
			if text == "GET b" || text == "GET d" {
				ctx.Pause()
			}
		}
		in := wire("GET", "a") + wire("GET", "b") + wire("GET", "c") + wire("GET", "d") + wire("GET", "e")
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, []string{"GET a", "GET b"}, c.take(), "pieces of %d bytes", size)
		ch.Do(app.Resume)
		assert.Equal(t, []string{"GET c", "GET d"}, c.take(), "pieces of %d bytes", size)
		ch.WriteInbound(wire("GET", "f"))
		assert.Empty(t, c.take())
		ch.Do(app.Resume)
		assert.Equal(t, []string{"GET e", "GET f"}, c.take(), "pieces of %d bytes", size)
		assert.Nil(t, d.rest)
		ch.Finish()
	}
}

func TestWholeCommandsHeldByAPauseAreNotCopied(t *testing.T) {
	ch, c, d := commandChannel(t, Config{})
	c.then = func(ctx *pipeline.Context, _ string) { ctx.Pause() }
	ch.WriteInbound(strings.Repeat(wire("GET", "k"), 700)) // more than half of a block: it is not worth copying
	require.NotNil(t, d.rest)
	assert.False(t, d.ours)
	c.then = nil
	ch.Do(ch.Context("app").Resume)
	assert.Len(t, c.got, 700)
}

func TestOnlyTheCommandThatIsCutIsCopied(t *testing.T) {
	ch, c, d := commandChannel(t, Config{})
	var where []bool
	c.then = func(*pipeline.Context, string) { where = append(where, d.inRest) }
	ch.WriteInbound("*2\r\n$3\r\nGET\r\n$1")
	ch.WriteInbound("\r\nk\r\n" + strings.Repeat(wire("GET", "k"), 3))
	assert.Equal(t, []bool{true, false, false, false}, where)
	assert.Equal(t, []string{"GET k", "GET k", "GET k", "GET k"}, c.got)
}

func TestAProtocolErrorIsToldOnceAndEndsTheInput(t *testing.T) {
	for _, size := range []int{1, 1 << 20} {
		ch, c, d := commandChannel(t, Config{})
		ch.WriteInboundSplit([]byte(wire("PING")+"*1\r\n#4\r\n"+wire("PING")), size)
		ch.WriteInbound(wire("PING"))
		assert.Equal(t, []string{"PING"}, c.got)
		require.Len(t, c.errors, 1)
		assert.ErrorIs(t, c.errors[0], ErrProtocol)
		assert.Nil(t, d.rest)
		ch.Finish()
	}
}

func TestNothingIsEmittedAfterClose(t *testing.T) {
	for _, size := range []int{1 << 20, 1} {
		ch, c, _ := commandChannel(t, Config{})
		c.then = func(ctx *pipeline.Context, _ string) { _ = ctx.Close() }
		ch.WriteInboundSplit([]byte(wire("QUIT")+wire("PING")), size)
		assert.Equal(t, []string{"QUIT"}, c.got)
		ch.Finish()
	}
}

func TestAbortInsideACommandLeavesNoMemoryBehind(t *testing.T) {
	for _, size := range []int{1 << 20, 1, 20} {
		ch, c, _ := commandChannel(t, Config{})
		c.then = func(ctx *pipeline.Context, _ string) { ctx.Abort(errors.New("enough")) }
		ch.WriteInboundSplit([]byte(wire("PING")+wire("PING")+"*1"), size)
		assert.Equal(t, []string{"PING"}, c.got)
		assert.Empty(t, c.errors)
		ch.Finish()
	}
}

func TestARemovedDecoderPassesOnWhatItHolds(t *testing.T) {
	for name, size := range map[string]int{"in one block": 1 << 20, "cut inside the command": 30, "cut behind it": 14} {
		t.Run(name, func(t *testing.T) {
			ch, c, _ := commandChannel(t, Config{})
			c.then = func(ctx *pipeline.Context, text string) {
				if text == "UPGRADE" {
					_, err := ctx.Pipeline().Remove("resp")
					assert.NoError(t, err)
				}
			}
			in := []byte(wire("PING") + wire("UPGRADE") + "raw \x00 bytes")
			for piece := in; len(piece) > 0; piece = piece[min(size, len(piece)):] {
				ch.WriteInbound(piece[:min(size, len(piece))])
			}
			require.GreaterOrEqual(t, len(c.got), 3)
			assert.Equal(t, []string{"PING", "UPGRADE"}, c.got[:2])
			rest := ""
			for _, text := range c.got[2:] {
				rest += strings.TrimPrefix(text, "bytes:")
			}
			assert.Equal(t, "raw \x00 bytes", rest)
			assert.Empty(t, c.errors)
			ch.Finish()
		})
	}
}

func TestADecoderRemovedBetweenReadsPassesOnTheRest(t *testing.T) {
	ch, c, _ := commandChannel(t, Config{})
	ch.WriteInbound("*1\r\n$4\r\nPI")
	ch.Do(func() {
		_, err := ch.Pipeline().Remove("resp")
		assert.NoError(t, err)
	})
	assert.Equal(t, []string{"bytes:*1\r\n$4\r\nPI"}, c.got)
}

// A handler that feeds the pipeline from within a command: what it feeds comes behind what is there already.
func TestInputFromWithinACommandComesLast(t *testing.T) {
	for _, size := range []int{1 << 20, 10} {
		ch, c, _ := commandChannel(t, Config{})
		c.then = func(ctx *pipeline.Context, text string) {
			if text == "GET a" {
				ctx.Pipeline().FireRead(buffer.Wrap([]byte(wire("GET", "late"))))
			}
		}
		ch.WriteInboundSplit([]byte(wire("GET", "a")+wire("GET", "b")), size)
		want := []string{"GET a", "GET b", "GET late"}
		if size == 10 {
			want = []string{"GET a", "GET late", "GET b"} // b had not come
		}
		assert.Equal(t, want, c.got, "pieces of %d bytes", size)
		assert.Empty(t, c.errors)
		ch.Finish()
	}
}

func TestOtherMessagesPassADecoder(t *testing.T) {
	ch, c, _ := commandChannel(t, Config{})
	ch.WriteInbound(&Value{Kind: Simple, Bytes: []byte("x")})
	assert.Equal(t, []string{"simple:x"}, c.got)
}

func TestWhatIsHeldIsBounded(t *testing.T) {
	cfg := Config{MaxBulkBytes: 100, MaxMessageBytes: 200}
	for n := 199; n <= 201; n++ {
		ch, c, d := commandChannel(t, cfg)
		ch.Do(ch.Context("app").Pause)
		p := ch.Pipeline() // a handler before the decoder that does not care about the pause
		for range n {
			p.FireRead(buffer.Wrap([]byte("\n")))
		}
		if n <= 200 {
			assert.Empty(t, c.errors)
			assert.Equal(t, n, d.rest.Len())
		} else {
			require.Len(t, c.errors, 1)
			assert.ErrorIs(t, c.errors[0], ErrProtocol)
			assert.Nil(t, d.rest)
		}
		ch.Finish()
	}
}

// The borrowed block may be somebody else's too: its indexes are not the decoder's to move.
func TestABorrowedBufStaysAsItIs(t *testing.T) {
	ch, c, _ := commandChannel(t, Config{})
	b := buffer.Wrap([]byte(wire("GET", "a") + wire("GET", "b") + "*1\r\n"))
	before := bytes.Clone(b.Bytes())
	ch.Do(func() { ch.Pipeline().FireRead(b) })
	assert.Equal(t, []string{"GET a", "GET b"}, c.got)
	assert.Equal(t, before, b.Bytes())
}

func TestADecoderKeepsNoReferenceToItsInput(t *testing.T) {
	ch, c, d := commandChannel(t, Config{})
	ch.WriteInbound(wire("GET", "k"))
	require.Len(t, c.got, 1)
	args := d.parser.(*CommandParser).cmd.Args
	for _, a := range args[:cap(args)] {
		assert.Nil(t, a)
	}
}

func TestAHandlerThatPanicsLeavesNoMemoryBehind(t *testing.T) {
	for _, cut := range []int{0, 6} {
		ch, c, _ := commandChannel(t, Config{})
		c.then = func(*pipeline.Context, string) { panic("no") }
		in := wire("PING") + wire("PING")
		if cut > 0 {
			ch.WriteInbound(in[:cut])
		}
		ch.WriteInbound(in[cut:])
		assert.ErrorIs(t, ch.TakeError(), channel.ErrPanic)
		ch.Finish()
	}
}

func TestValueDecoderMakesValuesOfAnySplit(t *testing.T) {
	in := "+OK\r\n$5\r\nhello\r\n-ERR no\r\n*1\r\n:1\r\n"
	for _, size := range []int{1, 2, 5, 1 << 20} {
		d, err := NewValueDecoder(Config{})
		require.NoError(t, err)
		c := &collector{}
		ch := pipelinetest.New(t, d, c)
		ch.WriteInboundSplit([]byte(in), size)
		assert.Equal(t, []string{"simple:OK", "bulk:hello", "error:ERR no", "array:"}, c.got)
		ch.Finish()
	}
}

func TestDecodingAllocatesNothingPerCommand(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds remember where each Buf came from")
	}
	ch, c, _ := commandChannel(t, Config{})
	count := 0
	ch.Do(func() {
		_, err := ch.Pipeline().Replace("app", "app", counter{&count})
		assert.NoError(t, err)
	})
	whole := buffer.Wrap([]byte(strings.Repeat(wire("SET", "key:000001", "value")+wire("GET", "key:000001"), 8)))
	first, second := buffer.Wrap(whole.Bytes()[:301]), buffer.Wrap(whole.Bytes()[301:])
	p := ch.Pipeline()
	assert.Zero(t, testing.AllocsPerRun(100, func() { p.FireRead(whole) }), "whole commands")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.FireRead(first)
		p.FireRead(second)
	}), "a command that is cut")
	assert.Equal(t, 101*16*2, count)
	assert.Empty(t, c.errors)
}

type counter struct{ n *int }

func (c counter) ChannelRead(*pipeline.Context, any) error {
	*c.n++
	return nil
}

// A bulk string of n bytes in small pieces costs copies of O(n) bytes in all: blocks double.
func TestALargeBulkGrowsByDoubling(t *testing.T) {
	ch, c, d := commandChannel(t, Config{})
	const size = 1 << 20
	in := []byte(wire("SET", "k", strings.Repeat("x", size)))
	grown, last := 0, 0
	for piece := range bytesChunks(in, 1000) {
		ch.WriteInbound(piece)
		if d.rest != nil && d.rest.Cap() != last {
			grown, last = grown+1, d.rest.Cap()
			assert.LessOrEqual(t, last, max(2048, 4*d.rest.Len()), "memory follows what was received")
		}
	}
	require.Len(t, c.got, 1)
	assert.Len(t, c.got[0], size+6)
	assert.Less(t, grown, 14)
}

func bytesChunks(b []byte, n int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			k := min(n, len(b))
			if !yield(b[:k]) {
				return
			}
			b = b[k:]
		}
	}
}

func TestAStreamThatEndsInsideAMessageIsTold(t *testing.T) {
	for _, in := range []string{"$5\r\nhel", "*2\r\n:1\r\n", "+O", "$-", "$5\r\nhello\r"} {
		c := &collector{}
		d, err := NewValueDecoder(Config{})
		require.NoError(t, err)
		ch := pipelinetest.New(t, d, c)
		ch.WriteInbound(":1\r\n" + in)
		ch.PeerClose()
		assert.Equal(t, []string{"integer:", "end"}, c.got, in)
		require.Len(t, c.errors, 1, in)
		require.ErrorIs(t, c.errors[0], codec.ErrTruncated, in)
		assert.Contains(t, c.errors[0].Error(), fmt.Sprintf("after %d bytes", len(in)))
	}
	ch, c, _ := commandChannel(t, Config{})
	ch.WriteInbound(wire("GET", "k") + "*1\r\n$4")
	ch.PeerClose()
	assert.Equal(t, []string{"GET k", "end"}, c.got)
	require.Len(t, c.errors, 1)
	assert.ErrorIs(t, c.errors[0], codec.ErrTruncated)

	ch, c, _ = commandChannel(t, Config{})
	ch.WriteInbound(wire("GET", "k"))
	ch.PeerClose()
	assert.Equal(t, []string{"GET k", "end"}, c.got)
	assert.Empty(t, c.errors, "between two messages is where streams end")
}

func TestTheEndOfTheStreamWaitsForWhatAPauseHoldsBack(t *testing.T) {
	for _, last := range []string{"PING\r\n", "*x\r\n", ""} {
		ch, c, d := commandChannel(t, Config{})
		c.then = func(ctx *pipeline.Context, name string) { ctx.Pause() }
		ch.WriteInbound(wire("GET", "k") + wire("GET", "l") + last)
		// A handler before may pass the end on although reading is paused.
		ch.Do(func() { assert.NoError(t, d.ChannelReadClosed(ch.Context("resp"))) })
		assert.Equal(t, []string{"GET k"}, c.take())
		ch.Do(ch.Context("app").Resume)
		assert.Equal(t, []string{"GET l"}, c.take())
		c.then = nil
		ch.Do(ch.Context("app").Resume)
		want := []string{"PING", "end"}
		if last != "PING\r\n" {
			want = []string{"end"}
		}
		assert.Equal(t, want, c.take())
		assert.Equal(t, last == "*x\r\n", len(c.errors) == 1 && errors.Is(c.errors[0], ErrProtocol))
	}
}

func TestADecoderThatIsTakenOutAtTheEndLeavesItToItsSuccessor(t *testing.T) {
	ch, c, d := commandChannel(t, Config{})
	c.then = func(ctx *pipeline.Context, name string) { ctx.Pause() }
	ch.WriteInbound(wire("GET", "k") + "rest")
	ch.Do(func() { assert.NoError(t, d.ChannelReadClosed(ch.Context("resp"))) })
	c.then = nil
	ch.Do(func() {
		_, err := ch.Pipeline().Remove("resp")
		assert.NoError(t, err)
	})
	assert.Equal(t, []string{"GET k", "bytes:rest", "end"}, c.got)
	assert.Empty(t, c.errors)
}

func TestADecoderIsForOneChannel(t *testing.T) {
	d := newCommandDecoder(t, Config{})
	pipelinetest.New(t, d)
	ch := pipelinetest.New(t)
	ch.Do(func() { assert.ErrorIs(t, ch.Pipeline().AddLast("again", d), codec.ErrReused) })
	assert.ErrorIs(t, ch.TakeError(), codec.ErrReused)
}
