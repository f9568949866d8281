package main

import (
	"sync"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/examples/ingest/internal/decode"
	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

const (
	// maxKeptBytes is how much memory of a batch is kept for the next one.
	maxKeptBytes = 256 << 10
	// frameOverheadBytes is what a frame of a batch costs at most beside its bytes: its end, and what its line adds. So the
	// level does not rise any more when the batch becomes lines, however short the frames are.
	frameOverheadBytes = 8 + decode.OverheadBytes
)

// batch is a number of frames of one client that are decoded together: a task for each line of sixty bytes would cost more
// than the line.
type batch struct {
	bytes []byte
	ends  []int // of the frames in bytes

	out       []byte // what the decoder made of them
	malformed int
}

func (b *batch) add(frame []byte) {
	b.bytes = append(b.bytes, frame...)
	b.ends = append(b.ends, len(b.bytes))
}

// size is the memory that b, or the lines that it becomes, need.
func (b *batch) size() int { return len(b.bytes) + len(b.ends)*frameOverheadBytes }

// Len is the number of bytes, for the pool.
func (b *batch) Len() int { return b.size() }

// frames calls fn with each frame.
func (b *batch) frames(fn func(frame []byte)) {
	start := 0
	for _, end := range b.ends {
		fn(b.bytes[start:end])
		start = end
	}
}

// batches is the memory of batches that are not in use. Any goroutine.
type batches struct{ pool sync.Pool }

func (p *batches) get() *batch {
	if b, ok := p.pool.Get().(*batch); ok {
		return b
	}
	return &batch{}
}

func (p *batches) put(b *batch) {
	if cap(b.bytes)+cap(b.out) > maxKeptBytes {
		return
	}
	b.bytes, b.ends, b.out, b.malformed = b.bytes[:0], b.ends[:0], b.out[:0], 0
	p.pool.Put(b)
}

// gather puts the frames of one read into batches of about maxBytes. From here on they count at the level: whoever looks
// behind a frame knows whether there is room for the next. It belongs to its channel's loop.
type gather struct {
	batches  *batches
	level    *watermark.Shared
	maxBytes int
	now      *batch         // nil between reads: an idle client holds none
	timer    pipeline.Timer // made with the first resume
}

var (
	_ pipeline.ReadHandler         = (*gather)(nil)
	_ pipeline.ReadCompleteHandler = (*gather)(nil)
	_ pipeline.ReadClosedHandler   = (*gather)(nil)
	_ pipeline.ResumeHandler       = (*gather)(nil)
	_ pipeline.InactiveHandler     = (*gather)(nil)
	_ pipeline.ShutdownHandler     = (*gather)(nil)
)

// ChannelRead copies a frame. It borrows msg until return.
func (g *gather) ChannelRead(ctx *pipeline.Context, msg any) error {
	frame, ok := msg.(*buffer.Buf)
	if !ok {
		ctx.FireRead(msg)
		return nil
	}
	if g.now == nil {
		g.now = g.batches.get()
	}
	g.now.add(frame.Bytes())
	g.level.Add(int64(frame.Len() + frameOverheadBytes))
	if g.now.size() >= g.maxBytes {
		g.pass(ctx)
	}
	return nil
}

// ChannelReadComplete passes on what the read has brought.
func (g *gather) ChannelReadComplete(ctx *pipeline.Context) error {
	g.pass(ctx)
	ctx.FireReadComplete()
	return nil
}

// ChannelReadClosed passes on what is left.
func (g *gather) ChannelReadClosed(ctx *pipeline.Context) error {
	g.pass(ctx)
	ctx.FireReadClosed()
	return nil
}

// ChannelResume comes before the framer goes on with what it holds, and behind that comes no ReadComplete.
func (g *gather) ChannelResume(ctx *pipeline.Context) error {
	if g.timer == nil {
		g.timer = ctx.NewTimer(func(ctx *pipeline.Context) error {
			g.pass(ctx)
			return nil
		})
	}
	g.timer.Reset(time.Nanosecond)
	return nil
}

// ChannelShutdown passes on what is left.
func (g *gather) ChannelShutdown(ctx *pipeline.Context) error {
	g.pass(ctx)
	ctx.FireShutdown()
	return nil
}

// ChannelInactive passes on what is left of a connection that broke.
func (g *gather) ChannelInactive(ctx *pipeline.Context) error {
	g.pass(ctx)
	ctx.FireInactive()
	return nil
}

// pass gives the batch away.
func (g *gather) pass(ctx *pipeline.Context) {
	if b := g.now; b != nil {
		g.now = nil
		ctx.FireRead(b)
	}
}
