package pipeline_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// caseIDs names the cases that this package is tested on: values taken from the behaviour that Netty's own tests pin
// down (DefaultChannelPipelineTest, ChannelOutboundBufferTest, ReentrantChannelTest), each with a test of ours or the
// reason why we differ.
var caseIDs = []string{
	"netty-222", "netty-223", "netty-225", "netty-226", "netty-227", "netty-229", "netty-233", "netty-234", "netty-235",
	"netty-236", "netty-237", "netty-238", "netty-239", "netty-240", "netty-242", "netty-243", "netty-244", "netty-246",
	"netty-248",
}

// cases maps ids to tests. Where why is set, our contract differs on purpose, and the test, if there is one, shows what
// holds instead.
var cases = map[string]struct {
	run func(t *testing.T)
	why string
}{
	"netty-222": {run: caseOneSay},
	"netty-223": {run: caseTwoSays},
	"netty-225": {why: "a write that was accepted cannot be cancelled: inside a byte stream nothing is left out"},
	"netty-226": {
		run: caseManySmallWrites,
		why: "small writes are joined, so 64 of them are not 64 pieces; " +
			"how many pieces go to the kernel is the channel's business",
	},
	"netty-227": {why: "messages have no parts; the channel bounds the pieces of one send itself"},
	"netty-229": {run: caseDistanceToWatermarks},
	"netty-233": {
		run: caseFlushFailsAndErrorCaughtCloses,
		why: "Close is orderly and sends what is queued, so a write before it succeeds; Abort fails it",
	},
	"netty-234": {run: func(t *testing.T) { caseLeftovers(t, []string{"h1"}, "h2", "", "8", "") }},
	"netty-235": {run: func(t *testing.T) { caseLeftovers(t, []string{"h2"}, "", "h1", "", "8") }},
	"netty-236": {run: caseReplaceForwards},
	"netty-237": {run: func(t *testing.T) { caseLeftovers(t, []string{"h2"}, "h3", "h1", "8", "8") }},
	"netty-238": {run: caseRemovedTailToHeadOnClose},
	"netty-239": {run: caseAddedFails},
	"netty-240": {run: caseRemovedFails},
	"netty-242": {run: caseDuplicateName},
	"netty-243": {run: caseRemoveUnknown},
	"netty-244": {
		run: caseRemoveUnknown,
		why: "there is one Remove, which returns ErrNoHandler; who does not mind ignores it",
	},
	"netty-246": {run: caseErrorInsideErrorHandling},
	"netty-248": {
		run: caseWriteRefusedLeavesOwnership,
		why: "there are no promises to mix up, and a write that is refused leaves the buffer to its owner",
	},
}

func TestCases(t *testing.T) {
	ran := map[string]bool{}
	for _, id := range caseIDs {
		c, ok := cases[id]
		if !ok || c.run == nil && c.why == "" {
			t.Errorf("%s has neither a test nor a reason", id)
			continue
		}
		if c.run == nil {
			ran[id] = true
			continue
		}
		t.Run(id, func(t *testing.T) {
			c.run(t)
			ran[id] = true
		})
	}
	for id := range cases {
		assert.Contains(t, caseIDs, id)
	}
	if f := flag.Lookup("test.run"); f == nil || !strings.Contains(f.Value.String(), "/") {
		assert.Len(t, ran, len(caseIDs), "each case ran")
	}
}

// writabilityLog is a channel that notes what its handlers are told about Writable.
func writabilityLog(t *testing.T) (ch *pipelinetest.Channel, told *[]bool) {
	told = new([]bool)
	ch = pipelinetest.NewConfig(t, pipelinetest.Config{WriteLowBytes: 128, WriteHighBytes: 256},
		pipelinetest.Named("1", pass{}), pipelinetest.Named("2", pass{}),
		onWritability(func(ctx *pipeline.Context) error {
			*told = append(*told, ctx.Writable())
			return nil
		}))
	return ch, told
}

func caseOneSay(t *testing.T) {
	ch, told := writabilityLog(t)
	ch.Do(func() { ch.Context("1").SetWritable(false) })
	ch.Do(func() { ch.Context("1").SetWritable(true) })
	assert.Equal(t, []bool{false, true}, *told)
}

