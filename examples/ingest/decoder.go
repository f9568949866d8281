package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weirnet/weir/examples/ingest/internal/decode"
	"github.com/weirnet/weir/handlers/offload"
	"github.com/weirnet/weir/pipeline"
)

// decoder makes lines of the batches of one client and queues them at the sink, in the order in which they came. It
// belongs to the channel's loop, but for work.
type decoder struct {
	listener *listener
	from     string   // who the client is
	flight   []*batch // that are being decoded, oldest first
}

// newDecoder returns the handler around a decoder.
func newDecoder(l *listener, from net.Addr) (*offload.Handler[*batch, *batch, *batch], error) {
	d := &decoder{listener: l, from: from.String()}
	return offload.New(l.pool, offload.Config[*batch, *batch, *batch]{
		Detach: d.detach, Work: d.work, Done: d.done, MaxInFlight: l.maxInFlight,
	})
}

// detach takes a batch over from the batcher.
func (d *decoder) detach(b *batch) (*batch, int) {
	d.flight = append(d.flight, b)
	return b, b.size()
}

// work runs on a goroutine of the pool.
func (d *decoder) work(_ context.Context, b *batch) (*batch, error) {
	b.out, b.malformed = d.lines(b.out, b, d.listener.protocol.decoder)
	return b, nil
}

// done queues what a batch has become.
func (d *decoder) done(ctx *pipeline.Context, _ *batch, err error) error {
	b := d.flight[0]
	d.flight[0] = nil
	d.flight = d.flight[1:]
	var out []byte
	var malformed int
	var panicked *offload.PanicError
	switch {
	case errors.As(err, &panicked):
		d.listener.logger.Error("decoder panicked; its frames are kept as they are", "error", panicked)
		out, malformed = d.lines(nil, b, unknown{})
	case err != nil:
		// The channel was closed before this batch had its turn. What was received counts all the same; work may still
		// be running, so it is done again, elsewhere.
		out, malformed = d.lines(nil, b, d.listener.protocol.decoder)
	default:
		out, malformed = b.out, b.malformed // work is over, and only now they may be looked at
	}
	l, frames := d.listener, len(b.ends)
	put := l.queue.Put(out, frames)
	l.level.Add(-int64(b.size()))
	if put == nil {
		l.counters.queued.Add(uint64(frames))
		l.counters.malformed.Add(uint64(malformed))
	} else {
		l.counters.lost.Add(uint64(frames))
	}
	if err == nil {
		l.batches.put(b) // and somebody else may have it
	}
	if put != nil && ctx.Open() {
		return fmt.Errorf("ingest: %d frames lost: %w", frames, put)
	}
	return nil
}

// lines appends the lines of a batch and returns how many frames were not understood.
func (d *decoder) lines(dst []byte, b *batch, dec decode.Decoder) ([]byte, int) {
	line := decode.NewLine(dec, time.Now(), d.from)
	line.Unescaped = d.listener.unescaped
	malformed := 0
	b.frames(func(frame []byte) {
		var ok bool
		if dst, ok = line.Append(dst, frame); !ok {
			malformed++
		}
	})
	return dst, malformed
}

// unknown is the decoder of what makes the real one panic.
type unknown struct{}

func (unknown) Append(dst, _ []byte) ([]byte, error) {
	return dst, fmt.Errorf("%w: cannot be decoded", decode.ErrMalformed)
}
