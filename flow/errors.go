// Package flow holds flow-control algorithms as plain values on an explicit clock: a level with hysteresis, a token
// bucket, a rate limit that loops share (GCRA), a back-off, limits for requests under way, and CoDel. Nothing here
// reads a clock, starts a goroutine or locks. Unless its type says otherwise, a value belongs to whoever holds it,
// usually one event loop. Time is a time.Duration since some fixed point that never goes backwards.
package flow

import "errors"

// ErrConfig is the error of a configuration that cannot work; it is wrapped with the values.
var ErrConfig = errors.New("flow: invalid configuration")
