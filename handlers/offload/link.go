package offload

import (
	"sync/atomic"

	"github.com/weirnet/weir/pipeline"
)

// link is what the pool and its goroutines know of a channel.
type link struct {
	pool   *Pool
	signal pipeline.Signal // makes the loop look for what is new; set when the handler is added, then immutable

	granted atomic.Bool // the message that waited for room is in the pool's queue

	// guarded by pool.mu
	next, prev *link
	listed     bool
	job        job // the message that waits
	bytes      int
}
