package main

import (
	"encoding/binary"

	"github.com/weirnet/weir/bench/internal/frame"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// decoder fires the payload of each frame. Until weir has a length-field decoder of its own, this one does what such a
// decoder has to do: views into the receive buffer for whole frames, a buffer of its own for one that comes in pieces, and
// nothing is fired while reading is paused. It belongs to its channel's loop.
type decoder struct {
	rest *buffer.Buf // the beginning of a frame, and what was held back; nil when there is none
	view buffer.Buf  // lent to the next handler
}

var (
	_ pipeline.ReadHandler    = (*decoder)(nil)
	_ pipeline.ResumeHandler  = (*decoder)(nil)
	_ pipeline.RemovedHandler = (*decoder)(nil)
)

// ChannelRead borrows msg until return.
func (d *decoder) ChannelRead(ctx *pipeline.Context, msg any) error {
	in := msg.(*buffer.Buf)
	if d.rest != nil {
		d.rest.Append(in.Bytes())
		return d.resume(ctx)
	}
	taken, missing, err := d.fire(ctx, in)
	if rest := in.Bytes()[taken:]; err == nil && len(rest) > 0 {
		d.rest = ctx.Pool().Get(len(rest) + missing)
		d.rest.Append(rest)
	}
	return err
}

// ChannelResume goes on with what was held back.
func (d *decoder) ChannelResume(ctx *pipeline.Context) error {
	if d.rest == nil {
		return nil
	}
	return d.resume(ctx)
}

// HandlerRemoved gives up what was held back.
func (d *decoder) HandlerRemoved(*pipeline.Context) error {
	d.drop()
	return nil
}

func (d *decoder) resume(ctx *pipeline.Context) error {
	rest := d.rest
	taken, missing, err := d.fire(ctx, rest)
	if d.rest == nil { // removed meanwhile
		return err
	}
	rest.Advance(taken)
	switch {
	case err != nil || rest.Len() == 0:
		d.drop()
	case missing > 0:
		rest.Reserve(missing)
	}
	return err
}

// fire borrows in until return. It fires the whole frames at its front, as long as reading is on, and answers how many
// bytes they were and how many the next one lacks, as far as is known.
func (d *decoder) fire(ctx *pipeline.Context, in *buffer.Buf) (taken, missing int, err error) {
	all := in.Bytes()
	for ctx.Reading() {
		n, whole, err := frame.Length(all[taken:])
		if err != nil {
			return taken, 0, err
		}
		if !whole {
			return taken, max(frame.HeaderBytes+n-(len(all)-taken), 0), nil
		}
		ctx.FireRead(in.Scratch(&d.view, taken+frame.HeaderBytes, n))
		taken += frame.HeaderBytes + n
	}
	return taken, 0, nil
}

func (d *decoder) drop() {
	if d.rest != nil {
		d.rest.Release()
		d.rest = nil
	}
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