func caseTwoSays(t *testing.T) {
	ch, told := writabilityLog(t)
	for i, step := range []struct {
		who  string
		say  bool
		want []bool
	}{
		{"1", false, []bool{false}},
		{"2", false, []bool{false}},
		{"1", true, []bool{false}},
		{"2", true, []bool{false, true}},
	} {
		ch.Do(func() { ch.Context(step.who).SetWritable(step.say) })
		assert.Equal(t, step.want, *told, "step %d", i)
	}
}

func caseManySmallWrites(t *testing.T) {
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{Manual: true}, pipelinetest.Named("app", &sink{}))
	want := ""
	for i := range 64 {
		piece := strings.Repeat(string(rune('0'+i)), 4)
		want += piece
		require.NoError(t, ch.Context("app").Write(piece))
	}
	assert.Empty(t, ch.Outbound(), "nothing leaves before the flush")
	require.NoError(t, ch.Context("app").Flush())
	assert.Equal(t, want, ch.OutboundString())
}

func caseDistanceToWatermarks(t *testing.T) {
	const high, low = 65536, 32768
	ch := pipelinetest.NewConfig(t, pipelinetest.Config{WriteHighBytes: high, WriteLowBytes: low})
	for _, step := range []struct {
		pending  int
		writable bool
	}{
		{high - 1, true},
		{high, true}, // one byte before unwritable
		{high + 1, false},
		{low + 1, false},
		{low, false},
		{low - 1, true},
		{high, true},
	} {
		ch.SetPending(step.pending)
		assert.Equal(t, step.writable, ch.Writable(), "pending %d", step.pending)
	}
}

func caseFlushFailsAndErrorCaughtCloses(t *testing.T) {
	for _, end := range []struct {
		name  string
		close func(ctx *pipeline.Context)
		ops   []string
		sent  int
		err   error
	}{
		{
			"close", func(ctx *pipeline.Context) { assert.NoError(t, ctx.Close()) },
			[]string{"send 2000", "close-write", "close"},
			2000, nil,
		},
		{
			"abort", func(ctx *pipeline.Context) { ctx.Abort(nil) },
			[]string{"reset"},
			0, pipeline.ErrClosed,
		},
	} {
		t.Run(end.name, func(t *testing.T) {
			var flushed []error
			ch := pipelinetest.New(t,
				onFlush(func(*pipeline.Context) error { return errTest }),
				struct {
					onRead
					onError
				}{
					func(ctx *pipeline.Context, _ any) error {
						if err := ctx.Write(make([]byte, 2000)); err != nil {
							return err
						}
						ctx.Flushed(func(err error) { flushed = append(flushed, err) })
						return ctx.Flush()
					},
					func(ctx *pipeline.Context, err error) error {
						assert.Equal(t, errTest, err)
						end.close(ctx)
						return nil
					},
				})
			ch.Operations()
			ch.WriteInbound("go")
			assert.Equal(t, end.ops, ch.Operations())
			assert.Len(t, ch.Outbound(), end.sent)
			require.Len(t, flushed, 1)
			assert.ErrorIs(t, flushed[0], end.err)
			assert.True(t, ch.Closed())
			ch.TakeError() // the flush of the closing channel fails as well
		})
	}
}

// keeper keeps what passes and gives it on when it leaves.
type keeper struct {
	in, out []any
}

func (k *keeper) ChannelRead(_ *pipeline.Context, msg any) error {
	k.in = append(k.in, msg)
	return nil
}

func (k *keeper) Write(_ *pipeline.Context, msg any) error {
	k.out = append(k.out, msg)
	return nil
}

func (k *keeper) HandlerRemoved(ctx *pipeline.Context) error {
	for _, m := range k.in {
		ctx.FireRead(m)
	}
	for _, m := range k.out {
		if err := ctx.Write(m); err != nil {
			return err
		}
	}
	return nil
}

// caseLeftovers removes a handler of h1, h2, h3 that holds 8 in each direction and looks at its neighbours.
func caseLeftovers(t *testing.T, leave []string, inboundAt, outboundAt, inbound, outbound string) {
	hs := map[string]*keeper{"h1": {}, "h2": {}, "h3": {}}
	ch := newBare()
	for _, name := range []string{"h1", "h2", "h3"} {
		require.NoError(t, ch.pipe.AddLast(name, hs[name]))
	}
	for _, name := range leave {
		if inbound != "" {
			hs[name].in = []any{inbound}
		}
		if outbound != "" {
			hs[name].out = []any{outbound}
		}
		_, err := ch.pipe.Remove(name)
		require.NoError(t, err)
	}
	if inboundAt != "" {
		assert.Equal(t, []any{inbound}, hs[inboundAt].in)
	}
	if outboundAt != "" {
		assert.Equal(t, []any{outbound}, hs[outboundAt].out)
	}
}

