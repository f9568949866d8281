package watermark

import (
	"sync/atomic"
	"time"
)

// Stats count what Handlers and DropGates do. The zero value works. Any goroutine may read it at any time.
type Stats struct {
	pauses, resumes, overLimits atomic.Uint64
	highNanos                   atomic.Int64
	frames, bytes               [reasons]atomic.Uint64 // at ReasonNone those that were delivered
}

// Snapshot is what Stats have counted so far.
type Snapshot struct {
	// Pauses and Resumes are changes from Normal to High and back, also where reading was kept on.
	Pauses, Resumes uint64
	// OverLimits are channels that were closed at OverLimit.
	OverLimits uint64
	// High is the time that channels spent at High; what lasts is added when it ends.
	High time.Duration
	// Delivered and Dropped are what came to DropGates.
	Delivered Count
	Dropped   map[Reason]Count
}

// Count is a number of frames and their bytes.
type Count struct{ Frames, Bytes uint64 }

// Snapshot returns what was counted so far. Each number is right for itself; those that change meanwhile may not fit
// each other.
func (s *Stats) Snapshot() Snapshot {
	snap := Snapshot{
		Pauses: s.pauses.Load(), Resumes: s.resumes.Load(), OverLimits: s.overLimits.Load(),
		High: time.Duration(s.highNanos.Load()), Delivered: s.count(ReasonNone), Dropped: map[Reason]Count{},
	}
	for r := ReasonNone + 1; r < reasons; r++ {
		if c := s.count(r); c.Frames > 0 {
			snap.Dropped[r] = c
		}
	}
	return snap
}

func (s *Stats) count(r Reason) Count {
	return Count{Frames: s.frames[r].Load(), Bytes: s.bytes[r].Load()}
}
