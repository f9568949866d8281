package watermark

import "fmt"

// Level says how much pressure a channel is under.
type Level int32

const (
	// Normal: reading is on.
	Normal Level = iota
	// High: something is too full; reading is off, or, with KeepReading, a DropGate drops whole frames.
	High
	// OverLimit: more than the hard limit was pending; the channel was closed. Terminal.
	OverLimit
	// Closed: the channel is closed, for another reason. Terminal.
	Closed
)

// String names l.
func (l Level) String() string {
	switch l {
	case Normal:
		return "NORMAL"
	case High:
		return "HIGH"
	case OverLimit:
		return "OVER_LIMIT"
	case Closed:
		return "CLOSED"
	}
	return fmt.Sprintf("Level(%d)", int32(l))
}

// Reason says what makes a level high, or why a frame was dropped.
type Reason uint8

const (
	// ReasonNone: nothing does.
	ReasonNone Reason = iota
	// ReasonPending: what is pending on the channel itself.
	ReasonPending
	// ReasonShared: a Shared level that it watches.
	ReasonShared
	// ReasonInput: an Input.
	ReasonInput
	// ReasonRate: more came than the rate allows. Only of dropped frames: otherwise what is too fast is read later.
	ReasonRate
	reasons
)

// String names r.
func (r Reason) String() string {
	switch r {
	case ReasonNone:
		return "none"
	case ReasonPending:
		return "pending"
	case ReasonShared:
		return "shared"
	case ReasonInput:
		return "input"
	case ReasonRate:
		return "rate"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Change is the event that a Handler fires when its level has changed, by pointer: it is valid until the handler that
// gets it returns.
type Change struct {
	From, To     Level
	Reason       Reason // what makes it high; ReasonNone when it became Normal
	PendingBytes int    // of the channel
}
