// Package ringtest is a scripted kernel behind internal/ring: it carries out on real descriptors what io_uring would,
// in user space, and decides with a seeded generator what goes wrong on the way. The same seed and the same calls give
// the same decisions.
//
// It exists to run the real transport/uring against what a real kernel does too rarely to be tested: see Script.
package ringtest

// Script says how often what goes wrong, each in chances out of 256. The zero Script is a kernel without faults.
type Script struct {
	// ShortSend: a send takes only a part, or nothing, of what it could.
	ShortSend int
	// ShortPlainSend is ShortSend for those that may wait only.
	ShortPlainSend int
	// EndMultishot: a multishot operation ends after a completion although it could go on.
	EndMultishot int
	// NoBuffers: a receive returns ENOBUFS although there are blocks.
	NoBuffers int
	// CancelTooLate: a cancellation returns EALREADY, and the operation ends by itself, or cancelled a while later.
	CancelTooLate int
	// Late: a completion comes with a later Enter, behind those of other operations.
	Late int
	// PartialSubmit: Enter takes only some of the entries.
	PartialSubmit int
	// Again: Enter takes nothing and returns EAGAIN.
	Again int
	// Interrupted: Enter returns EINTR instead of waiting.
	Interrupted int
	// Overflow: a completion is kept aside as if the queue were full.
	Overflow int
	// Drop: a completion is lost, and the queue's overflow counter moves.
	Drop int
	// AcceptFails: an accept returns EMFILE.
	AcceptFails int
	// NoSplice: splice returns EINVAL.
	NoSplice int

	// An older kernel: EINVAL for what it does not know.
	LacksLimits, LacksVectors bool
}

// Faults counts what went wrong.
type Faults struct {
	ShortSends, EndedMultishots, NoBuffers, LateCancels, Late, PartialSubmits, Agains, Interrupts uint64
	Overflows, Drops, AcceptFailures, NoSplices                                                   uint64
}
