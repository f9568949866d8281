package simtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// How a connection is to end.
const (
	endClose      = iota // the client closes once everything is back
	endCloseWrite        // the client sends FIN after its last byte and reads on
	endEarly             // the client closes after its last byte, whatever is still under way
	endAbort             // the client aborts at some byte
	ends
)

var errAbort = errors.New("simtest: abort")

// conn is one connection as its client sees it: it sends a stream and expects it back.
type conn struct {
	run   *run
	id    int
	rng   *rand.Rand // of the behaviour
	total int
	end   int
	abort int // received bytes at which endAbort aborts

	ctx      *pipeline.Context
	dialed   bool
	refused  bool
	sent     int
	received int
	active   int
	inactive int
	cause    error
	paused   bool
	finished bool // it has asked for the end
	cut      bool // a server may have ended it on its own account

	frames []int // sizes of the messages that were sent
	next   int   // the one that comes back next
	at     int   // where it begins

	flushes, flushed int // callbacks asked for and called
	regions, sentReg int
	tasks, ranTasks  int
}

func newConn(r *run, id int) *conn {
	c := &conn{run: r, id: id, rng: rand.New(rand.NewPCG(r.rng.Uint64(), uint64(id)))}
	switch c.rng.IntN(3) {
	case 0:
		c.total = c.rng.IntN(200)
	case 1:
		c.total = c.rng.IntN(20_000)
	default:
		c.total = c.rng.IntN(min(400_000, len(r.fileData)))
	}
	c.end = c.rng.IntN(ends)
	if r.shared.lossy { // nobody knows when everything is back
		c.end = []int{endCloseWrite, endEarly}[c.rng.IntN(2)]
	}
	c.abort = c.rng.IntN(c.total + 1)
	return c
}

// stream returns n bytes of what the client sends from off on: the file's content, which repeats for nobody.
func (c *conn) stream(off, n int) []byte { return c.run.fileData[off : off+n] }

func (c *conn) initClient(p *pipeline.Pipeline) error {
	if c.rng.IntN(3) == 0 {
		if err := p.AddLast("outer", relay{}); err != nil {
			return err
		}
	}
	if c.rng.IntN(4) == 0 {
		if err := p.AddLast("batcher", &batcher{}); err != nil {
			return err
		}
	}
	if err := c.run.shared.framing.add(p); err != nil {
		return err
	}
	if c.rng.IntN(3) == 0 {
		if err := p.AddLast("meddler", &meddler{run: c.run, rate: 1 + c.rng.IntN(100)}); err != nil {
			return err
		}
	}
	if c.end == endCloseWrite {
		return p.AddLast("client", &halfClient{conn: c})
	}
	return p.AddLast("client", c)
}

func (c *conn) ChannelActive(ctx *pipeline.Context) error {
	c.active++
	c.ctx = ctx
	if c.active != 1 || c.received > 0 {
		c.run.fail(fmt.Errorf("connection %d: active %d times, %d bytes received before", c.id, c.active, c.received))
	}
	return c.write()
}

// write sends as long as the channel is writable, in every way there is: each is one message.
func (c *conn) write() error {
	ctx := c.ctx
	for c.sent < c.total && ctx.Writable() {
		n := min(1+c.rng.IntN(3000), c.total-c.sent)
		if c.rng.IntN(20) == 0 {
			n = min(1+c.rng.IntN(100_000), c.total-c.sent)
		}
		if err := c.writePiece(n); err != nil {
			if errors.Is(err, pipeline.ErrClosed) {
				return nil
			}
			return err
		}
		c.sent += n
		c.frames = append(c.frames, n)
		c.askFlushed()
	}
	if c.sent == c.total && !c.finished {
		switch {
		case c.end == endCloseWrite:
			c.finished = true
			return ignoreClosed(ctx.CloseWrite())
		case c.end == endEarly:
			c.finished = true
			return ctx.Close()
		case c.total == 0 && c.end == endClose:
			c.finished = true
			return ctx.Close()
		case c.total == 0:
			c.finished = true
			ctx.Abort(errAbort)
		}
	}
	return nil
}

func (c *conn) writePiece(n int) error {
	ctx, p := c.ctx, c.stream(c.sent, n)
	way, f := c.rng.IntN(7), &c.run.shared.framing
	if f.text() {
		return f.write(ctx, p)
	}
	switch way {
	case 0:
		return ctx.Write(p)
	case 1:
		return ctx.Write(string(p))
	case 2:
		b := ctx.Pool().Get(n)
		b.Append(p)
		err := ctx.Write(b)
		b.Release()
		return err
	case 3:
		out := ctx.Out()
		if out == nil {
			return pipeline.ErrClosed
		}
		out.Append(p)
		return ctx.EndMessage()
	case 4:
		k := c.rng.IntN(n + 1)
		return ctx.WriteBytes(p[:k], p[k:])
	case 5:
		c.regions++
		done := false
		return c.noteRegion(ctx.Write(&pipeline.FileRegion{
			File: c.run.file, Offset: int64(c.sent), Length: int64(n),
			Done: func(error) {
				if done {
					c.run.fail(fmt.Errorf("connection %d: a file region was done twice", c.id))
				}
				done = true
				c.sentReg++
				if c.rng.IntN(2) == 0 { // re-enters the write queue
					_ = c.ctx.Flush()
				}
			},
		}))
	default:
		b := ctx.Pool().Get(n + 10)
		b.AppendString("skip")
		b.Append(p)
		b.Advance(4)
		err := ctx.Write(b)
		b.Release()
		return err
	}
}

