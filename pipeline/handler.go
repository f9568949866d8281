package pipeline

import "time"

// A handler is any value with at least one of the interfaces below, and no method that has the name of one of theirs
// and another signature. Which of them it has is found out once, when it is added; an event goes straight to the next
// handler that has the interface for it. All methods run on the channel's loop.
//
// An error that an inbound method returns goes to the handler's own ErrorCaught, if it has one, else to the next
// ErrorHandler; at the tail the channel closes with that error as its cause. An error that an outbound method (Write,
// Flush, Close) returns goes back to the caller.
//
// A handler that has an interface stands in the event's way: pass it on with the Fire method (inbound) or the Context
// method (outbound) of the same name, or it ends there.

// ReadHandler gets what was received, or what the handler before it made of that.
type ReadHandler interface {
	// ChannelRead borrows msg until return: *buffer.Buf from the socket, anything from a decoder.
	ChannelRead(ctx *Context, msg any) error
}

// ReadCompleteHandler learns that a batch of reads, or what a resume let go on, is over.
type ReadCompleteHandler interface {
	ChannelReadComplete(ctx *Context) error
}

// ActiveHandler learns that the channel is connected. It happens exactly once, before anything is read.
type ActiveHandler interface {
	ChannelActive(ctx *Context) error
}

// InactiveHandler learns that the channel is closed: exactly once if it was active, after everything that was received.
// ctx.Cause tells why.
type InactiveHandler interface {
	ChannelInactive(ctx *Context) error
}

// ReadClosedHandler learns that the peer has finished sending, after everything it sent. It may still be written to.
// Where no handler keeps the event, the channel sends what is queued and closes.
type ReadClosedHandler interface {
	ChannelReadClosed(ctx *Context) error
}

// ErrorHandler gets the errors of inbound methods. It swallows err by returning nil without FireError; what it returns
// goes on to the next ErrorHandler. While it runs, it is not asked about further errors: they go to the next one.
type ErrorHandler interface {
	ErrorCaught(ctx *Context, err error) error
}

// EventHandler gets what FireEvent sends: anything that handlers tell each other.
type EventHandler interface {
	ChannelEvent(ctx *Context, event any) error
}

// WritabilityHandler learns that ctx.Writable has changed. It runs from the loop, never from inside a Write.
type WritabilityHandler interface {
	ChannelWritabilityChanged(ctx *Context) error
}

// ResumeHandler goes on with what it held back while reading was paused. Resume handlers run tail to head, from a loop
// task; when one pauses again, the rest wait for the next resume.
type ResumeHandler interface {
	ChannelResume(ctx *Context) error
}

// GrantHandler is asked how many bytes may be read when a receive is armed. The smallest one wins. It must not change
// the pipeline from inside.
type GrantHandler interface {
	// ReadGrant returns bytes, or 0 and after how long to ask again (retry <= 0: only after ctx.GrantChanged).
	ReadGrant(ctx *Context) (n int, retry time.Duration)
}

// ShutdownHandler learns that the server wants to stop: it finishes what is under way and closes the channel in time.
// Where no handler keeps the event, the channel is closed in an orderly way.
type ShutdownHandler interface {
	ChannelShutdown(ctx *Context) error
}

// WriteHandler gets what handlers behind it write. It borrows msg until return; it writes on with ctx.Write.
type WriteHandler interface {
	Write(ctx *Context, msg any) error
}

// FlushHandler gets explicit flushes and the one at the end of each turn that wrote something.
type FlushHandler interface {
	Flush(ctx *Context) error
}

// CloseHandler may do something before the channel closes; it closes with ctx.Close. Abort does not ask it.
type CloseHandler interface {
	Close(ctx *Context) error
}

// AddedHandler learns that it stands in a pipeline, possibly after ChannelActive (ask ctx.Active). When it fails it is
// removed again, and the error goes to the pipeline's error handlers and to who added it.
type AddedHandler interface {
	HandlerAdded(ctx *Context) error
}

// RemovedHandler learns that it left the pipeline; exactly once for each time it was added, also when HandlerAdded
// failed. What it still holds it fires to its successor or writes to its predecessor: its Context still knows both;
// where it was replaced, both are the new handler. Its error goes to the error handlers behind it.
type RemovedHandler interface {
	HandlerRemoved(ctx *Context) error
}
