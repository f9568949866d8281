// Package watermark holds a channel at its level: it reads no more than what is written back can be sent, and no more
// than what others behind it can take.
//
//	                  pending
//	MaxPendingBytes ──────────── the channel itself aborts (package channel)
//	                                    OVER_LIMIT: closed, terminal
//	 HardLimitBytes ──────────── a write when more than this is pending
//	                  ▲  HIGH: reading is off, nothing is granted
//	      HighBytes ──┼───────── pending ≥ high: pause
//	                  │  half the budget        │ HIGH stays
//	    HighBytes/2 ──┼─────────                │
//	                  │  NORMAL: full budget    │
//	       LowBytes ──┼───────────────────────── pending ≤ low: resume
//	                  │
//
// A Handler stands first, before what decodes. It pauses reading when that much is pending and resumes when it has
// drained, by whatever way it rose and fell: it is told at the end of the turn. It closes the channel when something is
// written while more than the hard limit is pending. The newest message may exceed it: what came from below the limit
// to above it within one event or one turn is accepted, and the next write finds it over. The channel's MaxPendingBytes
// must be above the hard limit. A Handler only ever touches the read interest; what is written goes out as before.
//
// Where one read becomes many messages, a Probe behind the decoder looks after each of them, and a decoder that asks
// ctx.Reading before each stops at once.
//
// # Read budget and rate
//
// A channel may read BudgetBytes at a time, half of that from half of HighBytes on, nothing at High. A token bucket
// bounds the rate in the long run: what has come is charged, so what a transport reads past its limit is a debt that
// later grants pay, and no fraction of a token is lost. When the bucket is empty the grant is nothing, with the time at
// which asking again is worth it.
//
// # Levels that are shared
//
// A Shared is the level of something that many channels on many loops fill, such as the queue of a sink. While it is
// high, no channel that watches it reads. A channel notices at its next read or grant, so that a rise costs those that
// are silent nothing; it then waits in a queue of its loop. When the level falls, each loop resumes a bounded number of
// channels per turn, longest waiting first, as long as the level stays normal. As long as anybody waits, whoever has
// read BudgetBytes stands behind all the others, on whichever loop they are, so each gets its share; a turn that a rise
// breaks off is finished first. Where one read becomes many messages, a Probe behind the framer keeps a turn from
// filling the level far beyond HighBytes. An Input is a level of the same loop; Follow makes one channel wait for what
// is pending on another, as a proxy needs it. The highest decides.
//
// # Loss
//
// Nothing is ever dropped inside a byte stream. Where traffic tolerates loss, Config.KeepReading and a DropGate between
// framer and decoder drop whole frames at High, counted by reason. Without KeepReading nothing is lost: a DropGate
// passes what had been read when reading was paused.
//
// # Choosing numbers
//
// HighBytes is what a peer that reads at all may have on its way: bandwidth × round trip, at least the largest usual
// reply. LowBytes is what keeps the socket busy until reading has begun again: the larger, the smoother, the smaller,
// the fewer changes. HardLimitBytes is HighBytes plus what one read can cause to be written, and a block: with
// amplification a, at least HighBytes + a × BudgetBytes + 64 KiB, because pending is memory and not payload, and the
// channel's open block, which small writes fill, counts whole. Memory held per channel is then at most
//
//	HardLimitBytes + the newest message     on the way out
//	+ BudgetBytes + one receive block       read and held back
//
// so the number of channels times that is what the process needs in the worst case; a Shared bounds what is in between.
//
// At a Shared, a turn is worth BudgetBytes: whoever comes while n channels wait gets its first byte through when n
// times that have drained. RateBytesPerSecond bounds what one channel may send in the long run, whoever waits; there is
// no bound unless one is set.
//
// Two peers that both stop reading while what they have to say is pending can wait for each other when both directions
// are full: where requests and replies are as large as that, one side must read whatever is pending, or bound what it
// asks for.
//
// # Goroutines
//
// A Handler, its DropGate, its Probe and its Inputs belong to the loop of their channel, as do the events and the
// errors that come of them; so does Follow, whose two channels are of one loop. Nothing of them is locked. Other
// goroutines get there by pipeline.Ref.Execute or a pipeline.Signal. New and NewShared may be called anywhere, and what
// New returns is the loop's from when it is added.
//
//	Shared                       any goroutine, every method; loops are woken, never waited for
//	Handler.Level, Stats         any goroutine; a level may have changed when it is looked at
//	Stats.Snapshot               any goroutine
//	Config, SharedConfig         copied; Stats and the Shared in it are meant to be given to many
//	Change                       the loop, until the handler that gets it returns
//
// None of them starts a goroutine.
package watermark
