package channel

import "github.com/weirnet/weir/pipeline"

// Unhandled gets what came through to the end of a channel's pipeline because no handler kept it. Its methods run on
// the loop.
type Unhandled interface {
	// Message borrows msg until return. Nothing else becomes of it.
	Message(c *Channel, msg any)
	// Event gets what Context.FireEvent sent.
	Event(c *Channel, event any)
	// Error comes before the channel closes with err as its cause, or long after, when a closed one still fails.
	Error(c *Channel, err error)
}

var _ pipeline.UnhandledObserver = head{}

// Unhandled tells Config.Unhandled of a message. It borrows msg until return.
func (c head) Unhandled(msg any) bool {
	if c.cfg.Unhandled == nil {
		return false
	}
	c.cfg.Unhandled.Message(c.Channel, msg)
	return true
}

// UnhandledEvent tells Config.Unhandled of an event.
func (c head) UnhandledEvent(event any) {
	if c.cfg.Unhandled != nil {
		c.cfg.Unhandled.Event(c.Channel, event)
	}
}

// UnhandledError tells Config.Unhandled of an error.
func (c head) UnhandledError(err error) {
	if c.cfg.Unhandled != nil {
		c.cfg.Unhandled.Error(c.Channel, err)
	}
}
