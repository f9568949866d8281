package watermark

import (
	"slices"

	"github.com/weirnet/weir/flow"
)

// Input is a level of the same loop that a Handler watches beside its own: a flow.Level of a queue, or what is pending
// on the other side of a proxy. While it is high, so is the Handler. It belongs to the Handler's loop.
type Input struct {
	h    *Handler
	from *Handler // whom it follows
	high bool
}

// NewInput returns an Input of h that is not high.
func (h *Handler) NewInput() *Input { return &Input{h: h} }

// Tell follows what a flow.Level's Set or Add returns.
func (in *Input) Tell(c flow.Crossing) {
	if c != flow.Stayed {
		in.Set(c == flow.Rose)
	}
}

// Set says whether it is high.
func (in *Input) Set(high bool) {
	if in.high == high {
		return
	}
	in.high = high
	h := in.h
	if high {
		h.inputs++
	} else {
		h.inputs--
	}
	if h.ctx != nil && h.level < OverLimit {
		h.settle(h.ctx.Pending()) // the end of the turn tells: this may be called by another channel
	}
}

// Follow makes h high while what is pending on other's channel is: what h's channel reads goes out there. What is
// pending on its own does not count as long as it follows, but for the hard limit: both directions of a proxy would
// wait for each other when both are full. Both belong to the same loop. It ends with either.
func (h *Handler) Follow(other *Handler) {
	if other.level >= OverLimit || h.level >= OverLimit {
		return
	}
	in := &Input{h: h, from: other}
	other.followers = append(other.followers, in)
	h.follows = append(h.follows, in)
	in.Set(other.own.High())
	if h.ctx != nil {
		h.settle(h.ctx.Pending()) // its own has no say any more
	}
}

// unfollow ends what h follows, and those that follow it.
func (h *Handler) unfollow() {
	h.follow(false)
	for _, in := range h.followers {
		in.h.follows = without(in.h.follows, in)
		if in.h.ctx != nil && in.h.level < OverLimit {
			in.h.settle(in.h.ctx.Pending()) // its own has a say again
		}
	}
	for _, in := range h.follows {
		in.from.followers = without(in.from.followers, in)
	}
	h.follows, h.followers = nil, nil
}

func without(all []*Input, in *Input) []*Input {
	return slices.DeleteFunc(all, func(other *Input) bool { return other == in })
}

// follow tells those who follow.
func (h *Handler) follow(high bool) {
	for _, in := range h.followers {
		in.Set(high)
	}
}
