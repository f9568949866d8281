package pipeline

import (
	"time"

	"github.com/weirnet/weir/internal/invariants"
)

// Driver is a Pipeline in the hands of the channel it belongs to, which embeds it by value: what happens to the channel
// is told here. Handlers hold the Pipeline, from which no way leads back to the Driver. It belongs to the channel's
// loop.
type Driver struct{ p Pipeline }

// Init makes the pipeline the empty one of ch. It is called once, before anything else.
func (d *Driver) Init(ch Channel) {
	p := &d.p
	p.ch = ch
	p.flight = noFlight
	e := &p.end
	*e = Context{p: p, name: "tail", handler: end{}, read: end{}, kinds: endKinds, index: MaxHandlers}
	e.next, e.prev, e.nextRead, e.prevWrite = e, e, e, e
}

// Pipeline is what handlers see of it.
func (d *Driver) Pipeline() *Pipeline { return &d.p }

// Tail is the end of the pipeline as a Context: what is written there passes every handler. It is never nil.
func (d *Driver) Tail() *Context { return &d.p.end }

// Life is where the channel stands.
func (d *Driver) Life() Life { return d.p.life }

// SetLife moves it on. FireActive does it for LifeActive.
func (d *Driver) SetLife(l Life) {
	invariants.Check(l >= d.p.life, "pipeline: life goes from %d back to %d", d.p.life, l)
	d.p.life = l
}

// FireActive tells the handlers, once, that the channel is connected.
func (d *Driver) FireActive() {
	p := &d.p
	if p.state&(firedActive|firedInactive) != 0 {
		invariants.Check(false, "pipeline: Active fired in state %b", p.state)
		return
	}
	p.state |= firedActive
	p.life = max(p.life, LifeActive)
	p.end.FireActive()
}

// FireReadClosed tells the handlers that the peer has finished sending. It reports whether one of them keeps the event;
// else the channel sends what is queued and closes. A handler that passes it on later closes the channel by that, where
// no other handler stands in the way.
func (d *Driver) FireReadClosed() (kept bool) { return d.p.ask((*Context).FireReadClosed) }

// FireShutdown tells the handlers that the server wants to stop. It reports whether one of them keeps the event; else
// the channel is closed in an orderly way.
func (d *Driver) FireShutdown() (kept bool) { return d.p.ask((*Context).FireShutdown) }

// ask reports whether a handler keeps the event. The channel acts on it after all have returned: whoever passes the
// event on may still write. A question inside a question counts for both.
func (p *Pipeline) ask(fire func(*Context)) (kept bool) {
	outer := p.state & (asking | unkept)
	p.state = p.state&^unkept | asking
	fire(&p.end)
	kept = p.state&unkept == 0
	p.state = p.state&^(asking|unkept) | outer
	return kept
}

// FireInactive tells the handlers, once and only after FireActive, that the channel is closed.
func (d *Driver) FireInactive() {
	p := &d.p
	if p.state&firedInactive != 0 {
		invariants.Check(false, "pipeline: Inactive fired in state %b", p.state)
		return
	}
	active := p.state&firedActive != 0
	p.state |= firedInactive
	if active {
		p.end.FireInactive()
	}
}

// FireWritabilityChanged tells the handlers that Writable has changed.
func (d *Driver) FireWritabilityChanged() { d.p.end.FireWritabilityChanged() }

// FireFlush writes what Contexts have appended through the WriteHandlers before them, then flushes through the
// FlushHandlers. An error goes to the error handlers: nobody called. It reports whether the flush came through or one
// of them holds it back; and whether the loop should get its turn before the rest is written, because so much is
// appended meanwhile (by error handlers, say). Where there are FlushHandlers, a flush that comes through has called
// Channel.Flush.
func (d *Driver) FireFlush() (through, again bool) {
	p := &d.p
	again = !p.flushOuts()
	if p.kinds&kindFlush == 0 {
		return true, again
	}
	p.state &^= flushed
	if err := p.end.Flush(); err != nil && p.Open() {
		p.end.FireError(err)
	}
	return p.state&flushed != 0, again
}

// FireResume lets the ResumeHandlers go on, tail to head. It reports whether all have: not when one of them paused
// reading again or closed the channel; the rest then wait for the next resume. It is called from a loop task.
func (d *Driver) FireResume() bool {
	p := &d.p
	for c := p.end.prev; ; c = c.prev {
		if p.paused != 0 || !p.Open() {
			return false
		}
		if c == &p.end {
			return true
		}
		if c.kinds&kindResume == 0 {
			continue
		}
		if err := c.handler.(ResumeHandler).ChannelResume(c); err != nil {
			c.fail(err)
		}
	}
}

// ReadGrant asks the GrantHandlers, head to tail, how many bytes may be read. The smallest one wins, DefaultGrant where
// nobody is asked; negative ones count as zero. With a grant of zero, retry is the shortest positive wait that one of
// those who returned zero gave, or zero when none did: then only GrantChanged makes it worth asking again.
func (d *Driver) ReadGrant() (n int, retry time.Duration) {
	p := &d.p
	if p.kinds&kindGrant == 0 {
		return DefaultGrant, 0
	}
	n = -1
	for c := p.end.next; c != &p.end; c = c.next {
		if c.kinds&kindGrant == 0 {
			continue
		}
		k, after := c.handler.(GrantHandler).ReadGrant(c)
		k = max(k, 0)
		if n < 0 || k < n {
			n = k
		}
		if k == 0 && after > 0 && (retry == 0 || after < retry) {
			retry = after
		}
	}
	return max(n, 0), retry
}

// WatchesPending reports whether FirePending of n would call anybody.
func (d *Driver) WatchesPending(n int) bool {
	w := d.p.watch
	return w != nil && (n <= w.atMost || n >= w.atLeast)
}

// FirePending calls those who watch for n pending bytes, until one of them closes the channel. It is called at the end
// of a turn. Who begins to watch meanwhile is asked at the next.
func (d *Driver) FirePending(n int) {
	p := &d.p
	if p.watch == nil {
		return
	}
	p.watch.firing = true
	for i := range len(p.watch.list) {
		w := p.watch.list[i]
		if w.fn == nil || n > w.atMost && n < w.atLeast {
			continue
		}
		if err := w.fn(w.ctx, n); err != nil {
			w.ctx.fail(err)
		}
		if !p.Open() {
			break
		}
	}
	p.watch.firing = false
	p.watch.compact()
}

// RemoveAll removes all handlers, tail to head; nothing can be added afterwards. It comes after FireInactive.
func (d *Driver) RemoveAll() {
	p := &d.p
	p.state |= emptied
	for c := p.end.prev; c != &p.end; c = p.end.prev {
		p.remove(c)
	}
	p.dropOuts()
}
