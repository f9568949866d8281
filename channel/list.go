package channel

import "slices"

// List is the channels of somebody who keeps account of them, in an order that depends only on who came and went when.
// A channel is in one list at most. It belongs to the loop.
type List struct {
	channels []*Channel
}

// Add puts c into the list; a channel that is in a list already stays where it is.
func (l *List) Add(c *Channel) {
	if c.listed != 0 {
		return
	}
	l.channels = append(l.channels, c)
	c.listed = int32(len(l.channels)) // a loop has less than 2^24 channels
}

// Remove takes c out, if it is in this list.
func (l *List) Remove(c *Channel) {
	i := int(c.listed) - 1
	if i < 0 || i >= len(l.channels) || l.channels[i] != c {
		return
	}
	last := len(l.channels) - 1
	l.channels[i] = l.channels[last]
	l.channels[i].listed = int32(i) + 1
	l.channels[last] = nil
	l.channels = l.channels[:last]
	c.listed = 0
}

// Len is the number of channels in it.
func (l *List) Len() int { return len(l.channels) }

// Channels returns a copy of the list.
func (l *List) Channels() []*Channel { return slices.Clone(l.channels) }