func caseReplaceForwards(t *testing.T) {
	h1, h2 := &keeper{in: []any{8}, out: []any{8}}, &keeper{}
	ch := newBare()
	require.NoError(t, ch.pipe.AddLast("h1", h1))
	got, err := ch.pipe.Replace("h1", "h2", h2)
	require.NoError(t, err)
	assert.Same(t, h1, got)
	assert.Equal(t, []any{8}, h2.in)
	assert.Equal(t, []any{8}, h2.out)
}

func caseRemovedTailToHeadOnClose(t *testing.T) {
	var log journal
	var handlers []any
	for _, name := range []string{"1", "2", "3", "4"} {
		handlers = append(handlers, onRemoved(func(*pipeline.Context) error {
			log.add("%s", name)
			return nil
		}))
	}
	ch := pipelinetest.New(t, handlers...)
	ch.Close()
	assert.Equal(t, journal{"4", "3", "2", "1"}, log)
}

func caseAddedFails(t *testing.T) {
	var caught error
	removed := 0
	ch := newBare(onError(func(_ *pipeline.Context, err error) error { caught = err; return nil }))
	err := ch.pipe.AddLast("h", struct {
		onAdded
		onRemoved
	}{
		func(*pipeline.Context) error { return errTest },
		func(*pipeline.Context) error { removed++; return nil },
	})
	require.ErrorIs(t, err, errTest)
	assert.Nil(t, ch.pipe.Get("h"))
	assert.Equal(t, 1, removed)
	assert.ErrorIs(t, caught, errTest)
	assert.NotEqual(t, errTest, caught, "it says what failed")
}

func caseRemovedFails(t *testing.T) {
	var caught error
	ch := newBare()
	require.NoError(t, ch.pipe.AddLast("h", onRemoved(func(*pipeline.Context) error { return errTest })))
	keep := onError(func(_ *pipeline.Context, err error) error { caught = err; return nil })
	require.NoError(t, ch.pipe.AddLast("e", keep))
	_, err := ch.pipe.Remove("h")
	require.NoError(t, err)
	assert.ErrorIs(t, caught, errTest)
}

func caseDuplicateName(t *testing.T) {
	ch := newBare()
	require.NoError(t, ch.pipe.AddLast("a", pass{}))
	assert.ErrorIs(t, ch.pipe.AddLast("a", &sink{}), pipeline.ErrDuplicateName)
}

func caseRemoveUnknown(t *testing.T) {
	ch := newBare(pass{})
	h, err := ch.pipe.Remove("absent")
	assert.Nil(t, h)
	assert.ErrorIs(t, err, pipeline.ErrNoHandler)
	assert.Equal(t, []string{"pass"}, ch.pipe.Names())
}

func caseErrorInsideErrorHandling(t *testing.T) {
	calls := 0
	ch := pipelinetest.New(t,
		onError(func(ctx *pipeline.Context, _ error) error {
			ctx.FireReadComplete()
			return nil
		}),
		struct {
			onReadComplete
			onError
		}{
			func(*pipeline.Context) error { return errTest },
			func(_ *pipeline.Context, err error) error { calls++; return err },
		})
	ch.Do(func() { ch.Pipeline().FireError(errTest) })
	assert.Equal(t, 1, calls)
	assert.ErrorIs(t, ch.TakeError(), errTest)
}

func caseWriteRefusedLeavesOwnership(t *testing.T) {
	refuse := onWrite(func(*pipeline.Context, any) error { return errTest })
	ch := pipelinetest.New(t, refuse, pipelinetest.Named("app", &sink{}))
	b := ch.Loop().Pool().Get(8)
	b.AppendString("x")
	assert.Equal(t, errTest, ch.Context("app").Write(b))
	var again buffer.Buf
	assert.Equal(t, "x", string(b.Scratch(&again, 0, 1).Bytes()))
	b.Release()
	assert.Zero(t, ch.Loop().Pool().Outstanding())
}
