// Package weir is an event-loop networking framework: a Server and a Dialer choose the transport, start the loops,
// accept or connect, and make a channel with a pipeline of handlers for each connection; a Set writes to many
// channels at once.
package weir

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/weirnet/weir/pipeline"
)

// What callers branch on; wrapped with the operation and its values.
var (
	// ErrServerClosed is returned by ListenAndServe, Serve and Wait after Shutdown or Close, and by everything that
	// is called after them.
	ErrServerClosed = errors.New("weir: server closed")
	// ErrDialerClosed is returned by Dial after Close or Shutdown of the Dialer.
	ErrDialerClosed = errors.New("weir: dialer closed")
	// ErrConfig is returned for settings that cannot work, before anything is started.
	ErrConfig = errors.New("weir: bad configuration")
)

// Kind names a transport. The zero Kind is Auto.
type Kind string

// The transports.
const (
	// Auto is io_uring where it can be opened, else epoll, with one line in the log that says why. The environment
	// variable WEIR_TRANSPORT overrides it.
	Auto Kind = "auto"
	// Uring is io_uring. Chosen by name it is never replaced: where it cannot be opened, starting fails.
	Uring Kind = "uring"
	// Epoll is epoll.
	Epoll Kind = "epoll"
)

// TransportEnv is the environment variable that overrides Auto: with "epoll" or "uring" in it, every Server and
// Dialer of the process that does not name its transport uses that one, as if it had been named. "auto" and nothing
// change nothing; other values are an error.
const TransportEnv = "WEIR_TRANSPORT"

// MaxLoops is how many loops a Server or a Dialer may have. A loop is a thread, and more of them than processors only
// cost.
const MaxLoops = 1024

// defaultLoops is one loop per processor that Go uses.
func defaultLoops() int { return min(runtime.GOMAXPROCS(0), runtime.NumCPU(), MaxLoops) }

// errOnLoop is the error of calls that wait for loops when they come from a loop's thread, where the wait would never
// end.
func errOnLoop(operation, instead string) error {
	return fmt.Errorf("weir: %s on a loop's thread: %w: %s", operation, pipeline.ErrWouldDeadlock, instead)
}
