package pipeline

// Pause stops reading until this Context resumes; other Contexts' reasons are theirs. It works at once, before the
// channel is active too, and pausing twice is pausing once. A removed Context cannot pause.
func (c *Context) Pause() {
	if c.state&stateRemoved != 0 {
		return
	}
	p := c.p
	was := p.paused
	p.paused = was | 1<<c.index
	if was == 0 {
		p.ch.StopReading()
	}
}

// Resume takes this Context's reason away. When it was the last, reading goes on from a loop task: ResumeHandlers
// first, tail to head, then what the channel held back, then what comes in.
func (c *Context) Resume() {
	if c.state&stateRemoved == 0 {
		c.p.unpause(1 << c.index)
	}
}

func (p *Pipeline) unpause(bit uint64) {
	if p.paused&bit == 0 {
		return
	}
	p.paused &^= bit
	if p.paused == 0 && p.state&emptied == 0 {
		p.ch.StartReading()
	}
}

// Reading is false while any Context pauses reading, and once the channel closes. Whoever emits several
// messages from one event asks it before each.
func (c *Context) Reading() bool {
	return c.p.paused == 0 && c.p.Open()
}

// GrantChanged makes a read grant of zero be asked for again.
func (c *Context) GrantChanged() { c.p.ch.GrantChanged() }

// Pending is the memory in bytes that is held for data on its way out. Of what is appended to an Out for WriteHandlers
// it knows with the next call of Out, or when the message ends.
func (c *Context) Pending() int { return c.p.ch.Pending() }

// Outgoing tells writes apart from what becomes of them: it grows by each byte that is written, posted by a Ref or
// held, whereas Pending also changes as bytes move on, into blocks and out. It may count from anew where nothing is
// queued.
func (c *Context) Outgoing() uint64 { return c.p.ch.Outgoing() }

// Acked returns a mark that changes whenever the peer has acknowledged more of what was sent, which may be long after
// the kernel has taken it, and how many of the bytes that the kernel has taken are left. Between two looks at which the
// mark is the same, the peer has taken nothing; only a change says something. These are system calls, for timers rather
// than for messages.
func (c *Context) Acked() (mark uint64, left int) { return c.p.ch.Acked() }

// Writable reports whether pending is below the channel's watermarks and no Context says otherwise.
func (c *Context) Writable() bool { return c.p.Writable() }

// SetWritable is this Context's say: with false, Writable is false whatever the others say. A change of the whole
// reaches the WritabilityHandlers at the end of the turn, also when it was undone by then: somebody may have looked in
// between. A removed Context has no say.
func (c *Context) SetWritable(writable bool) {
	if c.state&stateRemoved != 0 {
		return
	}
	p := c.p
	bit := uint64(1) << c.index
	if writable == (p.unwritable&bit == 0) {
		return
	}
	p.unwritable ^= bit
	p.ch.WritabilityMayHaveChanged()
}
