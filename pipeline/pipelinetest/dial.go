package pipelinetest

import "github.com/weirnet/weir/pipeline"

// Dial is a connection that a handler asked for with Context.Dial. The test decides what becomes of it. It belongs to the
// test's goroutine.
type Dial struct {
	Network, Address string

	l      *Loop
	init   func(*pipeline.Pipeline) error
	failed func(error)
	done   bool
}

// Dials answers what handlers dialled since the last call.
func (c *Channel) Dials() []*Dial {
	d := c.dials
	c.dials = nil
	return d
}

// Connect makes the connection: an active channel on the same loop, with the pipeline that the handler wanted. When that
// fails to be filled, the dialler's failed gets the error and the channel is closed.
func (d *Dial) Connect() *Channel { return d.ConnectConfig(Config{}) }

// ConnectConfig is Connect with a Config for the new channel; its Init is not used.
func (d *Dial) ConnectConfig(cfg Config) *Channel {
	d.l.t.Helper()
	d.once()
	cfg.Init = func(p *pipeline.Pipeline) error {
		if d.init == nil {
			return nil
		}
		err := d.init(p)
		if err != nil && d.failed != nil {
			d.failed(err)
		}
		return err
	}
	return d.l.NewConfig(cfg)
}

// Fail tells the dialler that it cannot connect.
func (d *Dial) Fail(err error) {
	d.l.t.Helper()
	d.once()
	if d.failed != nil {
		d.l.act(func() { d.failed(err) })
	}
}

func (d *Dial) once() {
	d.l.t.Helper()
	if d.done {
		d.l.t.Fatalf("pipelinetest: dial of %s answered twice", d.Address)
	}
	d.done = true
}
