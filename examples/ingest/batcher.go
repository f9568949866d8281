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
	// frameOverheadBytes is what a frame of a batch costs at most beside its bytes: its end, and what its line adds. So
	// the level does not rise any more when the batch becomes lines, however short the frames are.
	frameOverheadBytes = 8 + decode.OverheadBytes
)

// batch is a number of frames of one client that are decoded together: a task for each line of sixty bytes would cost
// more than the line.
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

// batcher puts the frames of one read into batches of about maxBytes. From here on they count at the level: whoever
// looks behind a frame knows whether there is room for the next. It belongs to its channel's loop.
type batcher struct {
	batches  *batches
	level    *watermark.Shared
	maxBytes int
	now      *batch         // nil between reads: an idle client holds none
	timer    pipeline.Timer // made with the first resume
}

var (
	_ pipeline.ReadHandler         = (*batcher)(nil)
	_ pipeline.ReadCompleteHandler = (*batcher)(nil)
	_ pipeline.ReadClosedHandler   = (*batcher)(nil)
	_ pipeline.ResumeHandler       = (*batcher)(nil)
	_ pipeline.InactiveHandler     = (*batcher)(nil)
	_ pipeline.ShutdownHandler     = (*batcher)(nil)
)

// ChannelRead copies a frame. It borrows msg until return.
func (b *batcher) ChannelRead(ctx *pipeline.Context, msg any) error {
	frame, ok := msg.(*buffer.Buf)
	if !ok {
		ctx.FireRead(msg)
		return nil
	}
	if b.now == nil {
		b.now = b.batches.get()
	}
	b.now.add(frame.Bytes())
	b.level.Add(int64(frame.Len() + frameOverheadBytes))
	if b.now.size() >= b.maxBytes {
		b.pass(ctx)
	}
	return nil
}

// ChannelReadComplete passes on what the read has brought.
func (b *batcher) ChannelReadComplete(ctx *pipeline.Context) error {
	b.pass(ctx)
	ctx.FireReadComplete()
	return nil
}

// ChannelReadClosed passes on what is left.
func (b *batcher) ChannelReadClosed(ctx *pipeline.Context) error {
	b.pass(ctx)
	ctx.FireReadClosed()
	return nil
}

// ChannelResume comes before the framer goes on with what it holds, and behind that comes no ReadComplete.
func (b *batcher) ChannelResume(ctx *pipeline.Context) error {
	if b.timer == nil {
		b.timer = ctx.NewTimer(func(ctx *pipeline.Context) error {
			b.pass(ctx)
			return nil
		})
	}
	b.timer.Reset(time.Nanosecond)
	return nil
}

// ChannelShutdown passes on what is left.
func (b *batcher) ChannelShutdown(ctx *pipeline.Context) error {
	b.pass(ctx)
	ctx.FireShutdown()
	return nil
}

// ChannelInactive passes on what is left of a connection that broke.
func (b *batcher) ChannelInactive(ctx *pipeline.Context) error {
	b.pass(ctx)
	ctx.FireInactive()
	return nil
}

// pass gives the batch away.
func (b *batcher) pass(ctx *pipeline.Context) {
	if full := b.now; full != nil {
		b.now = nil
		ctx.FireRead(full)
	}
}
