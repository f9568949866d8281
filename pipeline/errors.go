package pipeline

import "errors"

// What callers branch on; wrapped with the operation and its values.
var (
	// ErrClosed is returned for operations on a channel that is closing or closed.
	ErrClosed = errors.New("pipeline: channel closed")
	// ErrFull is returned for a TryWrite or Execute for which there is no room. Nothing was done.
	ErrFull = errors.New("pipeline: full")
	// ErrWouldDeadlock is returned for a blocking call on a loop's thread.
	ErrWouldDeadlock = errors.New("pipeline: would block the loop")
	// ErrPendingLimit is the cause of closing a channel whose handlers wrote more than MaxPendingBytes, or more file
	// regions than MaxPendingRegions.
	ErrPendingLimit = errors.New("pipeline: pending bytes over the limit")
	// ErrMessageType is returned for a Write that reached the head with a message that is not bytes.
	ErrMessageType = errors.New("pipeline: message is not bytes")
	// ErrDuplicateName is returned for an addition under a name that is taken.
	ErrDuplicateName = errors.New("pipeline: duplicate handler name")
	// ErrNoHandler is returned for a name that no handler has.
	ErrNoHandler = errors.New("pipeline: no such handler")
	// ErrNotHandler is returned for the addition of a value with none of the handler interfaces.
	ErrNotHandler = errors.New("pipeline: value has no handler interface")
	// ErrTooManyHandlers is returned for the addition of a handler beyond MaxHandlers.
	ErrTooManyHandlers = errors.New("pipeline: too many handlers")
)
