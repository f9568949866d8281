// Package offload runs the work of messages on other goroutines and its results on the loop, in the order of the
// messages.
//
//	pool, err := offload.NewPool(offload.PoolConfig{}) // one for all channels
//	…
//	Init: func(p *pipeline.Pipeline) error {
//		h, err := offload.Bytes(pool, work, done) // one for each channel
//		if err != nil {
//			return err
//		}
//		return errors.Join(p.AddLast("frames", framer), p.AddLast("work", h))
//	}
//
// A handler must not block its loop: a lookup in a database, a compression, a write to a disk do. Here the loop
// detaches each message from what it is about to reuse, a goroutine of the pool calls work with it, and done gets the
// result on the loop, with the Context. Results of one channel come in the order of its messages, whatever order they
// were ready in, or, where Config.Unordered is set, as they are ready.
//
// # Pressure
//
// Two levels are kept, and neither blocks a loop or drops a message. A channel has at most MaxInFlight messages between
// ChannelRead and done; the pool has at most MaxQueued messages, or MaxQueuedBytes, that no goroutine has begun. At
// either level the handler pauses reading, and TCP stops the peer. Channels that wait for room stand in a queue, each
// with one message: when the pool's queue has fallen to half, as many of them as there is room for go on, the one that
// has waited longest first. A decoder that asks ctx.Reading before each message emits none while reading is paused.
// What another one emits is kept, in order, and bounded by nothing but what one read may hold.
//
// # Goroutines
//
// Package ants keeps the goroutines: it starts them, uses them again for a second with the stacks that they have grown,
// and lets them go. (A work that needs 12 KiB of stack costs 1.5 µs that way and 5 µs on a goroutine of its own,
// without the work.) How many there are is the Pool's own count. A bounded pool of ants blocks or refuses whoever
// submits while a worker is on its way back to it: the first would stop a loop, the second lose a message. And what is
// counted in bytes and handed out in turns, channel by channel, it does not know.
//
// # The end
//
// done is called exactly once for each message, whatever happens, as long as it does not panic itself. What was read
// before the peer's FIN is worked and done before ChannelReadClosed goes on, and before ChannelShutdown does. When the
// channel is closed, the context of its works is cancelled, works that have not begun never will, and done gets what is
// ready and pipeline.ErrClosed for the rest, in the order of the messages, before ChannelInactive goes on; writes fail
// by then. A handler that is removed before gives ErrRemoved instead. A peer that has gone while reading is paused is
// subject to the channel's PausedCloseTimeout.
package offload
