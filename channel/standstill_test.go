package channel_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport/sim"
)

// Whoever leaves inside its own watch must not hide the mark from those that watch behind it.
func TestAWatcherThatLeavesInsideItsWatchHidesNoMark(t *testing.T) {
	for name, leave := range map[string]func(ctx *pipeline.Context){
		"ends its watch": func(ctx *pipeline.Context) { ctx.WatchPending(0, 0, nil) },
		"removes itself": func(ctx *pipeline.Context) { _, _ = ctx.Pipeline().Remove(ctx.Name()) },
		"removes all before it": func(ctx *pipeline.Context) {
			_, _ = ctx.Pipeline().Remove("first")
			_, _ = ctx.Pipeline().Remove(ctx.Name())
		},
		"stays": func(*pipeline.Context) {},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, sim.Config{})
			client, _ := stalled(t, p)
			pl := client.ctx.Pipeline()
			told := map[string]int{}
			for _, who := range []string{"first", "leaver", "last"} {
				require.NoError(t, pl.AddLast(who, echo{}))
				pl.Context(who).WatchPending(0, math.MaxInt, func(ctx *pipeline.Context, _ int) error {
					told[who]++
					if who == "leaver" {
						leave(ctx)
					}
					return nil
				})
			}
			p.step()
			for _, who := range []string{"first", "leaver", "last"} { // at the end of each turn that finds it so
				assert.Positive(t, told[who], who)
			}
		})
	}
}

// noGrant is a grant of nothing that nobody asks about again.
type noGrant struct{}

func (noGrant) ReadGrant(*pipeline.Context) (int, time.Duration) { return 0, 0 }

func TestTheGrantOfAHandlerThatIsRemovedGoesWithIt(t *testing.T) {
	p := newPair(t, sim.Config{})
	server := &probe{}
	client := &probe{}
	p.connect([]any{noGrant{}, server}, client)
	p.until("both are active", func() bool { return client.active == 1 && server.active == 1 })
	require.NoError(t, client.ctx.Write("hello"))
	p.run(10 * time.Millisecond)
	require.Empty(t, server.got.String())
	_, err := server.ctx.Pipeline().Remove("noGrant")
	require.NoError(t, err)
	p.until("it has arrived", func() bool { return server.got.String() == "hello" })
}

// politeEcho reads only while what it writes is taken.
type politeEcho struct{ echo }

func (politeEcho) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		ctx.Resume()
	} else {
		ctx.Pause()
	}
	return nil
}

// A close sends what is queued. The peer may read on only while somebody reads what comes back.
func TestCloseReadsWhileItStillSends(t *testing.T) {
	p := newPair(t, sim.Config{SendBufferBytes: 4 << 10, ReceiveBufferBytes: 4 << 10, BlockBytes: 4 << 10})
	p.serverConfig.WriteHighBytes = 16 << 10
	p.clientConfig.CloseDiscardBytes = 64 << 10 // counts from the FIN on
	server := &probe{}
	client := &probe{}
	p.connect([]any{&tee{server}, politeEcho{}}, client)
	p.until("both are active", func() bool { return client.active == 1 })
	sent := randomBytes(7, 300<<10)
	require.NoError(t, client.ctx.Write(sent))
	require.NoError(t, client.ctx.Close())
	p.until("the client is closed", func() bool { return client.inactive == 1 })
	require.NoError(t, client.cause)
	assert.Equal(t, len(sent), server.got.Len())
}

// tee lets a probe see what passes.
type tee struct{ to *probe }

func (h *tee) ChannelRead(ctx *pipeline.Context, msg any) error {
	h.to.got.Write(msg.(*buffer.Buf).Bytes())
	ctx.FireRead(msg)
	return nil
}

// hoard keeps what it gets until reading is resumed, as a decoder does with what it may not emit.
type hoard struct{ kept []*buffer.Buf }

func (h *hoard) ChannelRead(ctx *pipeline.Context, msg any) error {
	h.kept = append(h.kept, msg.(*buffer.Buf).Retain())
	ctx.Pause()
	ctx.NewTimer(func(ctx *pipeline.Context) error { ctx.Resume(); return nil }).Reset(time.Millisecond)
	return nil
}

func (h *hoard) ChannelResume(ctx *pipeline.Context) error {
	for _, b := range h.kept {
		ctx.FireRead(b)
		b.Release()
	}
	h.kept = nil
	return nil
}

// batch counts what it has read when a batch is over, and pauses then where it is told to.
type batch struct {
	probe
	whole  int
	pauses bool
}

func (b *batch) ChannelRead(ctx *pipeline.Context, msg any) error {
	if b.pauses {
		ctx.Pause()
	}
	return b.probe.ChannelRead(ctx, msg)
}

func (b *batch) ChannelReadComplete(*pipeline.Context) error {
	b.whole = b.got.Len()
	return nil
}

func TestWhatIsDecodedInAResumeIsABatch(t *testing.T) {
	for _, pauses := range []bool{false, true} {
		p := newPair(t, sim.Config{})
		server := &batch{pauses: pauses}
		client := &probe{}
		p.connect([]any{&hoard{}, server}, client)
		p.until("the client is active", func() bool { return client.active == 1 })
		require.NoError(t, client.ctx.Write("hello"))
		p.until("it has arrived", func() bool { return server.got.Len() == 5 })
		p.step()
		assert.Equal(t, 5, server.whole, "pauses again: %v", pauses)
	}
}
