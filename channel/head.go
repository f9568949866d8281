package channel

import (
	"log/slog"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// head is how the pipeline sees a channel. What a handler may ask for has a method of Context; none of these is a
// method of Channel besides. Those of Channel that users may call, too, are promoted; the rest stands with what it
// belongs to.
type head struct{ *Channel }

var _ pipeline.Channel = head{}

// Tail returns the open block at the end of the queue with room for n bytes or more; nil when nothing may be written.
func (c head) Tail(n int) *buffer.Buf { return c.tailBlock(n) }

// WriteErr returns nil or why nothing may be written.
func (c head) WriteErr() error { return c.writeErr() }

// StartReading posts the task that resumes.
func (c head) StartReading() { c.resumeLater() }

// GrantChanged makes a grant of nothing be asked for again.
func (c head) GrantChanged() { c.askGrant() }

// Acked returns how far the peer has acknowledged what was sent.
func (c head) Acked() (mark uint64, left int) { return c.acked() }

// Pending is the memory in bytes that is held for data on its way out.
func (c head) Pending() int { return c.pending() }

// Pool is the loop's pool.
func (c head) Pool() *buffer.Pool { return c.loop.Pool() }

// Logger is the configured logger, else the loop's.
func (c head) Logger() *slog.Logger { return c.logger() }

// Now is the loop's clock.
func (c head) Now() time.Duration { return c.loop.Now() }
