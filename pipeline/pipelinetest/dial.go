package pipelinetest

import (
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/transport/sim"
)

// Dial is a connection that a handler asked for with Context.Dial. The test decides what becomes of it. It belongs to
// the test's goroutine.
type Dial struct {
	Network, Address string

	l       *Loop
	dialing *sim.Dialing
}

// answer hears of each connection that is asked for.
func (l *Loop) answer(d *sim.Dialing) {
	if l.next != nil {
		l.next.dialing = d
		l.next = nil
		return
	}
	l.dials = append(l.dials, &Dial{Network: d.Config.Network, Address: d.Config.Address, l: l, dialing: d})
}

// Dials returns what handlers of the loop dialled since the last call.
func (l *Loop) Dials() []*Dial {
	d := l.dials
	l.dials = nil
	return d
}

// Dials is Loop.Dials.
func (c *Channel) Dials() []*Dial { return c.l.Dials() }

// Connect makes the connection: a channel on the same loop with the pipeline that the handler wanted, and with the
// settings of the channel that dialled.
func (d *Dial) Connect() *Channel {
	d.l.t.Helper()
	return d.ConnectConfig(Config{})
}

// ConnectConfig is Connect with what a Config says of the peer and the addresses.
func (d *Dial) ConnectConfig(cfg Config) *Channel {
	d.l.t.Helper()
	d.once()
	c := d.l.newChannel(cfg)
	c.dialing = d.dialing
	d.l.next = c
	c.Activate()
	return c
}

// dialed tells the channel that is connected now of its channel.Channel.
func (l *Loop) dialed(ch *channel.Channel) func(*channel.Channel) {
	c := l.next
	if c == nil {
		return nil
	}
	l.next = nil
	c.attach(ch)
	return c.over
}

// Fail tells the dialler that it cannot connect.
func (d *Dial) Fail(err error) {
	d.l.t.Helper()
	d.once()
	d.l.act(func() { d.dialing.Fail(err) })
}

func (d *Dial) once() {
	d.l.t.Helper()
	if d.dialing.Over() {
		d.l.t.Fatalf("pipelinetest: dial of %q answered twice, or nobody waits any more", d.Address)
	}
}
