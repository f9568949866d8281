//go:build linux

package fieldtest

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// hooks is a handler out of functions. Where one is nil, the event goes on to the next handler.
type hooks struct {
	active, inactive, readClosed, writability, shutdown func(ctx *pipeline.Context) error
	read                                                func(ctx *pipeline.Context, b *buffer.Buf) error
}

func (h *hooks) ChannelActive(ctx *pipeline.Context) error {
	return or(h.active, ctx, (*pipeline.Context).FireActive)
}

func (h *hooks) ChannelInactive(ctx *pipeline.Context) error {
	return or(h.inactive, ctx, (*pipeline.Context).FireInactive)
}

func (h *hooks) ChannelReadClosed(ctx *pipeline.Context) error {
	return or(h.readClosed, ctx, (*pipeline.Context).FireReadClosed)
}

func (h *hooks) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	return or(h.writability, ctx, (*pipeline.Context).FireWritabilityChanged)
}

func (h *hooks) ChannelShutdown(ctx *pipeline.Context) error {
	return or(h.shutdown, ctx, (*pipeline.Context).FireShutdown)
}

func (h *hooks) ChannelRead(ctx *pipeline.Context, msg any) error {
	if h.read == nil {
		ctx.FireRead(msg)
		return nil
	}
	return h.read(ctx, msg.(*buffer.Buf))
}

func or(hook func(*pipeline.Context) error, ctx *pipeline.Context, fire func(*pipeline.Context)) error {
	if hook == nil {
		fire(ctx)
		return nil
	}
	return hook(ctx)
}

// ignore is a hook that keeps the event.
func ignore(*pipeline.Context) error { return nil }

// grant is a handler that lets so many bytes be read at a time.
type grant int

func (g grant) ReadGrant(*pipeline.Context) (n int, retry time.Duration) { return int(g), 0 }

// pattern fills p with the bytes of a stream from position at on; streams of different seeds differ everywhere.
func pattern(p []byte, seed uint64, at int) {
	var word [8]byte
	for i := range p {
		k := at + i
		if i == 0 || k%8 == 0 {
			x := (uint64(k/8) + seed<<32) * 0x9e3779b97f4a7c15
			x ^= x >> 29
			x *= 0xbf58476d1ce4e5b9
			binary.LittleEndian.PutUint64(word[:], x^x>>32)
		}
		p[i] = word[k%8]
	}
}

// stream returns the first n bytes of the stream of seed.
func stream(seed uint64, n int) []byte {
	p := make([]byte, n)
	pattern(p, seed, 0)
	return p
}

// between returns a random number of low … high.
func between(rnd *rand.Rand, low, high int) int { return low + rnd.IntN(high-low+1) }