// noteRegion takes back the count of a region that was refused.
func (c *conn) noteRegion(err error) error {
	if err != nil {
		c.regions--
	}
	return err
}

func (c *conn) askFlushed() {
	switch c.rng.IntN(10) {
	case 0:
		c.flushes++
		called := false
		c.ctx.Flushed(func(error) {
			if called {
				c.run.fail(fmt.Errorf("connection %d: a Flushed callback ran twice", c.id))
			}
			called = true
			c.flushed++
			c.run.progress++
			if c.rng.IntN(2) == 0 { // for as long as the dice say
				c.askFlushed()
			}
		})
	case 1:
		if c.ctx.Ref().Execute(func(*pipeline.Context) { c.ranTasks++ }) == nil {
			c.tasks++
		}
	case 2:
		if err := c.ctx.Flush(); err != nil && !errors.Is(err, pipeline.ErrClosed) {
			c.run.fail(err)
		}
	}
}

func (c *conn) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if ctx.Writable() {
		return c.write()
	}
	return nil
}

func (c *conn) ChannelRead(ctx *pipeline.Context, msg any) error {
	p := msg.(*buffer.Buf).Bytes()
	c.run.progress++
	switch {
	case c.inactive > 0:
		c.run.fail(fmt.Errorf("connection %d: read after inactive", c.id))
	case c.paused || !reading(ctx):
		c.run.fail(fmt.Errorf("connection %d: read while paused", c.id))
	case c.run.shared.framing.framed():
		c.message(p)
	case c.received+len(p) > c.sent:
		c.run.fail(fmt.Errorf("connection %d: %d bytes came back, %d were sent", c.id, c.received+len(p), c.sent))
	case string(p) != string(c.stream(c.received, len(p))):
		c.run.fail(fmt.Errorf("connection %d: other bytes than those sent, at %d", c.id, c.received))
	}
	c.received += len(p)
	if c.end == endAbort && c.received >= c.abort {
		ctx.Abort(errAbort)
		return nil
	}
	if c.received == c.total && c.sent == c.total && c.end == endClose && !c.finished {
		c.finished = true
		return ctx.Close()
	}
	if c.rng.IntN(20) == 0 {
		c.pause()
	}
	return nil
}

// message checks that one of those that were sent came back, and none before it that has come. Drop gates drop some.
func (c *conn) message(p []byte) {
	for c.next < len(c.frames) {
		n, at := c.frames[c.next], c.at
		c.next, c.at = c.next+1, c.at+n
		if n == len(p) && string(c.stream(at, n)) == string(p) {
			c.run.res.Frames++
			return
		}
		if !c.run.shared.lossy {
			c.run.fail(fmt.Errorf("connection %d: message %d has %d bytes that were not sent, or not there", c.id, c.next-1,
				len(p)))
			return
		}
	}
	c.run.fail(fmt.Errorf("connection %d: a message of %d bytes came back that was not sent", c.id, len(p)))
}

// pause stops reading for a while.
func (c *conn) pause() {
	c.run.res.Pauses++
	c.paused = true
	c.ctx.Pause()
	c.ctx.NewTimer(func(ctx *pipeline.Context) error {
		c.paused = false
		ctx.Resume()
		return nil
	}).Reset(time.Duration(c.rng.IntN(3000)) * time.Microsecond)
}

func (c *conn) ChannelInactive(ctx *pipeline.Context) error {
	c.inactive++
	c.cause = ctx.Cause()
	return nil
}

// complete reports whether everything came back.
func (c *conn) complete() bool { return !c.refused && c.received == c.total }

// check returns what is wrong at the end.
func (c *conn) check() error {
	switch {
	case c.refused:
		return nil
	case c.active != c.inactive || c.active > 1:
		return fmt.Errorf("connection %d: active %d times, inactive %d times", c.id, c.active, c.inactive)
	case c.flushes != c.flushed:
		return fmt.Errorf("connection %d: %d of %d Flushed callbacks ran", c.id, c.flushed, c.flushes)
	case c.regions != c.sentReg:
		return fmt.Errorf("connection %d: %d of %d file regions were done", c.id, c.sentReg, c.regions)
	case c.tasks != c.ranTasks:
		return fmt.Errorf("connection %d: %d of %d posted tasks ran", c.id, c.ranTasks, c.tasks)
	case (c.end == endClose || c.end == endCloseWrite) && c.cause == nil && c.active == 1 && !c.complete() &&
		!c.run.harsh && !c.run.shared.lossy && c.run.res.Panics == 0 && !c.cut:
		return fmt.Errorf("connection %d: closed in an orderly way with %d of %d bytes back", c.id, c.received, c.total)
	}
	return nil
}

func (c *conn) describe() string {
	s := fmt.Sprintf("connection %d (end %d): sent %d, received %d of %d, active %d, inactive %d, paused %v, cause %v",
		c.id, c.end, c.sent, c.received, c.total, c.active, c.inactive, c.paused, c.cause)
	return s + ", " + state(c.ctx)
}

// halfClient stays open when the server has finished.
type halfClient struct{ *conn }

func (h *halfClient) ChannelReadClosed(*pipeline.Context) error { return nil }

func ignoreClosed(err error) error {
	if errors.Is(err, pipeline.ErrClosed) {
		return nil
	}
	return err
}
