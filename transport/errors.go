package transport

import "errors"

// What callers branch on. Transports wrap them with the operation and its values where that helps.
var (
	// ErrCanceled ends an operation that Cancel or Close ended.
	ErrCanceled = errors.New("transport: operation canceled")
	// ErrNotFound completes a Cancel that found nothing to end.
	ErrNotFound = errors.New("transport: no such operation")
	// ErrStale completes an operation on a Handle that is closed or closing.
	ErrStale = errors.New("transport: stale handle")
	// ErrBusy completes a second Recv, Send, Accept or WatchClose on a Handle that has one.
	ErrBusy = errors.New("transport: operation of this kind in progress")
	// ErrWouldBlock completes a Send with NoWait, or returns a SendNow, of which the kernel took less than all.
	ErrWouldBlock = errors.New("transport: send would block")
	// ErrNotNow returns a SendNow of a transport that only sends by an operation.
	ErrNotNow = errors.New("transport: sends by operations only")
	// ErrClosed is returned after the transport was closed.
	ErrClosed = errors.New("transport: closed")
	// ErrNotSupported is returned where the transport, the kernel or the system lacks something.
	ErrNotSupported = errors.New("transport: not supported")
)
