package main

import (
	"errors"

	"github.com/weirnet/weir/handlers/watermark"
	"github.com/weirnet/weir/pipeline"
)

// addHandlers makes p the pipeline of one client. What a client sends passes them in this order.
func (l *listener) addHandlers(p *pipeline.Pipeline) error {
	// Reading pauses while the sink's queue, which all clients share, is too full; each read reserves its room there.
	level, err := watermark.New(l.watermark)
	if err != nil {
		return err
	}
	// Bytes become frames: lines, counted messages, messages behind their length.
	framer, err := l.protocol.framer(l.maxFrameBytes)
	if err != nil {
		return err
	}
	// Frames become lines of JSON on the goroutines of a pool, and go on into the sink's queue from the loop, in order.
	decoder, err := newDecoder(l, p.RemoteAddr())
	if err != nil {
		return err
	}
	err = errors.Join(
		p.AddLast("watermark", level),
		p.AddLast("drainer", l.newDrainer()), // on shutdown, reads what has come
		p.AddLast("framer", framer),
	)
	if l.lossy { // reading goes on; whole frames are dropped, and counted
		err = errors.Join(err, p.AddLast("gate", watermark.NewDropGate(level)))
	} else { // the framer stops at the frame with which the level is full
		err = errors.Join(err, p.AddLast("probe", watermark.NewProbe(level)))
	}
	return errors.Join(
		err,
		// the frames of a read travel together
		p.AddLast("batcher", &batcher{batches: l.batches, level: l.level, maxBytes: l.batchBytes}),
		p.AddLast("decoder", decoder),
		p.AddLast("client", &client{listener: l}), // counts, and says why it ended
	)
}
