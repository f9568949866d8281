package main

import (
	"encoding/binary"

	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/pipeline"
)

// newDecoder returns weir's own framer for the frames of the bench: it fires the payload of each.
func newDecoder() (*codec.Framer, error) {
	return codec.NewLengthField(codec.LengthFieldConfig{
		Width: frame.HeaderBytes, Strip: frame.HeaderBytes, MaxBytes: frame.HeaderBytes + frame.MaxPayloadBytes,
	})
}

// answer answers each payload by a frame. It belongs to its channel's loop.
type answer struct {
	pressure
	header [frame.HeaderBytes]byte
}

// ChannelRead borrows msg until return.
func (a *answer) ChannelRead(ctx *pipeline.Context, msg any) error {
	payload := msg.(*buffer.Buf).Bytes()
	binary.BigEndian.PutUint32(a.header[:], uint32(len(payload)))
	return ctx.WriteBytes(a.header[:], payload)
}
