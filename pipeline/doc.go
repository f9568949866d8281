// Package pipeline is the chain of handlers between a channel and an application, and the order of events in it.
//
//	                   head                                              tail
//	                    │    ┌───────────┐   ┌───────────┐   ┌───────────┐  │
//	socket ── FireRead ─┼──▶ │ watermark │ ─▶│   codec   │ ─▶│    app    │ ─┼─▶ dropped, counted
//	                    │    └───────────┘   └───────────┘   └───────────┘  │   (an error: closed)
//	socket ◀─ Channel ──┼─── │ watermark │ ◀─│   codec   │ ◀─│ ctx.Write │ ◀┼── Pipeline.Write
//	          .Write    │    └───────────┘   └───────────┘   └───────────┘  │
//
// Inbound events (what the socket does: active, read, read complete, read closed, inactive; and errors, events,
// writability, shutdown) run from the head to the tail. Outbound operations (what handlers ask for: write, flush,
// close) run from the tail to the head. Each goes straight to the next handler that has the interface for it; a handler
// passes it on with the method of its Context of the same name, or it ends there. Resume runs from the tail to the
// head, so that what was held back nearest to the application goes first.
//
// # Handlers
//
// A handler is any value with at least one of the interfaces in this package. It is added by name, and handlers may be
// added, removed and replaced while events run: whoever is behind a handler at the moment it fires gets the event. A
// handler that is taken out gives what it still holds to its neighbours in HandlerRemoved; its Context keeps working
// towards the neighbours that are still there. One value may stand in several pipelines when it keeps no state of a
// channel.
//
// # Writing
//
// Write passes a message through the WriteHandlers before the Context. WriteBytes and Out append bytes: right into the
// channel's queue where no WriteHandler stands before the Context, else to a buffer which goes through them as one
// message with the next other operation of that Context or at the end of the turn, so that an encoder and, say, TLS
// before it see one message and not twenty. Whatever is mixed, bytes leave in the order of the calls.
//
// Nobody needs to flush: the channel does at the end of each turn. A FlushHandler may hold that back.
//
// # Errors
//
// What an inbound method returns goes to the handler's own ErrorCaught, then to the ErrorHandlers behind it, until one
// returns nil; at the tail the channel closes with the error as its cause. A handler whose ErrorCaught is running is
// passed by: an error that comes up while an error is handled goes onward and never in circles. What an outbound method
// returns is the caller's; where the caller is the end of the turn, it goes to the error handlers, beginning with the
// handler whose bytes they were.
//
// # From inside an event
//
// Everything may be called from inside everything. Flush inside Write sends what has been queued. Close inside a read
// stops the rest of the batch: Reading is false from then on. Write inside a Flushed callback is sent. A handler may
// remove itself anywhere and still pass the event on. A Close that comes back to a CloseHandler whose Close is running
// passes it by. Close on a closing channel does nothing; writes return ErrClosed.
//
// # Cost
//
// The hot path (read, read complete, write, pause) does not allocate and follows links that are made when the pipeline
// changes. Rare events walk the chain.
package pipeline
